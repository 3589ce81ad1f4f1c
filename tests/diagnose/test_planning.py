"""The plan as a whole: what it advises, from what, and what it refuses."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptprof.diagnose.plan import intervals
from ckptprof.diagnose.plan.basis import GivenFigures, MeasuredFigures, Origin, SourcedFigure
from ckptprof.diagnose.plan.checkpoint_plan import CheckpointPlan, plan, saves_per_day
from ckptprof.errors import UsageError

HOUR = 3600.0
_MEDIANS: dict[str, Any] = {
    name: SourcedFigure(value=value, origin=Origin.MEASURED, text=f"median {name}")
    for name, value in (("size", 1e12), ("cost", 20.0), ("duration", 25.0), ("interval", 1800.0), ("restore", 60.0))
}
MEASURED = MeasuredFigures(job="train.py", saves=7, costs=7, other_jobs=0, ranks=8, **_MEDIANS)


def numbers(value: Any) -> list[float]:
    """Return all numbers of a plan."""
    if isinstance(value, dict):
        return [number for item in value.values() for number in numbers(item)]
    if isinstance(value, list):
        return [number for item in value for number in numbers(item)]
    return [value] if isinstance(value, (int, float)) and not isinstance(value, bool) else []


def test_all_measured() -> None:
    """A recorded job needs nothing but the failures, and what those are assumed from is told."""
    made = plan(GivenFigures(), MEASURED)
    basis = made.basis

    assert (basis.size, basis.cost, basis.duration) == (MEASURED.size, MEASURED.cost, MEASURED.duration)
    assert (basis.interval, basis.restore) == (MEASURED.interval, MEASURED.restore)
    assert basis.gpus == SourcedFigure(value=8, origin=Origin.ASSUMED, text="one per observed rank")
    assert basis.mttf.origin is Origin.ASSUMED
    assert "49,600 h per GPU" in basis.mttf.text
    assert basis.recovery_seconds == 300 + 60 + 5
    assert made.advice.rule == "availability"
    assert made.traffic is not None
    assert made.traffic.measured_bytes_per_second == 4e10
    assert made.traffic.reached_tier == "High"


def test_given_goes_before_measured() -> None:
    """Each figure by itself."""
    wishes = GivenFigures(
        size_bytes=2e12, gpus=64, cost_seconds=10, interval_seconds=600, restart_seconds=0,
        mttf_seconds=2 * HOUR, read_bytes_per_second=1e11,
    )  # fmt: skip
    basis = plan(wishes, MEASURED).basis

    assert [f.value for f in (basis.size, basis.gpus, basis.cost, basis.interval) if f] == [2e12, 64, 10, 600]
    assert basis.restart == SourcedFigure(value=0, origin=Origin.GIVEN)
    assert basis.mttf == SourcedFigure(value=7200, origin=Origin.GIVEN)
    assert basis.restore is not None
    assert (basis.restore.value, basis.restore.origin) == (20, Origin.DERIVED)


def test_what_a_given_size_does_to_a_measured_cost() -> None:
    """It is used, and said to be of another size."""
    same = plan(GivenFigures(size_bytes=1.1e12), MEASURED)
    other = plan(GivenFigures(size_bytes=4e12), MEASURED)

    assert not any("another size" in note for note in same.notes)
    assert any("another size; this one is 4 times as large" in note for note in other.notes)


def test_size_of_one_host_is_not_the_job() -> None:
    """Eight ranks were seen of 64 GPUs."""
    made = plan(GivenFigures(gpus=64), MEASURED)

    assert any("recorded for 8 ranks" in note for note in made.notes)
    assert not any("recorded for" in note for note in plan(GivenFigures(gpus=8), MEASURED).notes)
    alone = plan(GivenFigures(gpus=64), msgspec.structs.replace(MEASURED, ranks=1))
    assert any("recorded for 1 rank;" in note for note in alone.notes)


def test_cost_from_the_speed_of_storage() -> None:
    """A sync save on 65 GB/s, a restore at 90."""
    made = plan(
        GivenFigures(size_bytes=6.5e12, write_bytes_per_second=65e9, read_bytes_per_second=65e9, mttf_seconds=HOUR)
    )

    assert made.basis.cost is not None
    assert (made.basis.cost.value, made.basis.cost.origin) == (100, Origin.DERIVED)
    assert made.basis.recovery_seconds == 300 + 100


def test_async_save_is_bounded_by_its_writing() -> None:
    """It holds 50 ms, but takes 10 min: by its cost it would be made each 30 s, which cannot be."""
    made = plan(GivenFigures(cost_seconds=0.05, duration_seconds=600, mttf_seconds=3 * HOUR))
    advised = [rule for rule in made.rules if rule.advised]

    assert made.advice.interval_seconds == 600
    assert "a shorter interval" in made.advice.reason
    assert [rule.interval_seconds for rule in advised] == [600]
    assert made.basis.background_seconds == pytest.approx(599.95)
    assert made.advice.good_from_seconds == 600
    assert any("falls back to the previous save" in note for note in made.notes)


def test_saves_that_cost_nothing() -> None:
    """A measured stall of 0 gives a plan, and no division by it."""
    free = msgspec.structs.replace(
        MEASURED,
        cost=SourcedFigure(value=0.0, origin=Origin.MEASURED),
        duration=SourcedFigure(value=5.0, origin=Origin.MEASURED),
    )
    made = plan(GivenFigures(mttf_seconds=HOUR), free)
    nothing = plan(GivenFigures(mttf_seconds=HOUR), msgspec.structs.replace(free, duration=None))

    assert made.advice.interval_seconds == 5
    assert nothing.advice.interval_seconds == HOUR / 20
    assert nothing.advice.losses is not None
    assert all(rule.interval_seconds > 0 for rule in (*made.rules, *nothing.rules))


def test_unknown_cost() -> None:
    """Micron's rule, and nothing that would need the cost."""
    made = plan(GivenFigures(mttf_seconds=HOUR, interval_seconds=900), msgspec.structs.replace(MEASURED, cost=None))

    assert made.advice.rule == "20 per MTTF"
    assert made.advice.losses is None
    assert made.advice.lost_today_share is None
    assert [rule.name for rule in made.rules] == ["20 per MTTF", "today"]
    assert {rule.stall_share for rule in made.rules} == {None}
    assert all(rule.redone_share for rule in made.rules)


