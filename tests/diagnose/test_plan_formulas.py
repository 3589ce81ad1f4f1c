"""What holds for the formulas whatever the figures: units, monotonicity, limits, and each against brute force."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ckptprof.diagnose.plan import intervals
from ckptprof.diagnose.plan.basis import GivenFigures
from ckptprof.diagnose.plan.checkpoint_plan import DAY_SECONDS, plan, saves_per_day
from ckptprof.diagnose.plan.intervals import Losses

MTTF = st.floats(1, 1e9)
SHARES = st.floats(1e-9, 0.9)  # cost over MTTF
RECOVERY = st.floats(0, 1e6)
TIMES = st.floats(1e-3, 1e9)
quick = settings(max_examples=50)
FACTORS = st.floats(1e-6, 1e6)
FORMULAS = (intervals.young, intervals.daly_exact)


def availability(interval: float, cost: float, mttf: float, recovery: float) -> float:
    """Return the share of time that is progress, as published (arXiv 2410.18124)."""
    return 0.0 if interval <= cost else (1 - cost / interval) * mttf / (mttf + recovery + interval / 2)


@quick
@given(MTTF, SHARES, RECOVERY, FACTORS)
def test_units_do_not_matter(mttf: float, share: float, recovery: float, factor: float) -> None:
    """In minutes each formula gives minutes: all times times k make the answer times k."""
    cost = mttf * share
    scaled = (cost * factor, mttf * factor)

    for formula in FORMULAS:
        assert formula(*scaled) == pytest.approx(factor * formula(cost, mttf), rel=1e-6)
    best = intervals.best_availability(cost, mttf, recovery)
    assert intervals.best_availability(*scaled, recovery * factor) == pytest.approx(factor * best, rel=1e-9)
    assert availability(best * factor, *scaled, recovery * factor) == pytest.approx(
        availability(best, cost, mttf, recovery), rel=1e-9, abs=1e-12
    )


@quick
@given(MTTF, SHARES, st.floats(1.001, 100))
def test_dearer_saves_and_rarer_failures_mean_longer_intervals(mttf: float, share: float, more: float) -> None:
    """In every formula."""
    cost = mttf * share / more

    for formula in FORMULAS:
        assert formula(cost * more, mttf) > formula(cost, mttf)
        assert formula(cost, mttf * more) > formula(cost, mttf)
    assert intervals.best_availability(cost * more, mttf, 0) > intervals.best_availability(cost, mttf, 0)
    assert intervals.best_availability(cost, mttf * more, 0) > intervals.best_availability(cost, mttf, 0)
    assert intervals.best_availability(cost, mttf, mttf) > intervals.best_availability(cost, mttf, 0)


@quick
@given(MTTF, RECOVERY)
def test_free_saves_are_made_all_the_time(mttf: float, recovery: float) -> None:
    """C -> 0: the interval goes to 0, and what is lost to the restarts alone."""
    for formula in FORMULAS:
        assert formula(0.0, mttf) == 0
    assert intervals.best_availability(0.0, mttf, recovery) == 0

    cost = mttf * 1e-12
    best = intervals.best_availability(cost, mttf, recovery)
    assert 1 - availability(best, cost, mttf, recovery) == pytest.approx(recovery / (mttf + recovery), abs=1e-5)


@quick
@given(TIMES)
def test_without_failures_only_the_stall_is_lost(cost: float) -> None:
    """M -> infinity: the interval grows without end, the loss at a fixed interval goes to C/T, at the best one to 0."""
    far = cost * 1e15
    best = intervals.best_availability(cost, far, 0)

    assert best > cost * 1e7
    assert 1 - availability(best, cost, far, 0) < 1e-6
    assert 1 - availability(100 * cost, cost, far, 0) == pytest.approx(0.01, rel=1e-6)


@quick
@given(MTTF, st.floats(1e-15, 1e-6))
def test_all_become_young_where_saves_are_cheap(mttf: float, share: float) -> None:
    """Daly's and the availability formula differ from sqrt(2 C M) by the order of sqrt(C/M)."""
    cost = mttf * share
    young = intervals.young(cost, mttf)

    for other in (intervals.daly_exact(cost, mttf), intervals.best_availability(cost, mttf, 0)):
        assert young <= other * (1 + 1e-9)
        assert other == pytest.approx(young, rel=2 * math.sqrt(share))


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
    most = availability(best, cost, mttf, recovery)

    assert 0 <= most < 1
    assert availability(cost + (best - cost) * aside, cost, mttf, recovery) <= most * (1 + 1e-9)


@quick
@given(TIMES, SHARES, MTTF, RECOVERY)
def test_losses_are_what_availability_leaves(interval: float, share: float, mttf: float, recovery: float) -> None:
    """Three parts, none negative, that sum to 1 less the availability."""
    cost = interval * share
    lost = intervals.losses(interval, cost, mttf, recovery)

    assert isinstance(lost, Losses)
    assert min(lost.stall_share, lost.redone_share, lost.restart_share) >= 0
    assert lost.lost_share == pytest.approx(lost.stall_share + lost.redone_share + lost.restart_share)
    assert 1 - lost.lost_share == pytest.approx(availability(interval, cost, mttf, recovery), abs=1e-9)


