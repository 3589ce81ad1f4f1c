"""Write amplification: what was written beyond the checkpoint itself, and why."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.frameworks.names import is_alias
from ckptprof.frameworks.table import CONSOLIDATED, SHARDED
from ckptprof.model import Overhead

_COUNTED_BYTES = 1 << 20  # equal sizes of smaller files say nothing
_REWRITE_SHARE = 0.01  # of a file that is written again is the header that is filled in at the end
_CONSOLIDATED = (0.9, 1.1)  # of the shards is the size of what they were put together to
_TWINS = 2  # so many pairs of equal files in two folders are no chance


@dataclass(frozen=True)
class Amplification:
    """What a save wrote in all, what of it is the checkpoint, and the reasons for the rest."""

    written_bytes: int | None = None
    unique_bytes: int | None = None
    overheads: tuple[Overhead, ...] = ()


def amplification_of(candidate: Candidate) -> Amplification:
    """Return the amplification of a save; of a restore nothing is known here."""
    if not candidate.writes:
        return Amplification()
    staged = {id(part.staged): part.staged for part in candidate.parts if part.staged is not None}
    written = sum(part.bytes for part in candidate.parts) + sum(_bytes_of(stream) for stream in staged.values())
    found = [*_staging(list(staged.values())), *_rewrites(candidate.parts)]
    again: dict[int, Transfer] = {}  # parts whose bytes are explained already
    for explain in (_copies, _consolidated, _duplicates):
        found += explain([part for part in candidate.parts if id(part) not in again], again)
    beyond = sum(overhead.bytes for overhead in found)
    return Amplification(written, max(0, written - beyond), tuple(found))


def _bytes_of(stream: Transfer) -> int:
    return stream.counted_bytes or stream.stored_size


def _staging(staged: list[Transfer]) -> Iterator[Overhead]:
    moved = sum(_bytes_of(stream) for stream in staged)
    if moved > 0:
        folder = staged[0].path.rpartition("/")[0]
        yield Overhead(reason="staging", bytes=moved, text=f"written to {folder} first, then copied from there")


def _rewrites(parts: Iterable[Transfer]) -> Iterator[Overhead]:
    """Yield what was written to the same place of a file more than once: more bytes than it has."""
    moved: dict[str, list[Transfer]] = {}
    for part in parts:
        if part.stretch is not None and not part.is_mapped:
            moved.setdefault(part.path, []).append(part)
    beyond = files = 0
    for own in moved.values():
        size = max(max(part.size, _reach(part)) for part in own)
        excess = sum(part.bytes for part in own) - size
        if size > 0 and excess > max(_REWRITE_SHARE * size, _COUNTED_BYTES // 16):
            beyond += excess
            files += 1
    if beyond:
        yield Overhead(
            reason="rewrite", bytes=beyond, text=f"parts of {files} of its files were written more than once"
        )


def _reach(part: Transfer) -> int:
    return part.stretch[1] if part.stretch is not None else 0


def _alike(parts: Iterable[Transfer], key: Callable[[Transfer], Hashable]) -> list[list[Transfer]]:
    """Return the groups of large parts that share a key, those of one process."""
    groups: dict[Hashable, list[Transfer]] = {}
    for part in parts:
        if part.bytes >= _COUNTED_BYTES:
            groups.setdefault((part.process, key(part)), []).append(part)
    return [group for group in groups.values() if len(group) > 1]


def _copies(parts: list[Transfer], again: dict[int, Transfer]) -> list[Overhead]:
    """Return the files of the same size whose name is used anew for every save: last.ckpt beside epoch=1-step=100.ckpt.

    In the same folder, or in two of which one bears such a name.
    """
    for group in _alike(parts, lambda part: part.bytes):
        aliases = [part for part in group if is_alias(part.path) or is_alias(_folder(part))]
        for part in aliases[1 if len(aliases) == len(group) else 0 :]:
            again[id(part)] = part
    return _told("copy", [part for part in parts if id(part) in again], "written in full under a further name")


def _consolidated(parts: list[Transfer], again: dict[int, Transfer]) -> list[Overhead]:
    """Return the files that were put together from the shards in a folder beside them (PyTorch DCP's HF writer)."""
    shards = [part for part in parts if _folder(part).rpartition("/")[2] in SHARDED]
    homes = {_folder(part).rpartition("/")[0] for part in shards}
    places = homes | {f"{home}/{folder}" for home in homes for folder in CONSOLIDATED}
    whole = [part for part in parts if _folder(part) in places and part.bytes >= _COUNTED_BYTES]
    sharded, put_together = sum(part.bytes for part in shards), sum(part.bytes for part in whole)
    if not sharded or not _CONSOLIDATED[0] <= put_together / sharded <= _CONSOLIDATED[1]:
        return []
    again.update({id(part): part for part in whole})
    return _told("consolidation", whole, "put together from its shards, which stay")


def _duplicates(parts: list[Transfer], again: dict[int, Transfer]) -> list[Overhead]:
    """Return the files that one process wrote to two folders under the same names, in the same sizes."""
    pairs: dict[tuple[str, str], list[Transfer]] = {}
    for group in _alike(parts, lambda part: (part.path.rpartition("/")[2], part.bytes)):
        first = group[0]
        for later in group[1:]:
            if _folder(later) != _folder(first):
                pairs.setdefault((_folder(first), _folder(later)), []).append(later)
    twins = [part for pair in pairs.values() if len(pair) >= _TWINS for part in pair]
    again.update({id(part): part for part in twins})
    return _told("duplicate", twins, "written in full to a second folder")


def _told(reason: str, parts: list[Transfer], what: str) -> list[Overhead]:
    moved = sum(part.bytes for part in parts)
    if not moved:
        return []
    names = ", ".join(dict.fromkeys(part.path.rpartition("/")[2] for part in parts[:3]))
    return [Overhead(reason=reason, bytes=moved, text=f"{names}: {what}")]


def _folder(part: Transfer) -> str:
    return part.path.rpartition("/")[0]
