"""Write amplification: what was written beyond the checkpoint itself, and why."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

from ckptprof.detect.describe.risks import WholeFiles
from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.detection_knowledge import Knowledge
from ckptprof.detect.tolerances import (
    ALL_SHARE,
    HEADER_BYTES,
    MOST_SHARE,
    SIGNIFICANT_BYTES,
    STAMP_TOLERANCE_NS,
    is_same_state_size,
)
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.frameworks.file_names import parse_name
from ckptprof.model import Overhead


@dataclass(frozen=True)
class Amplification:
    """All bytes that a save wrote, those of the checkpoint, and the reasons for the rest."""

    written_bytes: int | None = None
    unique_bytes: int | None = None
    overheads: tuple[Overhead, ...] = ()


def measure_amplification(candidate: Candidate, known: Knowledge) -> Amplification:
    """Measure the amplification of a save; empty for a restore."""
    if not candidate.writes:
        return Amplification()
    staged = list({id(one): one for part in candidate.parts if (one := part.staging_file) is not None}.values())
    staged_bytes = sum(part.counted_bytes or part.stored_size for part in staged)
    written, found = candidate.bytes + staged_bytes, list(_rewrites(candidate, known))
    if staged_bytes:
        text = f"written to {staged[0].folder} first, then copied from there"
        found.insert(0, Overhead(reason="staging", bytes=staged_bytes, text=text))
    unexplained = candidate.parts  # whose bytes are not explained yet
    for reason, text, find in (
        ("copy", "written in full under a further name", find_copies),
        ("consolidation", "joined from the others", partial(_joined, known=known)),
        ("duplicate", "written in full to a second folder", _duplicates),
    ):
        explained_parts = find(unexplained)
        if explained_bytes := sum(part.bytes for part in explained_parts):
            names = ", ".join(dict.fromkeys(part.file_name for part in explained_parts[:3]))
            found.append(Overhead(reason=reason, bytes=explained_bytes, text=f"{names}: {text}"))
        explained_ids = set(map(id, explained_parts))
        unexplained = [part for part in unexplained if id(part) not in explained_ids]
    overhead_bytes = sum(overhead.bytes for overhead in found)
    return Amplification(written, max(0, written - overhead_bytes), tuple(found))


def _rewrites(candidate: Candidate, known: Knowledge) -> Iterator[Overhead]:
    """Yield bytes written more than once; a polled process may only seem to write a file that it inherited."""
    sums: dict[str, tuple[int, int]] = {}  # what was written of each file, and its size
    for part in candidate.parts:
        if not part.is_mapped:
            written, size = sums.get(part.path, (0, 0))
            stretch = part.offset_range
            end = part.stored_size if stretch is None else max(part.size, stretch[1])
            sums[part.path] = written + part.bytes, max(size, end)
    excess = {
        path: written - size
        for path, (written, size) in sums.items()
        if size > 0 and written - size > HEADER_BYTES and written * ALL_SHARE > size  # a header is filled in at the end
    }
    polled = [part for part in candidate.parts if part.path in excess and part.offset_range is None] if excess else []
    whole_files = WholeFiles(candidate, known)
    inherited = {part.path for part in polled if not whole_files.is_written_whole(part)}
    excess_bytes = [written for path, written in excess.items() if path not in inherited]
    if excess_bytes:
        text = f"parts of {len(excess_bytes)} of its files were written more than once"
        yield Overhead(reason="rewrite", bytes=sum(excess_bytes), text=text)


def _groups_of_equal(parts: Iterable[Transfer], key: Callable[[Transfer], Hashable]) -> list[list[Transfer]]:
    groups: dict[Hashable, list[Transfer]] = {}
    for part in parts:
        if part.bytes >= SIGNIFICANT_BYTES:
            groups.setdefault((part.process, key(part)), []).append(part)
    return [group for group in groups.values() if len(group) > 1]


def find_copies(parts: list[Transfer]) -> list[Transfer]:
    """Find files of equal size whose name is reused for every save: last.ckpt next to epoch=1-step=100.ckpt.

    In the same folder, or in two folders of which one has such a name. torch.save writes the file's name into it, so
    within one folder sizes may differ by a few bytes.
    """
    copy_ids = set(map(id, _near_copies(parts)))
    for group in _groups_of_equal(parts, lambda part: part.bytes):
        aliases = [part for part in group if part.name.alias or parse_name(part.folder).alias]
        copy_ids.update(map(id, aliases[1 if len(aliases) == len(group) else 0 :]))
    return [part for part in parts if id(part) in copy_ids]


def _near_copies(parts: list[Transfer]) -> Iterator[Transfer]:
    sizes_by_kind: dict[Hashable, list[int]] = {}
    aliases: list[Transfer] = []
    for part in parts:
        if part.bytes >= SIGNIFICANT_BYTES:
            if part.name.alias:
                aliases.append(part)
            else:
                sizes_by_kind.setdefault(_kind(part), []).append(part.bytes)
    for sizes in sizes_by_kind.values():
        sizes.sort()
    for part in aliases:
        # torch.save writes the file's name twice for each tensor
        sizes = sizes_by_kind.get(_kind(part), [])
        least = bisect_left(sizes, float(part.bytes), key=lambda size: size / ALL_SHARE)
        if least < len(sizes) and ALL_SHARE * sizes[least] <= part.bytes:
            yield part


def _kind(part: Transfer) -> Hashable:
    return part.process, part.folder, part.file_name.rpartition(".")[2]


def _joined(parts: list[Transfer], known: Knowledge) -> list[Transfer]:
    """Find files as large as all that were written before them, by a process that has read them since."""
    in_order = sorted((part for part in parts if part.bytes >= SIGNIFICANT_BYTES), key=lambda part: part.start_ns)
    sums = [0, *accumulate(part.bytes for part in in_order)]
    place = next((at for at in range(2, len(in_order)) if is_same_state_size(sums[at], sums[-1] - sums[at])), 0)
    shards, joined = in_order[:place], in_order[place:]
    since_ns = max((part.end_ns for part in shards), default=0)
    if not shards or joined[0].start_ns < since_ns - STAMP_TOLERANCE_NS:
        return []
    process, files = joined[0].process, {one.file for one in shards}
    span = since_ns, max(part.end_ns for part in joined)
    readings = known.transfers.recent.readings_of(process, files, span)
    read = max(sum(one.size_in_use for one in readings), known.world.histories[process].returned_bytes(*span))
    return joined if read >= MOST_SHARE * sums[place] else []


def _duplicates(parts: list[Transfer]) -> list[Transfer]:
    """Files written to two checkpoints, equal in name and size; two folders of one checkpoint are parts of it."""
    pairs: dict[tuple[str, str], list[Transfer]] = {}
    for first, *others in _groups_of_equal(parts, lambda part: (part.file_name, part.bytes)):
        for later in others:
            if later.name.directory != first.name.directory:
                pairs.setdefault((first.folder, later.folder), []).append(later)
    return [part for pair in pairs.values() if len(pair) > 1 for part in pair]
