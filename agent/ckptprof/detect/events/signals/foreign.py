"""What it is instead: data, a cache, a database, a dump of memory, a film, a download."""

from __future__ import annotations

from collections.abc import Callable

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.knowledge import Knowledge
from ckptprof.detect.events.pass_through import is_poured
from ckptprof.detect.events.traits import candidate_bytes, largest, shapes
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.frameworks.formats import COMPRESSIONS, DUMPS, OTHER_ENDINGS, OTHER_MAGICS
from ckptprof.frameworks.names import is_temporary_of_framework
from ckptprof.frameworks.places import CACHES_OF_HUBS, NOT_OF_JOBS, UNFINISHED_DOWNLOADS

_MOST = 256  # files
_RECEIVED = (0.9, 1.6)
_RECEIVED_EXACTLY = (0.97, 1.2)  # of what a trainer writes
_RECEIVED_BYTES = 8 << 20
_BUFFERED_NS = 1_000_000_000


def is_data(candidate: Candidate, _: Knowledge) -> bool:
    """Return whether a word for data sets or results is in its name."""
    return _mostly(candidate, lambda part: part.name.data)


def is_placed(candidate: Candidate, _: Knowledge) -> bool:
    """Return whether it is in a place of caches, packages or databases."""
    return _mostly(candidate, lambda part: NOT_OF_JOBS.search(part.path) is not None)


def is_foreign(candidate: Candidate, _: Knowledge) -> str | None:
    """Return what its suffix or first bytes say it is, if that holds no model."""
    kinds = (kind for part in largest(candidate, _MOST) if (kind := _other_format(part)) is not None)
    return next(kinds, None) if _mostly(candidate, lambda part: _other_format(part) is not None) else None


def received(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether as much came in by the network as was written, at the same time."""
    size = candidate_bytes(candidate)
    if not candidate.writes or size < _RECEIVED_BYTES or _has_ranks(candidate, known):
        return False
    trains = known.world.trains(candidate.processes)
    if trains and (candidate.step is not None or known.past.series(candidate.job, shapes(candidate), writes=True)):
        return False  # it counts its training, or saves such files again and again; the network may serve anybody
    low, high = _RECEIVED_EXACTLY if trains else _RECEIVED
    came = known.world.devices.received_bytes(candidate.start_ns, candidate.end_ns)
    if came is None or not low * size <= came <= high * size:
        # others receive, too, and what waited in buffers came before the file was there: then its pieces must tell
        came = known.world.devices.received_bytes(candidate.start_ns - _BUFFERED_NS, candidate.end_ns)
        return came is not None and came >= low * size and is_poured(candidate, known)
    return True


def downloaded(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether it is in a cache of what hubs of models give, or was named as what is not downloaded yet."""
    if not candidate.writes:
        return False
    trains = known.world.trains(candidate.processes)

    def is_download(part: Transfer) -> bool:
        earlier = part.earlier_path or ""
        if any(CACHES_OF_HUBS.search(path) for path in (part.path, earlier)):
            return True
        if trains or (part.name.hint and is_temporary_of_framework(earlier)):
            return False
        return any(UNFINISHED_DOWNLOADS.search(path) for path in (part.path, earlier))

    return _mostly(candidate, is_download)


def _has_ranks(candidate: Candidate, known: Knowledge) -> bool:
    return any(known.world.jobs.rank(process) is not None for process in candidate.processes)


def _other_format(part: Transfer) -> str | None:
    path = part.path
    if part.name.commit:
        return None
    if DUMPS.search(path):
        return "a dump of memory"
    found = OTHER_ENDINGS.search(path)
    if found is not None:
        return f"a file of another kind, {found[0][:20]!r}"
    magic = part.fact.magic if part.fact is not None else None
    for offset, mark, kind in OTHER_MAGICS if magic else ():
        if magic is not None and magic[offset : offset + len(mark)] == mark:
            packed = part.name.framework is not None and path.endswith(COMPRESSIONS.get(kind, "\0"))
            return None if packed else kind
    return None


def _mostly(candidate: Candidate, is_such: Callable[[Transfer], bool]) -> bool:
    parts = largest(candidate, _MOST)
    return sum(part.bytes for part in parts if is_such(part)) * 2 > sum(part.bytes for part in parts)