def test_no_losses_where_saves_overlap() -> None:
    """A save that takes longer than the interval is no plan."""
    assert intervals.losses(10, 11, 1000, 0) is None
    assert intervals.losses(0, 0, 1000, 0) is None
    assert availability(10, 11, 1000, 0) == 0


@quick
@given(MTTF, st.floats(1e-9, 0.1), st.floats(0, 1), st.floats(1e-4, 0.05))
def test_the_good_span_loses_what_it_says(mttf: float, share: float, restart: float, more: float) -> None:
    """Its ends lose exactly the share, what is inside less, what is outside more."""
    cost, recovery = mttf * share, mttf * restart
    best = intervals.best_availability(cost, mttf, recovery)
    target = 1 - availability(best, cost, mttf, recovery) + more
    assume(target < 0.95)
    span = intervals.as_good_as(target, cost, mttf, recovery)

    assert span is not None
    low, high = span
    assert cost < low <= best <= high
    for end in (low, high):
        assert 1 - availability(end, cost, mttf, recovery) == pytest.approx(target, rel=1e-6)
    assert 1 - availability(high * 1.01, cost, mttf, recovery) > target


@quick
@given(MTTF, st.floats(1e-3, 0.5), RECOVERY)
def test_nothing_is_better_than_the_best(mttf: float, share: float, recovery: float) -> None:
    """A share below the least has no interval; all of the time has any."""
    cost = mttf * share
    best = intervals.best_availability(cost, mttf, recovery)
    least = 1 - availability(best, cost, mttf, recovery)

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
@given(st.floats(1, 1e9), st.integers(1, 10**6), st.integers(2, 100))
def test_failures_add_up(each: float, gpus: int, times: int) -> None:
    """Twice the accelerators fail twice as often, and counting the failures gives the rate back."""
    few, many = (
        plan(GivenFigures(mttf_per_gpu_seconds=each * 1e6, gpus=gpus * by)).basis.mttf.value for by in (1, times)
    )

    assert many == pytest.approx(few / times)


@quick
@given(st.floats(1, 1e15), st.floats(1, 1e5), st.floats(1.001, 1000))
def test_traffic(size: float, mttf: float, more: float) -> None:
    """Twice the size is twice the traffic; a longer interval never more; the burst is 20 times size over interval."""
    made = plan(GivenFigures(size_bytes=size, mttf_seconds=mttf))
    double = plan(GivenFigures(size_bytes=2 * size, mttf_seconds=mttf)).traffic
    interval = mttf / 20

    assert made.traffic is not None
    assert double is not None
    assert double.bytes_per_day == pytest.approx(2 * made.traffic.bytes_per_day)
    assert saves_per_day(interval * more) <= saves_per_day(interval)
    assert saves_per_day(interval) - 1 <= DAY_SECONDS / interval <= saves_per_day(interval) + 1e-6
    assert made.traffic.average_bytes_per_second >= size / interval * (1 - 1e-9)
    assert made.traffic.burst_bytes_per_second == pytest.approx(20 * size / interval)


@pytest.mark.parametrize(("hours", "saves"), [(1, 24), (24, 1), (48, 0.5), (0.1, 240), (7, 4)])
def test_whole_days(hours: float, saves: float) -> None:
    """A save each hour is 24 a day, not 25 by the rounding of floats; one every other day is half of one."""
    assert saves_per_day(hours * 3600) == saves


@quick
@given(st.floats(1, 1e15), st.floats(1e-3, 1e3), st.floats(1, 1e5), st.none() | st.integers(1, 1000))
def test_filling(size: float, ratio: float, mttf: float, keep: int | None) -> None:
    """The save that does not fit is the one after those that do; with few enough kept there is none."""
    found = plan(GivenFigures(size_bytes=size, mttf_seconds=mttf, free_bytes=size * ratio, keep=keep)).filling

    assert found is not None
    assert found.fitting * size <= found.free_bytes * (1 + 1e-6)
    assert (found.fitting + 1) * size >= found.free_bytes * (1 - 1e-6)
    if found.full_after_seconds is None:
        assert keep is not None
        assert found.retained_bytes is not None
        assert found.retained_bytes <= found.free_bytes * (1 + 1e-6)
    else:
        assert found.full_after_seconds == pytest.approx((found.fitting + 1) * mttf / 20)


@quick
@given(st.floats(1e-6, 1e9), st.floats(1e-6, 1e9))
def test_steps(mttf: float, step: float) -> None:
    """As many whole ones as fit, but one at least."""
    assume(mttf > 1e-3)
    advice = plan(GivenFigures(mttf_seconds=mttf, step_seconds=step)).advice

    assert advice is not None
    assert advice.steps is not None
    assert advice.steps >= 1
    assert advice.steps == 1 or advice.steps * step <= advice.interval_seconds * (1 + 1e-9)
    assert (advice.steps + 1) * step > advice.interval_seconds * (1 - 1e-9)