def test_today_against_the_advice() -> None:
    """What going over gains, in GPU-hours; an interval that is too short for the save has no loss to tell."""
    made = plan(GivenFigures(gpus=1000, cost_seconds=30, interval_seconds=4 * HOUR))
    short = plan(GivenFigures(gpus=1000, cost_seconds=30, interval_seconds=20))

    assert made.advice.losses is not None
    assert made.advice.lost_today_share is not None
    gained = (made.advice.lost_today_share - made.advice.losses.lost_share) * 24_000
    assert made.advice.gained_gpu_hours_per_day == pytest.approx(gained)
    assert gained > 0
    assert short.advice.lost_today_share is None
    assert next(rule for rule in short.rules if rule.name == "today").stall_share == 1.5


def test_an_interval_is_advised_with_those_that_are_as_good() -> None:
    """At both ends of them half a percent more of the time is lost."""
    advice = plan(GivenFigures(mttf_seconds=HOUR, cost_seconds=30)).advice
    assert advice.losses is not None
    for end in (advice.good_from_seconds, advice.good_until_seconds):
        lost = intervals.losses(end or 0.0, 30, HOUR, advice.recovery_seconds)
        assert lost is not None
        assert lost.lost_share == pytest.approx(advice.losses.lost_share + 0.005)


