"""How one candidate was written: with care for the file, in one go, or as logs and databases are."""

from __future__ import annotations

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.knowledge import Knowledge
from ckptprof.detect.events.signals.series import is_row_of_data
from ckptprof.detect.events.traits import candidate_bytes, shapes

_LARGE_BYTES = 1 << 20
_SMALL_BYTES = 64 << 10
_SIZES = 4  # powers of two among the sizes of its operations
_RANDOM = 0.5
_MOST = 0.8
_SCANT_BYTES = 4 << 20


def renamed(candidate: Candidate, _: Knowledge) -> bool:
    """Return whether it had a temporary name, then another: whoever reads it never meets half of it."""
    return candidate.writes and any(part.earlier_path is not None for part in candidate.parts)


def committed(candidate: Candidate, _: Knowledge) -> str | None:
    """Return the marker with which its framework completed it."""
    marks = (part.path.rpartition("/")[2] for part in candidate.parts if part.name.commit)
    return next(marks, None) if candidate.writes else None


def tensors(candidate: Candidate, _: Knowledge) -> bool:
    """Return whether it has many arrays in one file: operations of many sizes, the big ones with the bytes."""
    if not candidate.writes:
        return False
    sizes: dict[int, int] = {}
    for part in candidate.parts:
        for session in part.threads:
            for low, _operations, moved in session.sizes:
                sizes[low] = sizes.get(low, 0) + moved
    large = sum(moved for low, moved in sizes.items() if low >= _LARGE_BYTES)
    return len(sizes) >= _SIZES and large * 2 >= sum(sizes.values())


def bulk(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether most of what its job wrote lately is of this series."""
    if not candidate.writes:
        return False
    own = shapes(candidate)
    events = known.past.events(candidate.job, writes=True)
    if not events or is_row_of_data(candidate, known):
        return False
    alike = candidate_bytes(candidate) + sum(event.bytes for event in events if event.shapes & own)
    others = sum(event.bytes for event in events if not event.shapes & own)
    most = alike >= _SCANT_BYTES and alike >= _MOST * (alike + others)
    return most and any(event.shapes & own for event in events)


def appends(candidate: Candidate, _: Knowledge) -> bool:
    """Return whether most of it was written with O_APPEND, as logs are."""
    appended = sum(part.bytes for part in candidate.parts if part.append)
    return candidate.writes and appended * 2 > candidate_bytes(candidate)


def random(candidate: Candidate, _: Knowledge) -> bool:
    """Return whether small operations do not follow each other, as databases write."""
    sums = [part.operations for part in candidate.parts if part.operations is not None]
    moved = sum(one.bytes for one in sums)
    operations = sum(one.number for one in sums)
    if not candidate.writes or not operations or moved / operations >= _SMALL_BYTES:
        return False
    return sum(one.consecutive_bytes for one in sums) <= _RANDOM * moved
