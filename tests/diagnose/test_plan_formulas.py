"""What holds for the formulas whatever the figures: units, monotonicity, limits, and each against brute force."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ckptprof.diagnose.plan import failures, intervals, sizes
from ckptprof.diagnose.plan.intervals import Losses

MTTF = st.floats(1, 1e9)
SHARES = st.floats(1e-9, 0.9)  # cost over MTTF
RECOVERY = st.floats(0, 1e6)
SIZES = st.floats(1, 1e18)
TIMES = st.floats(1e-3, 1e9)
quick = settings(max_examples=50)
FACTORS = st.floats(1e-6, 1e6)


@quick
@given(MTTF, SHARES, RECOVERY, FACTORS)
def test_units_do_not_matter(mttf: float, share: float, recovery: float, factor: float) -> None:
    """In minutes each formula gives minutes: all times times k make the answer times k."""
    cost = mttf * share
    scaled = (cost * factor, mttf * factor)

    for formula in (intervals.young, intervals.daly, intervals.daly_exact):
        assert formula(*scaled) == pytest.approx(factor * formula(cost, mttf), rel=1e-6)
    best = intervals.best_availability(cost, mttf, recovery)
    assert intervals.best_availability(*scaled, recovery * factor) == pytest.approx(factor * best, rel=1e-9)
    assert intervals.availability(best * factor, *scaled, recovery * factor) == pytest.approx(
        intervals.availability(best, cost, mttf, recovery), rel=1e-9, abs=1e-12
    )


@quick
@given(MTTF, SHARES, st.floats(1.001, 100))
def test_dearer_saves_and_rarer_failures_mean_longer_intervals(mttf: float, share: float, more: float) -> None:
    """In every formula."""
    cost = mttf * share / more

    for formula in (intervals.young, intervals.daly, intervals.daly_exact):
        assert formula(cost * more, mttf) > formula(cost, mttf)
        assert formula(cost, mttf * more) > formula(cost, mttf)
    assert intervals.best_availability(cost * more, mttf, 0) > intervals.best_availability(cost, mttf, 0)
    assert intervals.best_availability(cost, mttf * more, 0) > intervals.best_availability(cost, mttf, 0)
    assert intervals.best_availability(cost, mttf, mttf) > intervals.best_availability(cost, mttf, 0)


@quick
@given(MTTF, RECOVERY)
def test_free_saves_are_made_all_the_time(mttf: float, recovery: float) -> None:
    """C -> 0: the interval goes to 0, and what is lost to the restarts alone."""
    for formula in (intervals.young, intervals.daly, intervals.daly_exact):
        assert formula(0.0, mttf) == 0
    assert intervals.best_availability(0.0, mttf, recovery) == 0

    cost = mttf * 1e-12
    best = intervals.best_availability(cost, mttf, recovery)
    assert 1 - intervals.availability(best, cost, mttf, recovery) == pytest.approx(
        recovery / (mttf + recovery), abs=1e-5
    )


@quick
@given(TIMES)
def test_without_failures_only_the_stall_is_lost(cost: float) -> None:
    """M -> infinity: the interval grows without end, the loss at a fixed interval goes to C/T, at the best one to 0."""
    far = cost * 1e15
    best = intervals.best_availability(cost, far, 0)

    assert best > cost * 1e7
    assert 1 - intervals.availability(best, cost, far, 0) < 1e-6
    assert 1 - intervals.availability(100 * cost, cost, far, 0) == pytest.approx(0.01, rel=1e-6)


@quick
@given(MTTF, st.floats(1e-15, 1e-6))
def test_all_become_young_where_saves_are_cheap(mttf: float, share: float) -> None:
    """Daly's two and the availability formula differ from sqrt(2 C M) by the order of sqrt(C/M)."""
    cost = mttf * share
    young = intervals.young(cost, mttf)

    others = (
        intervals.daly(cost, mttf), intervals.daly_exact(cost, mttf), intervals.best_availability(cost, mttf, 0)
    )  # fmt: skip
    for other in others:
        assert young <= other * (1 + 1e-9)
        assert other == pytest.approx(young, rel=2 * math.sqrt(share))


