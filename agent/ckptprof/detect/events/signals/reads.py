"""What tells a restore from the reading of data."""

from __future__ import annotations

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.knowledge import Knowledge
from ckptprof.detect.events.past_events import shape_of
from ckptprof.detect.events.traits import biggest, candidate_bytes, framework_of, is_weak, shapes

_MANY = 4
_BESIDE_NS = 30_000_000_000
_CROWD = 64


def read_back(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether most of it was recognised as saved before."""
    if candidate.writes:
        return False
    saved_bytes = sum(part.bytes for part in candidate.parts if known.transfers.saved.contains(part.path))
    return saved_bytes > 0 and saved_bytes * 2 >= candidate_bytes(candidate)


def read_again(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether an earlier run of the same program wrote one of its files, whatever it was taken for."""
    if candidate.writes:
        return False
    own = known.world.programs(candidate.processes)
    for path in biggest(candidate):
        author = known.past.author(path)
        if author is not None and author.programs & own and not author.processes & set(candidate.processes):
            return True
    return False


def feeds(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether files of one shape are read in a row or again, which nothing calls checkpoints: a data set."""
    if candidate.writes or not is_weak(framework_of(candidate, known)):
        return False
    hints = sum(part.bytes for part in candidate.parts if part.name.hint or part.name.certain)
    if hints * 2 >= candidate_bytes(candidate) or known.transfers.saved.contains(biggest(candidate)[0]):
        return False
    processes = frozenset(candidate.processes)
    earlier = known.past.series(candidate.job, shapes(candidate), writes=False)
    return any(event.processes & processes for event in earlier) or _is_row(candidate, known)


def _is_row(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether its processes read many files of one shape, these among them, at that time."""
    rows: dict[str, int] = {}
    for path in {*biggest(candidate, 64), *_read_beside(candidate, known)}:
        rows[shape_of(path)] = rows.get(shape_of(path), 0) + 1
    return max(rows.values(), default=0) >= _MANY


def _read_beside(candidate: Candidate, known: Knowledge) -> set[str]:
    """Return the files that its processes read soon before it or after it."""
    low_ns, high_ns = candidate.start_ns - _BESIDE_NS, candidate.end_ns + _BESIDE_NS
    return {
        move.path
        for process in candidate.processes[:_CROWD]
        for move in known.transfers.recent.of(process, low_ns, high_ns, writes=False)
    }
