"""The figures of checkpoints, each defined once: every command, document and plan takes them from here.

A median, a mean and the like are `of_complete` ones: what was broken off tells neither how long a save takes nor how
fast it is. A sum is `of_all`. The words are in docs/glossary.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import TypeVar

from ckptprof.model import Checkpoint, Kind, Mode, Status
from ckptprof.units import speed

__all__ = [
    "busy_ns", "complete", "duration_ns", "duration_seconds", "intervals_seconds", "lost_seconds", "median", "of_all",
    "of_complete", "quantile", "rate_bytes_per_second", "size_bytes", "stall_seconds", "union_ns",
]  # fmt: skip

_SECOND_NS = 1_000_000_000
_Number = TypeVar("_Number", int, float)


def duration_ns(checkpoint: Checkpoint) -> int:
    """Return the time from the start of a checkpoint to its end."""
    return max(0, checkpoint.end_ns - checkpoint.start_ns)


def duration_seconds(checkpoint: Checkpoint) -> float:
    """Return the time from the start of a checkpoint to its end."""
    return duration_ns(checkpoint) / _SECOND_NS


def rate_bytes_per_second(checkpoint: Checkpoint) -> float | None:
    """Return the bytes of a checkpoint over its duration; None if it took no time."""
    return speed(checkpoint.bytes, duration_ns(checkpoint))


def size_bytes(checkpoint: Checkpoint) -> float:
    """Return the bytes that a checkpoint moved."""
    return float(checkpoint.bytes)


def stall_seconds(checkpoint: Checkpoint) -> float | None:
    """Return for how long training was blocked by a checkpoint; None if that was not seen."""
    held = checkpoint.stall_ns
    return held / _SECOND_NS if held is not None and held >= 0 else None


def lost_seconds(checkpoint: Checkpoint) -> float:
    """Return the seconds that training lost at most: the stall; where none was seen, all of it unless it was async."""
    held = stall_seconds(checkpoint)
    if held is not None:
        return held
    return 0.0 if checkpoint.mode is Mode.ASYNC else duration_ns(checkpoint) / _SECOND_NS


def complete(checkpoints: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Return those that were not broken off."""
    return [one for one in checkpoints if one.status is not Status.INCOMPLETE]


def of_complete(checkpoints: Iterable[Checkpoint], of: Callable[[Checkpoint], float | None]) -> list[float]:
    """Return a figure of each complete checkpoint of which it is known: for a median, a mean, a quantile."""
    return of_all(complete(checkpoints), of)


def of_all(checkpoints: Iterable[Checkpoint], of: Callable[[Checkpoint], float | None]) -> list[float]:
    """Return a figure of each checkpoint of which it is known: for a sum."""
    return [value for one in checkpoints if (value := of(one)) is not None and math.isfinite(value)]


def intervals_seconds(checkpoints: Iterable[Checkpoint]) -> list[float]:
    """Return the seconds from the start of each save to the start of the next; one that was broken off counts."""
    starts = sorted(one.start_ns for one in checkpoints if one.kind is Kind.SAVE)
    return [(later - earlier) / _SECOND_NS for earlier, later in pairwise(starts) if later > earlier]


def quantile(values: Iterable[_Number], share: float) -> _Number:
    """Return the value that at least `share` of one or more do not exceed (nearest rank: one that did happen)."""
    ordered = sorted(values)
    rank = -int(-share * len(ordered) // 1)
    return ordered[min(len(ordered), max(1, rank)) - 1]


def busy_ns(checkpoints: Sequence[Checkpoint]) -> int:
    """Return the time in which at least one of them ran: what the throughput of several is taken over."""
    return union_ns((one.start_ns, one.end_ns) for one in checkpoints)


def union_ns(spans: Iterable[tuple[int, int]]) -> int:
    """Return the time that spans cover; what overlaps counts once."""
    total = 0
    reached: int | None = None
    for start, end in sorted(spans):
        begin = start if reached is None else max(start, reached)
        if end > begin:
            total += end - begin
            reached = end
    return total
