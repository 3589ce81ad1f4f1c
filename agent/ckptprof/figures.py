"""Figures of checkpoints, defined once for every command, document and plan.

Averages, medians and quantiles use `of_complete`: incomplete checkpoints have no meaningful duration or rate. Sums use
`of_all`. The terms are defined in docs/glossary.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import TypeVar

from ckptprof.model import Checkpoint, Kind, Mode, Status
from ckptprof.units import NS, speed

__all__ = [
    "busy_ns", "complete", "duration_ns", "duration_seconds", "intervals_seconds", "lost_seconds", "median", "of_all",
    "of_complete", "quantile", "rate_bytes_per_second", "stall_seconds", "union_ns",
]  # fmt: skip

_Number = TypeVar("_Number", int, float)


def duration_ns(checkpoint: Checkpoint) -> int:
    """Return the time from start to end, at least 0."""
    return max(0, checkpoint.end_ns - checkpoint.start_ns)


def duration_seconds(checkpoint: Checkpoint) -> float:
    """Return the time from start to end, at least 0."""
    return duration_ns(checkpoint) / NS


def rate_bytes_per_second(checkpoint: Checkpoint) -> float | None:
    """Return bytes per duration; None for a duration of 0."""
    return speed(checkpoint.bytes, duration_ns(checkpoint))


def stall_seconds(checkpoint: Checkpoint) -> float | None:
    """Return the stall of training; None if not observed."""
    stall_ns = checkpoint.stall_ns
    return stall_ns / NS if stall_ns is not None and stall_ns >= 0 else None


def lost_seconds(checkpoint: Checkpoint) -> float:
    """Return the maximum time lost: the stall; if not observed, the duration, or 0 for async."""
    stall = stall_seconds(checkpoint)
    if stall is not None:
        return stall
    return 0.0 if checkpoint.mode is Mode.ASYNC else duration_ns(checkpoint) / NS


def complete(checkpoints: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Return the checkpoints that are not incomplete."""
    return [one for one in checkpoints if one.status is not Status.INCOMPLETE]


def of_complete(checkpoints: Iterable[Checkpoint], of: Callable[[Checkpoint], float | None]) -> list[float]:
    """Return the known values of complete checkpoints, for medians, averages and quantiles."""
    return of_all(complete(checkpoints), of)


def of_all(checkpoints: Iterable[Checkpoint], of: Callable[[Checkpoint], float | None]) -> list[float]:
    """Return the known values of all checkpoints, for sums."""
    return [value for one in checkpoints if (value := of(one)) is not None and math.isfinite(value)]


def intervals_seconds(checkpoints: Iterable[Checkpoint]) -> list[float]:
    """Return the seconds between the starts of consecutive saves, incomplete ones included."""
    starts = sorted(one.start_ns for one in checkpoints if one.kind is Kind.SAVE)
    return [(later - earlier) / NS for earlier, later in pairwise(starts) if later > earlier]


def quantile(values: Iterable[_Number], share: float) -> _Number:
    """Return the `share` quantile of at least one value (nearest rank)."""
    ordered = sorted(values)
    rank = -int(-share * len(ordered) // 1)
    return ordered[min(len(ordered), max(1, rank)) - 1]


def busy_ns(checkpoints: Sequence[Checkpoint]) -> int:
    """Return the time in which at least one was running: the basis of their total throughput."""
    return union_ns((one.start_ns, one.end_ns) for one in checkpoints)


def union_ns(spans: Iterable[tuple[int, int]]) -> int:
    """Return the time covered by spans; overlaps count once."""
    total = 0
    reached: int | None = None
    for start, end in sorted(spans):
        uncovered = start if reached is None else max(start, reached)
        if end > uncovered:
            total += end - uncovered
            reached = end
    return total
