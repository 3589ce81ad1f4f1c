"""Spans of time: merged, clipped to others, and measured."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate

Span = tuple[int, int]  # start and end in ns of CLOCK_MONOTONIC, the end excluded


def merged(spans: Iterable[Span], gap_ns: int = 0) -> list[Span]:
    """Merge spans, in order; those that overlap, touch or are at most `gap_ns` apart become one."""
    result: list[Span] = []
    for start_ns, end_ns in sorted(spans):
        if result and start_ns - result[-1][1] <= gap_ns:
            result[-1] = (result[-1][0], max(result[-1][1], end_ns))
        else:
            result.append((start_ns, end_ns))
    return result


def clip(spans: Iterable[Span], frames: Iterable[Span]) -> list[Span]:
    """Cut the spans down to the parts of them within `frames`: O(log n) for each, and for each overlap."""
    ordered = sorted(frames)
    ends = list(accumulate((end_ns for _, end_ns in ordered), max))
    pairs = (
        (max(start_ns, low_ns), min(end_ns, high_ns))
        for start_ns, end_ns in spans
        for low_ns, high_ns in ordered[bisect_right(ends, start_ns) : bisect_left(ordered, (end_ns,))]
    )
    return [pair for pair in pairs if pair[0] < pair[1]]


def length(spans: Iterable[Span]) -> int:
    """Total length in nanoseconds; overlaps count twice."""
    return sum(end_ns - start_ns for start_ns, end_ns in spans)


def overlap_ns(span: Span, frames: Iterable[Span]) -> int:
    """Length of a span within frames that do not overlap one another."""
    start_ns, end_ns = span
    return sum(max(0, min(end_ns, high_ns) - max(start_ns, low_ns)) for low_ns, high_ns in frames)


class LatestEnds:
    """The latest end among many spans that started before a time; O(log n)."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []  # ascending, too: a span that starts and ends earlier than another is dropped

    def add(self, span: Span) -> None:
        """Add a span; one within another is ignored, and those within it are dropped."""
        start_ns, end_ns = span
        at = bisect_left(self._starts, start_ns)
        if at and self._ends[at - 1] >= end_ns:
            return
        hidden = bisect_right(self._ends, end_ns, at)
        self._starts[at:hidden], self._ends[at:hidden] = [start_ns], [end_ns]

    def before(self, at_ns: int) -> int:
        """Latest end of the spans that started before a time; 0 if there is none."""
        at = bisect_left(self._starts, at_ns)
        return self._ends[at - 1] if at else 0


class OverlapWeights:
    """Total weight of those of many spans that overlap a frame; O(log n).

    A span overlaps a frame if it starts before the frame's end and ends after its start.
    """

    def __init__(self, weighed: Iterable[tuple[Span, int]]) -> None:
        """Spans without length overlap nothing."""
        own = [(span, weight) for span, weight in weighed if span[0] < span[1]]
        starts, ends = (sorted((span[at], weight) for span, weight in own) for at in (0, 1))
        self._starts, self._ends = [at_ns for at_ns, _ in starts], [at_ns for at_ns, _ in ends]
        self._started_weights = [0, *accumulate(weight for _, weight in starts)]
        self._ended_weights = [0, *accumulate(weight for _, weight in ends)]

    def weight(self, frame: Span) -> int:
        """Total weight of the spans that overlap a frame."""
        start_ns, end_ns = frame
        if start_ns >= end_ns:
            return 0
        return (
            self._started_weights[bisect_left(self._starts, end_ns)]
            - self._ended_weights[bisect_right(self._ends, start_ns)]
        )
