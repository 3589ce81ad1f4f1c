"""Counters with their past: differences, the best second, steadiness, wraps and resets, whatever the pace of looks."""

from __future__ import annotations

import pytest

from ckptprof.detect.world.counter_history import CounterHistory

SECOND = 1_000_000_000
TICK = SECOND // 10


def grown(rate: float, seconds: float, *, idle_s: float = 0.0) -> CounterHistory:
    """Return a meter that stood still for a while, told nothing, and then grew evenly, looked at ten times a second."""
    meter = CounterHistory(2, rising=2, rated=(0,))
    meter.add(0, (100, 0))
    start = int(idle_s * SECOND)
    for tick in range(1, int(seconds * 10) + 1):
        meter.add(start + tick * TICK, (100 + int(rate * tick / 10), tick), start + (tick - 1) * TICK)
    return meter


def test_a_difference_is_interpolated_at_its_edges() -> None:
    """Edges lie between looks; outside of all looks nothing is invented."""
    meter = grown(1000, 3)

    assert meter.difference(SECOND // 2 + TICK // 2, SECOND) == pytest.approx((450, 4.5))
    assert meter.difference(2 * SECOND, 9 * SECOND) == pytest.approx((1000, 10))
    assert meter.difference(-5, -1) is None
    assert CounterHistory(2).difference(0, 9) is None


def test_what_was_not_told_had_not_changed() -> None:
    """A counter that stood still for a minute did not grow evenly in it."""
    meter = grown(1000, 2, idle_s=60)

    assert meter.difference(30 * SECOND, 60 * SECOND) == pytest.approx((0, 0))
    assert meter.difference(60 * SECOND, 61 * SECOND) == pytest.approx((1000, 10))


def test_the_best_second_is_found_wherever_it_lies() -> None:
    """Not at the edge of a bin: a burst of a second and a half between two lulls."""
    meter = CounterHistory(1, rising=1, rated=(0,))
    value = 0
    for tick in range(100):
        value += 90 if 33 <= tick < 48 else 5
        meter.add(tick * TICK, (value,), (tick - 1) * TICK)

    assert meter.peak_rate((0,), 0, 10 * SECOND) == pytest.approx(900)
    assert meter.best_rate(0) == pytest.approx(900, rel=0.02)
    assert meter.best_rate(0, 3 * SECOND) == pytest.approx(50, rel=0.02)
    assert meter.best_rate(0, -1) is None
    assert meter.peak_rate((0,), SECOND, SECOND) is None


def test_of_less_than_a_second_all_of_it_is_the_peak() -> None:
    """A save of half a second has no best second."""
    assert grown(1000, 3).peak_rate((0,), SECOND, SECOND + SECOND // 2) == pytest.approx(1000)


@pytest.mark.parametrize(("swing", "steady"), [(0, 1.0), (15, 1.0), (80, 0.0)])
def test_a_plateau_is_steady_and_a_swing_is_not(swing: int, steady: float) -> None:
    """What the rate does from half second to half second, against its median."""
    meter = CounterHistory(1)
    value = 0
    for tick in range(101):
        meter.add(tick * TICK, (value,), (tick - 1) * TICK)
        value += 100 + (swing if tick // 5 % 2 else -swing)

    assert meter.steadiness(0, 0, 10 * SECOND) == pytest.approx(steady)


def test_steadiness_is_of_the_active_time_and_none_of_an_instant() -> None:
    """A writer at one rate that only logs half of the time is steady; of a second nothing can be told."""
    meter = CounterHistory(1)
    value = 0
    for tick in range(101):
        meter.add(tick * TICK, (value,), (tick - 1) * TICK)
        value += 100 if tick < 50 else 4

    assert meter.steadiness(0, 0, 10 * SECOND) == 1.0
    assert meter.steadiness(0, 0, SECOND) is None
    assert meter.active_seconds(0, 0, 10 * SECOND, 50) == 5.0


def test_counters_of_32_bits_go_on_and_a_reset_begins_anew() -> None:
    """Milliseconds wrap; a device that was plugged in again has no past, but its best second stays."""
    meter = CounterHistory(2, rising=2, rated=(0,), wraps=(1,))
    meter.add(0, (0, 2**32 - 500))
    meter.add(SECOND, (1000, 500))
    assert meter.difference(0, SECOND) == (1000, 1000)

    meter.add(2 * SECOND, (7, 100))
    meter.add(3 * SECOND, (9, 110))
    assert meter.difference(0, 3 * SECOND) is None
    assert meter.difference(2 * SECOND, 3 * SECOND) == (2, 10)
    assert meter.best_rate(0) == 1000


def test_a_list_of_bests_stays_short() -> None:
    """A rate that creeps up for weeks is noted every two percent."""
    meter = CounterHistory(1, rising=1, rated=(0,))
    value = 0
    for number in range(5000):
        value += number
        meter.add(number * SECOND, (value,))

    assert 50 < len(meter._bests[0]) < 1000
    assert meter.best_rate(0) == pytest.approx(5000, rel=0.03)