@quick
@given(MTTF, st.floats(1e-12, 0.3))
def test_daly_series_follows_his_complete_model(mttf: float, share: float) -> None:
    """The higher order is within 1 % of the exact minimum up to a save of 30 % of the MTTF."""
    cost = mttf * share

    assert intervals.daly(cost, mttf) == pytest.approx(intervals.daly_exact(cost, mttf), rel=0.01)


def test_daly_beyond_twice_the_mttf() -> None:
    """There he takes the MTTF for the computing time, and the exact one comes near that."""
    assert intervals.daly(30.0, 10.0) == 40
    assert intervals.daly_exact(30.0, 10.0) == pytest.approx(40, rel=0.01)


def _model(period: float, cost: float, mttf: float) -> float:
    """Return the time that Daly's complete model takes for a unit of work, without the factor of recovery."""
    return mttf * math.expm1(period / mttf) / (period - cost)


@quick
@given(MTTF, st.floats(1e-6, 5), st.floats(1e-3, 0.5))
def test_exact_is_the_minimum_of_the_model(mttf: float, share: float, aside: float) -> None:
    """No period beside it takes less time."""
    cost = mttf * share
    best = intervals.daly_exact(cost, mttf)
    least = _model(best, cost, mttf)

    assert best > cost
    for tau in ((best - cost) * (1 - aside), (best - cost) * (1 + aside)):
        assert _model(tau + cost, cost, mttf) >= least * (1 - 1e-9)


@quick
@given(MTTF, SHARES, RECOVERY, st.floats(0.01, 100))
def test_best_availability_is_the_maximum(mttf: float, share: float, recovery: float, aside: float) -> None:
    """The closed form: no interval beside it keeps more."""
    cost = mttf * share
    best = intervals.best_availability(cost, mttf, recovery)
    most = intervals.availability(best, cost, mttf, recovery)

    assert 0 <= most < 1
    assert intervals.availability(cost + (best - cost) * aside, cost, mttf, recovery) <= most * (1 + 1e-9)


@quick
@given(TIMES, SHARES, MTTF, RECOVERY)
def test_losses_are_what_availability_leaves(interval: float, share: float, mttf: float, recovery: float) -> None:
    """Three parts, none negative, that sum to 1 less the availability."""
    cost = interval * share
    lost = intervals.losses(interval, cost, mttf, recovery)

    assert isinstance(lost, Losses)
    assert min(lost.stall_share, lost.redone_share, lost.restart_share) >= 0
    assert lost.lost_share == pytest.approx(lost.stall_share + lost.redone_share + lost.restart_share)
    assert 1 - lost.lost_share == pytest.approx(intervals.availability(interval, cost, mttf, recovery), abs=1e-9)


def test_no_losses_where_saves_overlap() -> None:
    """A save that takes longer than the interval is no plan."""
    assert intervals.losses(10, 11, 1000, 0) is None
    assert intervals.losses(0, 0, 1000, 0) is None
    assert intervals.availability(10, 11, 1000, 0) == 0


@quick
@given(MTTF, st.floats(1e-9, 0.1), st.floats(0, 1), st.floats(1e-4, 0.05))
def test_the_good_span_loses_what_it_says(mttf: float, share: float, restart: float, more: float) -> None:
    """Its ends lose exactly the share, what is inside less, what is outside more."""
    cost, recovery = mttf * share, mttf * restart
    best = intervals.best_availability(cost, mttf, recovery)
    target = 1 - intervals.availability(best, cost, mttf, recovery) + more
    assume(target < 0.95)
    span = intervals.as_good_as(target, cost, mttf, recovery)

    assert span is not None
    low, high = span
    assert cost < low <= best <= high
    for end in (low, high):
        assert 1 - intervals.availability(end, cost, mttf, recovery) == pytest.approx(target, rel=1e-6)
    assert 1 - intervals.availability(high * 1.01, cost, mttf, recovery) > target


@quick
@given(MTTF, st.floats(1e-3, 0.5), RECOVERY)
def test_nothing_is_better_than_the_best(mttf: float, share: float, recovery: float) -> None:
    """A share below the least has no interval; all of the time has any."""
    cost = mttf * share
    best = intervals.best_availability(cost, mttf, recovery)
    least = 1 - intervals.availability(best, cost, mttf, recovery)

    assert intervals.as_good_as(least * 0.99, cost, mttf, recovery) is None
    assert intervals.as_good_as(1.0, cost, mttf, recovery) == (cost, math.inf)


