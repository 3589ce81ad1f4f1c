"""How a process that trains on GPUs fared while others wrote: by how busy they were, against what is usual."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from statistics import median

from ckptprof.detect.world.spans import Span, cut, length, overlap_ns

REACH_NS = 20_000_000_000  # before a save, or after it: so far lies what is usual
_LEAST_POINTS = 5
_LEAST_PERCENT = 10  # a GPU that hardly does anything tells nothing by doing nothing
_IDLE = 0.2  # of what is usual
_OFTEN = 0.3  # of the time: who idles so often may do so now for another reason
_LONGEST_NS = 2_000_000_000  # that one point may speak for


def idle_spans(points: list[tuple[int, int]], frames: list[Span], in_save: Callable[[int], bool]) -> list[Span] | None:
    """Return when a GPU stood still within `frames`; None if that cannot be told.

    Points are (end of a period in ns, percent of it in which a kernel ran); those `in_save` are not usual.
    """
    if not frames or not points:
        return None
    start_ns = min(frame[0] for frame in frames)
    periods = [
        (max(before[0], after[0] - _LONGEST_NS), after[0], after[1]) for before, after in pairwise(sorted(points))
    ]
    usual = [
        percent
        for low_ns, high_ns, percent in periods
        if start_ns - REACH_NS <= low_ns and high_ns <= start_ns and not in_save(low_ns) and not in_save(high_ns)
    ]
    if len(usual) < _LEAST_POINTS or median(usual) < _LEAST_PERCENT:
        return None
    least = _IDLE * median(usual)
    if sum(percent < least for percent in usual) > _OFTEN * len(usual):
        return None
    if sum(overlap_ns(period[:2], frames) for period in periods) * 2 < length(frames):
        return None
    return cut([period[:2] for period in periods if period[2] < least], frames)
