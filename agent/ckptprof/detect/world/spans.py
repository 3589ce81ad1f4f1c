"""Spans of time, or of a file, and what several of them have in common: the one place that joins and cuts them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Span = tuple[int, int]  # from, to


def merged(spans: Iterable[Span], gap_ns: int = 0) -> list[Span]:
    """Return the spans in order, those that overlap or are that near one another as one."""
    made: list[Span] = []
    for start, end in sorted(spans):
        if made and start - made[-1][1] <= gap_ns:
            made[-1] = (made[-1][0], max(made[-1][1], end))
        else:
            made.append((start, end))
    return made


def cut(spans: Iterable[Span], frames: Sequence[Span]) -> list[Span]:
    """Return the parts of spans that lie in frames; neither overlap among themselves."""
    pairs = ((max(span[0], frame[0]), min(span[1], frame[1])) for span in spans for frame in frames)
    return [pair for pair in pairs if pair[0] < pair[1]]


def length(spans: Iterable[Span]) -> int:
    """Return how long spans are that do not overlap."""
    return sum(end - start for start, end in spans)


def overlap_ns(span: Span, frames: Iterable[Span]) -> int:
    """Return how much of a span lies in frames, which do not overlap."""
    return sum(max(0, min(span[1], frame[1]) - max(span[0], frame[0])) for frame in frames)