@quick
@given(MTTF, RECOVERY, st.floats(0.001, 0.45))
def test_affordable_cost_is_just_that(mttf: float, recovery: float, share: float) -> None:
    """At that cost the best interval has exactly that share of stall; for 5 % it is (M + R) / 180."""
    cost = intervals.affordable_cost(mttf, recovery, share)

    assert cost / intervals.best_availability(cost, mttf, recovery) == pytest.approx(share)
    assert intervals.affordable_cost(mttf, recovery) == pytest.approx((mttf + recovery) / 180)


@quick
@given(TIMES, MTTF)
def test_young_and_back(interval: float, mttf: float) -> None:
    """The cost for which an interval is the optimum."""
    assert intervals.young(intervals.young_cost(interval, mttf), mttf) == pytest.approx(interval)


@quick
@given(st.floats(1, 1e12), st.integers(1, 10**6), st.integers(2, 100))
def test_failures_add_up(each: float, gpus: int, times: int) -> None:
    """Twice the accelerators fail twice as often, and counting the failures gives the rate back."""
    mttf = failures.of_cluster(each, gpus)

    assert failures.of_cluster(each, gpus * times) == pytest.approx(mttf / times)
    assert failures.observed(times, times * mttf) == pytest.approx(mttf)


@quick
@given(SIZES, TIMES, st.floats(1.001, 1000))
def test_traffic(size: float, interval: float, more: float) -> None:
    """Twice the size is twice the traffic; a longer interval never more; the burst is 20 times size over interval."""
    assert sizes.bytes_per_day(size * more, interval) == pytest.approx(more * sizes.bytes_per_day(size, interval))
    assert sizes.saves_per_day(interval * more) <= sizes.saves_per_day(interval)
    assert sizes.saves_per_day(interval) - 1 <= sizes.DAY_SECONDS / interval <= sizes.saves_per_day(interval) + 1e-6
    assert sizes.average_rate(size, interval) >= size / interval * (1 - 1e-9)
    assert sizes.burst_rate(size, interval) == pytest.approx(20 * size / interval)


@pytest.mark.parametrize(("hours", "saves"), [(1, 24), (24, 1), (48, 0.5), (0.1, 240), (7, 4)])
def test_whole_days(hours: float, saves: float) -> None:
    """A save each hour is 24 a day, not 25 by the rounding of floats; one every other day is half of one."""
    assert sizes.saves_per_day(hours * 3600) == saves


@quick
@given(SIZES, st.floats(1e-3, 1e3), TIMES, st.none() | st.integers(1, 1000))
def test_filling(size: float, ratio: float, interval: float, keep: int | None) -> None:
    """The save that does not fit is the one after those that do; with few enough kept there is none."""
    found = sizes.fill(size * ratio, size, interval, keep)

    assert found.fitting * size <= found.free_bytes * (1 + 1e-6)
    assert (found.fitting + 1) * size >= found.free_bytes * (1 - 1e-6)
    if found.full_after_seconds is None:
        assert keep is not None
        assert found.kept_bytes is not None
        assert found.kept_bytes <= found.free_bytes * (1 + 1e-6)
    else:
        assert found.full_after_seconds == pytest.approx((found.fitting + 1) * interval)


@quick
@given(st.floats(1, 1e15), st.floats(0.1, 100), st.integers(1, 10**6))
def test_sizes(parameters: float, each: float, ranks: int) -> None:
    """Bytes are parameters times bytes, and the ranks' parts sum to them."""
    size = sizes.from_parameters(parameters, each)

    assert size == parameters * each
    assert sizes.from_parameters(parameters) == 14 * parameters
    assert sizes.per_rank(size, ranks) * ranks == pytest.approx(size)


@quick
@given(TIMES, TIMES)
def test_steps(interval: float, step: float) -> None:
    """As many whole ones as fit, but one at least."""
    steps = intervals.whole_steps(interval, step)

    assert steps >= 1
    assert steps == 1 or steps * step <= interval * (1 + 1e-9)
    assert (steps + 1) * step > interval * (1 - 1e-9)
