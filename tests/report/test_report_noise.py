"""The interval around a shift: against published tables, against counting, and on what chance does."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptprof.report import noise

_VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)


@pytest.mark.parametrize(
    ("first", "second", "critical"),
    [(4, 4, 0), (5, 5, 2), (3, 5, 0), (8, 8, 13), (10, 10, 23), (6, 12, 14), (20, 20, 127), (3, 3, None), (2, 7, None)],
)
def test_the_interval_begins_where_tables_say(first: int, second: int, critical: int | None) -> None:
    """Critical values of Mann and Whitney's U, two-sided at 0.05, as every textbook prints them."""
    assert noise._place(first, second) == critical


def test_orders_are_counted_right() -> None:
    """All orders of small sets, counted one by one."""
    for first, second in ((1, 1), (2, 3), (4, 3)):
        counts = [0] * (first * second + 1)
        for chosen in itertools.combinations(range(first + second), first):
            counts[sum(place - rank for rank, place in enumerate(chosen))] += 1
        assert list(noise._ways(first, second)) == counts
        assert sum(counts) == math.comb(first + second, first)


def test_too_few_tell_nothing() -> None:
    """With three on both sides no order is rare enough; with four one is."""
    assert noise.least_values() == 4
    three = noise.shift([1, 2, 3], [101, 102, 103])
    four = noise.shift([1, 2, 3, 4], [101, 102, 103, 104])

    assert three is not None
    assert four is not None
    assert (three.estimate, three.has_interval, three.is_significant) == (100, False, False)
    assert (four.estimate, four.low, four.high, four.is_significant) == (100, 97, 103, True)


@pytest.mark.parametrize("sizes", [(6, 8), (30, 40)])
def test_chance_is_rarely_told_as_a_difference(sizes: tuple[int, int]) -> None:
    """Of sets of one source about 5 in 100 differ, exact and approximated alike; a real shift is found."""
    source = random.Random(7)  # noqa: S311 # no secret
    found = [noise.shift(*([source.expovariate(1) for _ in range(n)] for n in sizes)) for _ in range(400)]
    moved = [
        noise.shift([source.gauss(10, 1) for _ in range(sizes[0])], [source.gauss(14, 1) for _ in range(sizes[1])])
        for _ in range(50)
    ]

    assert 2 <= sum(one.is_significant for one in found if one) <= 40
    assert all(one.is_significant for one in moved if one)


@given(_VALUES, _VALUES)
def test_the_estimate_lies_in_its_interval(before: list[float], after: list[float]) -> None:
    """And the other way round the sign turns."""
    there, back = noise.shift(before, after), noise.shift(after, before)
    assert there is not None
    assert back is not None

    assert there.estimate == pytest.approx(-back.estimate)
    assert there.low is None or there.high is None or there.low <= there.estimate <= there.high


def test_many_values_are_thinned() -> None:
    """Thousands cost no more than hundreds; what is no number is left out, and nothing is nothing."""
    many = noise.shift(range(20_000), [value + 5000 for value in range(20_000)])

    assert many.estimate == pytest.approx(5000, abs=60)
    assert noise.shift([], [1.0]) == noise.Shift()
    assert noise.shift([math.nan], [1.0]) == noise.Shift()
    assert noise.shift([1.0, math.inf], [2.0]) == noise.Shift(estimate=1.0, low=None, high=None)


@given(st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=12), st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=12))
def test_a_ratio_is_told_where_a_shift_is(before: list[float], after: list[float]) -> None:
    """Order decides both; no share is under -100 %, and what was nothing has none."""
    shift, ratio = noise.shift(before, after), noise.ratio(before, after)
    assert ratio.estimate is not None

    assert ratio.estimate > -1
    assert ratio.has_interval == shift.has_interval
    assert len({*before, *after}) < len(before) + len(after) or ratio.is_significant == shift.is_significant
    assert noise.ratio([*before, 0.0], after) == noise.Shift()
    assert noise.ratio([], after) == noise.Shift()
