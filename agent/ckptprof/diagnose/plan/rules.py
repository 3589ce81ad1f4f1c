"""The rules for an interval side by side, and the interval that is advised."""

from __future__ import annotations

import msgspec

from ckptprof.diagnose.plan import intervals, sizes
from ckptprof.diagnose.plan.basis import Basis

_HOURS_A_DAY = 24
BEST = "availability"
PER_MTTF = "20 per MTTF"
BACK_TO_BACK = "as often as possible"
TOLERANCE_SHARE = 0.005  # of the time: intervals that lose no more than this beyond the best are as good


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """What one rule makes of the figures; None: they do not suffice."""

    name: str
    source: str
    interval_seconds: float
    saves_per_day: float  # whole, if there is one a day
    stall_share: float | None  # of the interval, in which training is held
    redone_share: float | None  # of the whole time: computed again after failures
    lost_share: float | None  # of the whole time; None: not known, or a save takes longer than the interval
    advised: bool


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """The interval to save at."""

    interval_seconds: float
    recovery_seconds: float  # restart, restore, and until an async save is written
    steps: int | None  # whole steps in it, where the time of a step was given
    rule: str
    reason: str
    stall_share: float | None
    losses: intervals.Losses | None  # None: the cost of a save is not known
    good_from_seconds: float | None  # from here to there half a percent more of the time is lost at most
    good_until_seconds: float | None
    affordable_cost_seconds: float  # of a save, to keep the stall under 5 % at the best interval
    lost_today_share: float | None  # at today's interval
    gained_gpu_hours_per_day: float | None  # by going from today's interval to this one


def advise(basis: Basis) -> Advice:
    """Return the interval that loses least, as long as it can be had, with the reason."""
    interval, rule, reason = _choose(basis)
    lost = _losses(interval, basis)
    good = None if lost is None else _as_good(lost.lost_share, basis)
    today = None if basis.interval is None else _losses(basis.interval.value, basis)
    gained = None
    if basis.gpus is not None and today is not None and lost is not None:
        gained = (today.lost_share - lost.lost_share) * _HOURS_A_DAY * basis.gpus.value
    return Advice(
        interval_seconds=interval,
        recovery_seconds=basis.recovery_seconds,
        steps=None if basis.step is None else intervals.whole_steps(interval, basis.step.value),
        rule=rule,
        reason=reason,
        stall_share=_stall(interval, basis),
        losses=lost,
        good_from_seconds=None if good is None else good[0],
        good_until_seconds=None if good is None else good[1],
        affordable_cost_seconds=intervals.affordable_cost(basis.mttf.value, basis.recovery_seconds),
        lost_today_share=None if today is None else today.lost_share,
        gained_gpu_hours_per_day=gained,
    )


def compare(basis: Basis, advice: Advice) -> tuple[Rule, ...]:
    """Return every rule that the figures suffice for, and today's interval."""
    mttf, recovery = basis.mttf.value, basis.recovery_seconds
    found: list[tuple[str, str, float]] = []
    if basis.cost is not None and basis.cost.value > 0:
        cost = basis.cost.value
        found += [
            ("Young", "sqrt(2 C M)", intervals.young(cost, mttf)),
            ("Daly", "higher order", intervals.daly(cost, mttf)),
            ("Daly, exact", "least time of his complete model", intervals.daly_exact(cost, mttf)),
            (BEST, "C + sqrt(2 (M + R) C + C^2)", intervals.best_availability(cost, mttf, recovery)),
            ("5 % stall", "C / 0.05, the shortest that SNIA's rule allows", intervals.for_stall(cost)),
        ]
    found.append((PER_MTTF, "M / 20, Micron's 95 % goodput", intervals.per_mttf(mttf)))
    if advice.rule == BACK_TO_BACK:
        found.append((BACK_TO_BACK, "when one save ends, the next begins", advice.interval_seconds))
    if basis.interval is not None:
        found.append(("today", basis.interval.text or basis.interval.origin.value, basis.interval.value))
    return tuple(_rule(name, source, interval, basis, advice) for name, source, interval in found)


def _choose(basis: Basis) -> tuple[float, str, str]:
    mttf, duration = basis.mttf.value, 0.0 if basis.duration is None else basis.duration.value
    if basis.cost is None:
        interval, rule = intervals.per_mttf(mttf), PER_MTTF
        reason = "what a save costs is not known; with 20 of them between failures, one undoes at most 5 % of the work"
    else:
        interval, rule = intervals.best_availability(basis.cost.value, mttf, basis.recovery_seconds), BEST
        reason = "time in saves and work redone after failures are least in sum"
    if duration > interval:
        reason = "it takes so long until a save is written; more often would pay if it were written sooner"
        return duration, BACK_TO_BACK, reason
    if interval <= 0:  # an async save that holds nothing and takes no time
        return intervals.per_mttf(mttf), PER_MTTF, "no cost of a save was seen; 20 between failures are enough"
    return interval, rule, reason


def _losses(interval: float, basis: Basis) -> intervals.Losses | None:
    if basis.cost is None:
        return None
    return intervals.losses(interval, basis.cost.value, basis.mttf.value, basis.recovery_seconds)


def _stall(interval: float, basis: Basis) -> float | None:
    return None if basis.cost is None else basis.cost.value / interval


def _as_good(lost_share: float, basis: Basis) -> tuple[float, float] | None:
    if basis.cost is None:
        return None
    cost, mttf = basis.cost.value, basis.mttf.value
    found = intervals.as_good_as(lost_share + TOLERANCE_SHARE, cost, mttf, basis.recovery_seconds)
    if found is None or lost_share + TOLERANCE_SHARE >= 1:  # all is as bad as all else
        return None
    shortest = found[0] if basis.duration is None else max(found[0], basis.duration.value)
    return (shortest, max(shortest, found[1]))


def _rule(name: str, source: str, interval: float, basis: Basis, advice: Advice) -> Rule:
    lost = _losses(interval, basis)
    redone = lost or intervals.losses(interval, 0.0, basis.mttf.value, basis.recovery_seconds)
    return Rule(
        name=name,
        source=source,
        interval_seconds=interval,
        saves_per_day=sizes.saves_per_day(interval),
        stall_share=_stall(interval, basis),
        redone_share=None if redone is None else redone.redone_share,
        lost_share=None if lost is None else lost.lost_share,
        advised=name == advice.rule,
    )
