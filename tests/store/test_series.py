"""Joining, cutting and gridding of points: pure, so tested on lists."""

from __future__ import annotations

from ckptprof.store.series.strips import (
    Strip,
    join,
    merge_spans,
    remove_between,
    sample_on_grid,
    slice_between,
    slice_with_previous,
    thin_out,
)


def test_strips_become_one_in_the_order_of_time() -> None:
    """Overlaps are sorted, the later of two points at one time stays, a field that one strip lacks is None there."""
    one = join([Strip([5, 6], {"a": [1, 2]}), Strip([4, 5], {"a": [0, 9], "b": [7, 8]})])

    assert one == Strip([4, 5, 6], {"a": [0, 9, 2], "b": [7, 8, None]})


def test_a_cut_keeps_what_held_at_its_start() -> None:
    """The point before the start stays."""
    assert slice_with_previous(Strip([1, 5, 9, 12], {"a": [1, 2, 3, 4]}), 7, 11) == Strip([5, 9], {"a": [2, 3]})


def test_a_grid_holds_values_and_leaves_out_what_was_not_watched() -> None:
    """Between points the last value holds; outside of the spans, and before the first point, there is nothing."""
    strip = Strip([13, 24], {"a": [1, 2]})

    assert sample_on_grid(strip, 10, 0, 60, [(0, 35), (50, 100)]) == Strip([20, 30, 50, 60], {"a": [1, 2, 2, 2]})
    assert sample_on_grid(strip, 10, 0, 40, None) == Strip([20, 30, 40], {"a": [1, 2, 2]})


def test_spans_that_touch_are_one() -> None:
    """So that no time counts twice."""
    assert merge_spans([(5, 9), (1, 2), (2, 3), (6, 7)]) == [(1, 3), (5, 9)]


def test_parts_of_a_roll_up_are_replaced_and_chosen() -> None:
    """An hour is (start, end]."""
    strip = Strip([60, 120, 180], {"a": [1, 2, 3]})

    assert remove_between(strip, 60, 120) == Strip([60, 180], {"a": [1, 3]})
    assert slice_between(strip, 61, 180) == Strip([120, 180], {"a": [2, 3]})


def test_too_many_points_are_thinned_to_the_bound() -> None:
    """First and last stay; a strip within its bound is untouched."""
    strip = Strip(list(range(100)), {"a": list(range(100))})

    assert thin_out(strip, 160 * 2).times_ns == [
        0,
        5,
        10,
        15,
        20,
        25,
        30,
        35,
        40,
        45,
        50,
        55,
        60,
        65,
        70,
        75,
        80,
        85,
        90,
        95,
        99,
    ]
    assert thin_out(strip, 1600) is strip
