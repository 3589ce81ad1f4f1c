"""How one candidate was written: with care for the file, in one go, or as logs and databases are."""

from __future__ import annotations

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.knowledge import Knowledge
from ckptprof.detect.events.signals.series import is_row_of_data
from ckptprof.detect.events.signals.weights import WEIGHTS
from ckptprof.detect.events.traits import candidate_bytes, shapes
from ckptprof.model import Evidence

_LARGE_BYTES = 1 << 20
_SMALL_BYTES = 64 << 10
_SIZES = 4  # powers of two among the sizes of its operations
_RANDOM = 0.5
_MOST = 0.8
_SCANT_BYTES = 4 << 20


def renamed(candidate: Candidate, _: Knowledge) -> Evidence | None:
    """Weigh a temporary name, then another: whoever reads it never meets half of it."""
    if candidate.writes and any(part.earlier_path is not None for part in candidate.parts):
        return Evidence(name="renamed", weight=WEIGHTS["renamed"], text="written under a temporary name, then renamed")
    return None


def committed(candidate: Candidate, _: Knowledge) -> Evidence | None:
    """Weigh the marker with which a framework completes a checkpoint."""
    marks = [part.path.rpartition("/")[2] for part in candidate.parts if part.name.commit]
    if not marks or not candidate.writes:
        return None
    return Evidence(name="commit", weight=WEIGHTS["commit"], text=f"completed by {marks[0]}")


def tensors(candidate: Candidate, _: Knowledge) -> Evidence | None:
    """Weigh many arrays in one file: operations of many sizes, the big ones with the bytes."""
    if not candidate.writes:
        return None
    sizes: dict[int, int] = {}
    for part in candidate.parts:
        for session in part.threads:
            for low, _operations, moved in session.sizes:
                sizes[low] = sizes.get(low, 0) + moved
    large = sum(moved for low, moved in sizes.items() if low >= _LARGE_BYTES)
    if len(sizes) < _SIZES or large * 2 < sum(sizes.values()):
        return None
    return Evidence(
        name="tensors", weight=WEIGHTS["tensors"], text="its operations have many sizes, as arrays of a model have"
    )


def bulk(candidate: Candidate, known: Knowledge) -> Evidence | None:
    """Weigh that most of what its job wrote lately is of this series."""
    if not candidate.writes:
        return None
    own = shapes(candidate)
    events = known.past.events(candidate.job, writes=True)
    if not events or is_row_of_data(candidate, known):
        return None
    alike = candidate_bytes(candidate) + sum(event.bytes for event in events if event.shapes & own)
    others = sum(event.bytes for event in events if not event.shapes & own)
    if alike < _SCANT_BYTES or alike < _MOST * (alike + others) or not any(event.shapes & own for event in events):
        return None
    return Evidence(name="bulk", weight=WEIGHTS["bulk"], text="most of what its job writes is of this kind")


def appends(candidate: Candidate, _: Knowledge) -> Evidence | None:
    """Weigh O_APPEND, as logs are written."""
    appended = sum(part.bytes for part in candidate.parts if part.append)
    if not candidate.writes or appended * 2 <= candidate_bytes(candidate):
        return None
    return Evidence(name="appends", weight=WEIGHTS["appends"], text="it is appended to, as logs are")


def random(candidate: Candidate, _: Knowledge) -> Evidence | None:
    """Weigh small operations that do not follow each other, as databases write."""
    sums = [part.operations for part in candidate.parts if part.operations is not None]
    moved = sum(one.bytes for one in sums)
    operations = sum(one.number for one in sums)
    if not candidate.writes or not operations or moved / operations >= _SMALL_BYTES:
        return None
    if sum(one.consecutive_bytes for one in sums) > _RANDOM * moved:
        return None
    return Evidence(
        name="random", weight=WEIGHTS["random"], text="small writes here and there in its files, as databases do"
    )