def test_the_least_and_the_most_that_a_plan_is_made_from() -> None:
    """Three saves that are complete, and failures three thousand years apart; or the ranks of a whole node."""
    for saves, missing in ((2, True), (3, False)):
        found = msgspec.structs.replace(MEASURED, saves=saves, costs=saves)
        assert ("at least 3" in str(plan(GivenFigures(mttf_seconds=9e10), found).missing)) is missing
    for ranks, missing in ((7, True), (8, False)):
        found = msgspec.structs.replace(MEASURED, ranks=ranks)
        assert (plan(GivenFigures(), found).missing is not None) is missing


def test_saves_of_a_day_are_whole_whatever_the_digits() -> None:
    """The noise of a division is no save more; a ten-thousandth of one is."""
    assert [saves_per_day(86_400 / each) for each in (106_815, 1.0004, 0.5)] == [106_815, 2, 0.5]


@pytest.mark.parametrize(("keep", "days"), [(None, 21 / 24), (3, None), (19, None), (20, 21 / 24)])
def test_directory(keep: int | None, days: float | None) -> None:
    """20 saves of 5 TB fit in 100 TB: with 19 kept there is room for the one that is written, with 20 not."""
    made = plan(GivenFigures(size_bytes=5e12, mttf_seconds=20 * HOUR, free_bytes=1e14, keep=keep))

    assert made.advice.interval_seconds == HOUR
    assert made.filling is not None
    assert made.filling.fitting == 20
    assert made.filling.full_after_seconds == (None if days is None else pytest.approx(days * 86_400))


@pytest.mark.parametrize(
    ("wishes", "reason"),
    [
        (
            GivenFigures(cost_seconds=7201, mttf_seconds=7200),
            "blocks training for 7,201 s, but failures are only 7,200 s apart",
        ),
        (GivenFigures(cost_seconds=7200, mttf_seconds=7200), "most saves would never complete"),
        (GivenFigures(cost_seconds=1, duration_seconds=7200, mttf_seconds=7200), "a save takes 7,200 s"),
        (GivenFigures(cost_seconds=9, duration_seconds=8, mttf_seconds=7200), "cannot be complete after 8 s"),
        (GivenFigures(cost_seconds=10), "the failure rate is unknown"),
        (GivenFigures(cost_seconds=0, gpus=8), "--cost must be more than 0"),
        (GivenFigures(cost_seconds=-1, gpus=8), "--cost must be more than 0"),
        (GivenFigures(cost_seconds=math.nan, gpus=8), "--cost is not a number"),
        (GivenFigures(cost_seconds=math.inf, gpus=8), "--cost inf is too large"),
        (GivenFigures(mttf_seconds=1e-9), "--mttf 1e-09 is too small"),
        (GivenFigures(mttf_seconds=1.2e11), "--mttf 1.2e+11 is too large"),
        (GivenFigures(size_bytes=0, gpus=8), "--size must be more than 0"),
        (GivenFigures(gpus=0), "--gpus must be more than 0"),
        (GivenFigures(gpus=8, parameters=-5), "--parameters must be more than 0"),
        (GivenFigures(gpus=8, restart_seconds=-0.1), "--restart must be more than 0"),
        (GivenFigures(gpus=8, keep=0), "--keep must be more than 0"),
        (GivenFigures(gpus=8, free_bytes=-1), "--free must be more than 0"),
        (GivenFigures(failures=0, failures_seconds=9), "--failures must be more than 0"),
        (GivenFigures(gpus=8, size_bytes=1e9, parameters=1e9), "--size and --parameters exclude"),
        (GivenFigures(mttf_seconds=9, mttf_per_gpu_seconds=9), "--mttf and --mttf-per-gpu exclude"),
        (GivenFigures(gpus=8, cost_seconds=9, write_bytes_per_second=9), "--cost and --write exclude"),
        (GivenFigures(mttf_per_gpu_seconds=HOUR), "the failure rate is unknown"),
        (GivenFigures(gpus=10**8, mttf_per_gpu_seconds=HOUR, cost_seconds=1), "most saves would never complete"),
    ],
)
def test_impossible_figures(wishes: GivenFigures, reason: str) -> None:
    """Each is refused with the reason and with what to do."""
    with pytest.raises(UsageError) as caught:
        plan(wishes)

    assert reason in str(caught.value)
    assert caught.value.exit_code == 2
    assert caught.value.hint


