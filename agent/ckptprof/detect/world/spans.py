"""Stretches of time: joined, cut to others, and measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Span = tuple[int, int]  # start and end in ns of CLOCK_MONOTONIC, the end excluded


def merged(spans: Iterable[Span], gap_ns: int = 0) -> list[Span]:
    """Return the spans in order; those that overlap, touch or are at most `gap_ns` apart become one."""
    made: list[Span] = []
    for start_ns, end_ns in sorted(spans):
        if made and start_ns - made[-1][1] <= gap_ns:
            made[-1] = (made[-1][0], max(made[-1][1], end_ns))
        else:
            made.append((start_ns, end_ns))
    return made


def cut(spans: Iterable[Span], frames: Sequence[Span]) -> list[Span]:
    """Return the parts of spans that lie in frames."""
    pairs = ((max(start_ns, low_ns), min(end_ns, high_ns)) for start_ns, end_ns in spans for low_ns, high_ns in frames)
    return [pair for pair in pairs if pair[0] < pair[1]]


def length(spans: Iterable[Span]) -> int:
    """Return how many nanoseconds spans have together; what two of them share counts twice."""
    return sum(end_ns - start_ns for start_ns, end_ns in spans)


def overlap_ns(span: Span, frames: Iterable[Span]) -> int:
    """Return how much of a span lies in frames that do not overlap one another."""
    start_ns, end_ns = span
    return sum(max(0, min(end_ns, high_ns) - max(start_ns, low_ns)) for low_ns, high_ns in frames)
