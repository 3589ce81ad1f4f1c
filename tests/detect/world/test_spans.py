"""Stretches of time: what is joined, cut and counted."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ckptprof.detect.world.spans import Span, clip, length, merged, overlap_ns

SPANS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda ends: (min(ends), max(ends))), max_size=8)


def test_spans_that_touch_or_are_near_become_one() -> None:
    """A gap is closed if it is no longer than was said."""
    assert merged([(10, 20), (0, 5), (5, 7), (12, 15)]) == [(0, 7), (10, 20)]
    assert merged([(10, 20), (0, 7)], gap_ns=3) == [(0, 20)]


def test_what_lies_outside_is_cut_off() -> None:
    """What only touches a frame leaves nothing."""
    assert clip([(0, 10), (20, 30)], [(5, 22), (30, 40)]) == [(5, 10), (20, 22)]


@given(SPANS, SPANS)
@settings(max_examples=60)
def test_what_is_cut_is_what_overlaps(spans: list[Span], frames: list[Span]) -> None:
    """Both ways to ask how much lies in frames give one answer, and merging neither adds nor loses a nanosecond."""
    one, other = merged(spans), merged(frames)
    pairs = [(max(low, first), min(high, last)) for low, high in spans for first, last in frames]

    assert sorted(clip(spans, frames)) == sorted(pair for pair in pairs if pair[0] < pair[1])
    assert length(clip(one, other)) == sum(overlap_ns(span, other) for span in one)
    assert length(one) == sum(any(low <= at < high for low, high in spans) for at in range(50))
