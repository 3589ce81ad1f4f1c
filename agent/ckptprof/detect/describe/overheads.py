"""Write amplification: what was written beyond the checkpoint itself, and why."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass

from ckptprof.detect.describe.risks import Wholes
from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.knowledge import Knowledge
from ckptprof.detect.tolerances import ALL_SHARE, HEADER_BYTES, TELLING_BYTES, is_like
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.frameworks.names import is_alias
from ckptprof.frameworks.table import CONSOLIDATED, SHARDED
from ckptprof.model import Overhead


@dataclass(frozen=True)
class Amplification:
    """All bytes that a save wrote, those of the checkpoint, and the reasons for the rest."""

    written_bytes: int | None = None
    unique_bytes: int | None = None
    overheads: tuple[Overhead, ...] = ()


def amplification_of(candidate: Candidate, known: Knowledge) -> Amplification:
    """Measure the amplification of a save; empty for a restore."""
    if not candidate.writes:
        return Amplification()
    staged = list({id(part.staged): part.staged for part in candidate.parts if part.staged is not None}.values())
    written = candidate.bytes + sum(map(_bytes_of, staged))
    found = [*_staging(staged), *_rewrites(candidate, known)]
    left = candidate.parts  # whose bytes are not explained yet
    for reason, text, find in _EXPLAINED:
        again = find(left)
        if moved := sum(part.bytes for part in again):
            names = ", ".join(dict.fromkeys(part.file_name for part in again[:3]))
            found.append(Overhead(reason=reason, bytes=moved, text=f"{names}: {text}"))
        explained = set(map(id, again))
        left = [part for part in left if id(part) not in explained]
    beyond = sum(overhead.bytes for overhead in found)
    return Amplification(written, max(0, written - beyond), tuple(found))


def _bytes_of(stream: Transfer) -> int:
    return stream.counted_bytes or stream.stored_size


def _staging(staged: list[Transfer]) -> Iterator[Overhead]:
    moved = sum(map(_bytes_of, staged))
    if moved > 0:
        yield Overhead(
            reason="staging", bytes=moved, text=f"written to {staged[0].folder} first, then copied from there"
        )


def _rewrites(candidate: Candidate, known: Knowledge) -> Iterator[Overhead]:
    """Yield bytes written more than once; a polled process may only seem to write a file that it inherited."""
    sums: dict[str, tuple[int, int]] = {}  # what was written of each file, and its size
    for part in candidate.parts:
        if not part.is_mapped:
            moved, size = sums.get(part.path, (0, 0))
            stretch = part.stretch
            reach = part.stored_size if stretch is None else max(part.size, stretch[1])
            sums[part.path] = moved + part.bytes, max(size, reach)
    more = {
        path: moved - size
        for path, (moved, size) in sums.items()
        if size > 0 and moved - size > HEADER_BYTES and moved * ALL_SHARE > size  # a header is filled in at the end
    }
    polled = [part for part in candidate.parts if part.path in more and part.stretch is None] if more else []
    wholes = Wholes(candidate, known)
    inherited = {part.path for part in polled if not wholes.has(part)}
    beyond = [moved for path, moved in more.items() if path not in inherited]
    if beyond:
        text = f"parts of {len(beyond)} of its files were written more than once"
        yield Overhead(reason="rewrite", bytes=sum(beyond), text=text)


def _alike(parts: Iterable[Transfer], key: Callable[[Transfer], Hashable]) -> list[list[Transfer]]:
    groups: dict[Hashable, list[Transfer]] = {}
    for part in parts:
        if part.bytes >= TELLING_BYTES:
            groups.setdefault((part.process, key(part)), []).append(part)
    return [group for group in groups.values() if len(group) > 1]


def copies_of(parts: list[Transfer]) -> list[Transfer]:
    """Find files of equal size whose name is reused for every save: last.ckpt beside epoch=1-step=100.ckpt.

    In the same folder, or in two folders of which one has such a name. torch.save writes the file's name into it, so
    within one folder sizes may differ by a few bytes.
    """
    again = set(map(id, _nearly_copies(parts)))
    for group in _alike(parts, lambda part: part.bytes):
        aliases = [part for part in group if is_alias(part.path) or is_alias(part.folder)]
        again.update(map(id, aliases[1 if len(aliases) == len(group) else 0 :]))
    return [part for part in parts if id(part) in again]


def _nearly_copies(parts: list[Transfer]) -> Iterator[Transfer]:
    own: dict[Hashable, list[int]] = {}
    aliases: list[Transfer] = []
    for part in parts:
        if part.bytes >= TELLING_BYTES:
            if is_alias(part.path):
                aliases.append(part)
            else:
                own.setdefault(_kind(part), []).append(part.bytes)
    for sizes in own.values():
        sizes.sort()
    for part in aliases:
        # torch.save writes the file's name twice for each tensor
        sizes = own.get(_kind(part), [])
        least = bisect_left(sizes, float(part.bytes), key=lambda size: size / ALL_SHARE)
        if least < len(sizes) and ALL_SHARE * sizes[least] <= part.bytes:
            yield part


def _kind(part: Transfer) -> Hashable:
    return part.process, part.folder, part.file_name.rpartition(".")[2]


def _consolidated(parts: list[Transfer]) -> list[Transfer]:
    """Files joined from the shards in a folder beside them (PyTorch DCP's HF writer)."""
    shards = [part for part in parts if part.folder.rpartition("/")[2] in SHARDED]
    homes = {part.folder.rpartition("/")[0] for part in shards}
    places = homes | {f"{home}/{folder}" for home in homes for folder in CONSOLIDATED}
    whole = [part for part in parts if part.folder in places and part.bytes >= TELLING_BYTES]
    sharded, put_together = sum(part.bytes for part in shards), sum(part.bytes for part in whole)
    return whole if sharded and is_like(put_together, sharded) else []


def _duplicates(parts: list[Transfer]) -> list[Transfer]:
    """Files written to two checkpoints, equal in name and size; two folders of one checkpoint are parts of it."""
    pairs: dict[tuple[str, str], list[Transfer]] = {}
    for first, *others in _alike(parts, lambda part: (part.file_name, part.bytes)):
        for later in others:
            if later.name.directory != first.name.directory:
                pairs.setdefault((first.folder, later.folder), []).append(later)
    return [part for pair in pairs.values() if len(pair) > 1 for part in pair]


_EXPLAINED = (
    ("copy", "written in full under a further name", copies_of),
    ("consolidation", "joined from its shards, which remain", _consolidated),
    ("duplicate", "written in full to a second folder", _duplicates),
)
