"""What a candidate is like, taken by itself: its bytes, its biggest files, their shapes, and its framework by name."""

from __future__ import annotations

from heapq import nlargest

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.knowledge import Knowledge
from ckptprof.detect.events.past_events import PastEvent, shape_of
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.frameworks import identity
from ckptprof.frameworks.table import BY_NAME

_SHAPED = 8  # so many of its biggest files show what a series is
_REMEMBERED = 64
_NAMED = 2000


def candidate_bytes(candidate: Candidate) -> int:
    """Return the bytes of all parts."""
    return sum(part.bytes for part in candidate.parts)


def biggest(candidate: Candidate, count: int = _SHAPED) -> list[str]:
    """Return the paths of its biggest files."""
    return [part.path for part in largest(candidate, count)]


def shapes(candidate: Candidate) -> frozenset[str]:
    """Return what its biggest files share with those of the saves before and after it."""
    return frozenset(shape_of(path) for path in biggest(candidate))


def largest(candidate: Candidate, count: int = _REMEMBERED) -> list[Transfer]:
    """Return its parts with most bytes: of 100,000 files these say enough."""
    return nlargest(count, candidate.parts, key=lambda part: part.bytes)


def framework_of(candidate: Candidate, known: Knowledge) -> str | None:
    """Return the framework whose names its files bear."""
    if candidate.framework is None:
        files = ((part.path, part.bytes, part.fact.magic if part.fact else None) for part in largest(candidate, _NAMED))
        candidate.framework = (identity.framework_of(files, known.world.programs(candidate.processes)),)
    return candidate.framework[0]


def is_weak(framework: str | None) -> bool:
    """Return whether data sets bear such names, too; no framework's name is weak, as well."""
    return framework is None or BY_NAME[framework].weak


def event_of(candidate: Candidate, known: Knowledge) -> PastEvent:
    """Return what is remembered of it."""
    return PastEvent(
        start_ns=candidate.start_ns,
        end_ns=candidate.end_ns,
        bytes=candidate_bytes(candidate),
        shapes=shapes(candidate),
        paths=frozenset(biggest(candidate, _REMEMBERED)),
        processes=frozenset(candidate.processes),
        programs=known.world.programs(candidate.processes),
    )