def _answer(wishes: GivenFigures, measured: MeasuredFigures | None) -> CheckpointPlan | UsageError:
    try:
        return plan(wishes, measured)
    except UsageError as error:
        return error


ANY = st.none() | st.floats() | st.floats(1e-6, 1e12)
WHOLE = st.none() | st.integers(-2, 10**10)
NANOSECONDS = st.integers(0, 10**21).map(lambda spent: spent / 1e9)
FIGURE = st.none() | st.builds(SourcedFigure, value=NANOSECONDS, origin=st.just(Origin.MEASURED))
FOUND = st.builds(
    MeasuredFigures, job=st.just("j"), saves=st.just(3), costs=st.just(3), other_jobs=st.integers(0, 3),
    ranks=st.none() | st.integers(1, 10**6),
    size=st.none() | st.builds(SourcedFigure, value=st.floats(1, 1e15), origin=st.just(Origin.MEASURED)), cost=FIGURE,
    duration=st.none() | st.builds(SourcedFigure, value=st.floats(1e-9, 1e7), origin=st.just(Origin.MEASURED)),
    interval=st.none() | st.builds(SourcedFigure, value=st.floats(1e-9, 1e9), origin=st.just(Origin.MEASURED)),
    restore=FIGURE,
)  # fmt: skip


@settings(max_examples=200)
@given(
    st.builds(
        GivenFigures, parameters=ANY, size_bytes=ANY, gpus=WHOLE, mttf_seconds=ANY, cost_seconds=ANY,
        duration_seconds=ANY, interval_seconds=ANY, restart_seconds=ANY, step_seconds=ANY, free_bytes=ANY, keep=WHOLE,
        capacity_bytes=ANY,
    )
    | st.builds(GivenFigures, gpus=st.integers(1, 10**5), interval_seconds=st.none() | st.floats(1e-6, 1e9)),
    st.none() | FOUND,
)  # fmt: skip
def test_any_figures_give_a_sane_plan_or_a_reason(wishes: GivenFigures, found: MeasuredFigures | None) -> None:
    """Never an exception of another kind, never a number that is none, and the advice loses least of all rules."""
    made = _answer(wishes, found)
    if isinstance(made, UsageError):
        assert made.hint
        return

    assert all(math.isfinite(number) for number in numbers(msgspec.to_builtins(made)))
    assert (made.advice is None) == (made.missing is not None)
    if made.advice is None:
        assert not made.rules
        return
    assert made.advice.interval_seconds > 0
    if made.basis.duration is not None:
        assert made.advice.interval_seconds >= made.basis.duration.value
    if made.advice.rule == "availability":
        assert made.advice.losses is not None
        least = made.advice.losses.lost_share
        assert all(rule.lost_share is None or rule.lost_share >= least - 1e-9 for rule in made.rules)


@settings(max_examples=50)
@given(st.floats(60, 1e6), st.floats(1e-6, 0.3), st.integers(1, 10**5))
def test_units_of_the_plan(mttf: float, share: float, gpus: int) -> None:
    """The advice is the formula's, and the MTTF of a cluster the given one over its GPUs."""
    made = plan(GivenFigures(mttf_per_gpu_seconds=mttf * gpus, gpus=gpus, cost_seconds=mttf * share + 1e-6))

    assert made.basis.cost is not None
    assert made.basis.mttf.value == pytest.approx(mttf)
    expected = intervals.best_availability(made.basis.cost.value, made.basis.mttf.value, 300.0)
    assert made.advice.interval_seconds == expected
