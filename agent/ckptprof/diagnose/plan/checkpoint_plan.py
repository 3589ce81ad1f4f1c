"""The plan of a job's checkpoints: how often to save, the cost, and the storage required (design section 6)."""

from __future__ import annotations

import math

import msgspec

from ckptprof.diagnose import tiers
from ckptprof.diagnose.plan import field, intervals, lasting
from ckptprof.diagnose.plan.basis import (
    Basis,
    GivenFigures,
    MeasuredFigures,
    Origin,
    check,
    check_mttf,
    choose_basis,
    is_measured,
)
from ckptprof.diagnose.plan.notice import Notice, compare_notice
from ckptprof.diagnose.tolerances import CLEARLY, FIELD_MEAN_SHARE, FIELD_MOST_SHARE, SNIA_SHARE
from ckptprof.model import Kind
from ckptprof.units import DAY_SECONDS, HOUR_SECONDS, percent, plural, seconds

LEAST_SAVES = 3  # recorded, from which on an interval is advised
BEST = "availability"
PER_MTTF = "20 per MTTF"
BACK_TO_BACK = "as often as possible"
TOLERANCE_SHARE = 0.005  # of the time: intervals that lose at most this much more than the best are as good
_MORE = "record more, or give --cost"
_DIGITS = 6  # after the point: rounding noise is hidden


class IntervalRule(msgspec.Struct, frozen=True, kw_only=True):
    """The interval by one rule, and its losses; None: not known."""

    name: str
    source: str
    interval_seconds: float
    saves_per_day: float  # a whole number, unless less than one
    stall_share: float | None  # of the interval, in which training is blocked
    redone_share: float | None  # of the whole time: computed again after failures
    lost_share: float | None  # of the whole time; None: not known, or a save takes longer than the interval
    advised: bool


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """The recommended interval between saves, with its reason and what it costs."""

    interval_seconds: float
    recovery_seconds: float  # restart, restore, and until an async save is written
    steps: int | None  # whole steps in it, if the time of a step was given
    rule: str
    reason: str
    stall_share: float | None
    losses: intervals.Losses | None  # None: the cost of a save is not known
    good_from_seconds: float | None  # with the next: the range in which at most half a percent more of the time is lost
    good_until_seconds: float | None
    affordable_cost_seconds: float  # maximum cost of a save that keeps the stall below 5 % at the best interval
    lost_today_share: float | None  # at today's interval
    gained_gpu_hours_per_day: float | None  # by changing today's interval to this one
    lost_price_per_day: float | None  # of the GPU-hours that are lost, in the unit of the price of one


class StorageDemand(msgspec.Struct, frozen=True, kw_only=True):
    """The storage traffic at the recommended interval."""

    bytes_per_day: float
    average_bytes_per_second: float
    burst_seconds: float  # SNIA's share of the interval, in which a sync save should be written
    burst_bytes_per_second: float
    burst_bytes_per_second_per_gpu: float | None
    measured_bytes_per_second: (
        float | None
    )  # the median rate of the saves; for given figures the size divided by the duration
    needed_tier: str | None  # the lowest one sufficient for the burst; None: above the highest, or unknown GPUs
    reached_tier: str | None  # that the measured saves reach
    published: field.PublishedWrite | None  # what storage is offered for a checkpoint of about this size


class TierFit(msgspec.Struct, frozen=True, kw_only=True):
    """A storage tier, and the duration of this checkpoint on it."""

    name: str
    write_bytes_per_second_per_gpu: float
    read_bytes_per_second_per_gpu: float
    save_seconds: float | None
    restore_seconds: float | None


class RateFit(msgspec.Struct, frozen=True, kw_only=True):
    """A published rate of failures, and the plan with it."""

    published: field.PublishedRate
    mttf_seconds: float
    interval_seconds: float
    lost_share: float | None


class CheckpointPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `ckptprof plan`: seconds, bytes, bytes per second, shares of 0..1; None: not known."""

    job: str | None  # the job whose checkpoints were measured
    saves: int  # its number of saves
    basis: Basis
    missing: str | None  # what is missing to advise an interval; None: nothing. Where something is, advice, traffic and
    # filling, entries and wear are None and there are no rules
    advice: Advice | None
    rules: tuple[IntervalRule, ...]
    traffic: StorageDemand | None  # None: the size is not known
    tiers: tuple[TierFit, ...]
    filling: lasting.Filling | None  # None: the size or the free space is not known
    entries: lasting.Entries | None  # None: no save to files is recorded
    wear: lasting.Wear | None  # None: the size or the capacity is not known
    rates: tuple[RateFit, ...]  # where the failure rate is assumed: the published ones, the worst first
    notice: Notice | None  # None: not asked, or no save has a known duration
    notes: tuple[str, ...]


def plan(given: GivenFigures, measured: MeasuredFigures | None = None) -> CheckpointPlan:
    """Make a plan; given values take precedence over measured ones. Raises UsageError for impossible figures."""
    check(given)
    known = measured or MeasuredFigures()
    basis = choose_basis(given, known)
    check_mttf(basis.mttf.value, basis.cost, basis.duration)
    missing = None if measured is None else missing_input(basis, measured)
    advice = None if missing is not None else advise(basis, given.gpu_hour_price)
    interval = None if advice is None else advice.interval_seconds
    traffic = None if interval is None or basis.size is None else _traffic(basis, basis.size.value, interval, known)
    return CheckpointPlan(
        job=known.job,
        saves=known.saves,
        basis=basis,
        missing=missing,
        advice=advice,
        rules=() if advice is None else compare(basis, advice),
        traffic=traffic,
        tiers=tuple(_fit(tier, basis) for tier in tiers.TIERS),
        filling=None if interval is None else lasting.fill(given, basis, interval),
        entries=None if interval is None else lasting.count_entries(given, known, interval),
        wear=None if traffic is None else lasting.wear_off(given, traffic.bytes_per_day),
        rates=() if advice is None else _at_published_rates(basis),
        notice=None if given.notice_seconds is None else compare_notice(given.notice_seconds, basis, known),
        notes=() if advice is None else tuple(_notes(basis, advice, given, known)),
    )


def _at_published_rates(basis: Basis) -> tuple[RateFit, ...]:
    if basis.mttf.origin is not Origin.ASSUMED or basis.gpus is None:
        return ()
    found = []
    longest = max(0.0 if figure is None else figure.value for figure in (basis.cost, basis.duration))
    for one in field.FAILURE_RATES:
        mttf = one.gpu_hours * HOUR_SECONDS / basis.gpus.value
        if mttf > longest:
            own = msgspec.structs.replace(basis, mttf=msgspec.structs.replace(basis.mttf, value=mttf))
            interval = _choose(own)[0]
            lost = _losses(interval, own)
            share = None if lost is None else lost.lost_share
            found.append(RateFit(published=one, mttf_seconds=mttf, interval_seconds=interval, lost_share=share))
    return tuple(found)


def missing_input(basis: Basis, measured: MeasuredFigures) -> str | None:
    """Return the input that is missing to plan with recorded saves; None if nothing is, or the cost was given."""
    cost, gpus = basis.cost, basis.gpus
    if cost is not None and cost.origin is not Origin.MEASURED:
        return None
    saves = plural(measured.saves, "complete save")
    if measured.saves < LEAST_SAVES:
        return f"{saves} recorded, at least {LEAST_SAVES} needed to estimate the cost of one; {_MORE}"
    is_assumed = basis.mttf.origin is Origin.ASSUMED
    if is_assumed and (cost is None or not cost.value):
        return f"no stall observed in {saves}, and the failure rate is assumed; give --cost or --mttf"
    if cost is not None and measured.costs < LEAST_SAVES:
        return f"stall known for only {measured.costs:,} of {saves}; {_MORE}"
    # Reports of thousands of GPUs do not apply to a few observed ranks
    if is_assumed and (gpus is None or (gpus.origin is Origin.ASSUMED and gpus.value < tiers.GPUS_PER_NODE)):
        return "failure rate unknown; give --mttf 3h, --failures 12/30d, or the number of --gpus"
    return None


def advise(basis: Basis, gpu_hour_price: float | None = None) -> Advice:
    """Choose the interval that loses least and is possible, with the reason."""
    interval, rule, reason = _choose(basis)
    lost = _losses(interval, basis)
    good = None if lost is None else _as_good(lost.lost_share, basis)
    today = None if basis.interval is None else _losses(basis.interval.value, basis)
    gained = price = None
    if gpu_hour_price is not None and basis.gpus is not None and lost is not None:
        price = lost.lost_share * DAY_SECONDS / HOUR_SECONDS * basis.gpus.value * gpu_hour_price
    if basis.gpus is not None and today is not None and lost is not None:
        gained = (today.lost_share - lost.lost_share) * DAY_SECONDS / HOUR_SECONDS * basis.gpus.value
    return Advice(
        interval_seconds=interval,
        recovery_seconds=basis.recovery_seconds,
        steps=None if basis.step is None else max(1, math.floor(interval / basis.step.value)),
        rule=rule,
        reason=reason,
        stall_share=_stall(interval, basis),
        losses=lost,
        good_from_seconds=None if good is None else good[0],
        good_until_seconds=None if good is None else good[1],
        affordable_cost_seconds=intervals.affordable_cost(basis.mttf.value, basis.recovery_seconds),
        lost_today_share=None if today is None else today.lost_share,
        gained_gpu_hours_per_day=gained,
        lost_price_per_day=price,
    )


def _choose(basis: Basis) -> tuple[float, str, str]:
    mttf, duration = basis.mttf.value, 0.0 if basis.duration is None else basis.duration.value
    if basis.cost is None:
        interval, rule = mttf / intervals.SAVES_PER_MTTF, PER_MTTF
        reason = (
            "the cost of a save is unknown; with 20 saves between failures, a failure loses at most 5 % of the work"
        )
    else:
        interval, rule = intervals.best_availability(basis.cost.value, mttf, basis.recovery_seconds), BEST
        reason = "minimises time spent saving plus work lost to failures"
    if duration > interval:
        reason = "a save takes this long to be written; faster writes would allow a shorter interval"
        return duration, BACK_TO_BACK, reason
    if interval <= 0:  # an async save that does not block and takes no time
        reason = "saves have no measurable cost; 20 between failures are enough"
        return mttf / intervals.SAVES_PER_MTTF, PER_MTTF, reason
    return interval, rule, reason


def _losses(interval: float, basis: Basis) -> intervals.Losses | None:
    if basis.cost is None:
        return None
    return intervals.losses(interval, basis.cost.value, basis.mttf.value, basis.recovery_seconds)


def _stall(interval: float, basis: Basis) -> float | None:
    return None if basis.cost is None else basis.cost.value / interval


def _as_good(lost_share: float, basis: Basis) -> tuple[float, float] | None:
    if basis.cost is None or lost_share + TOLERANCE_SHARE >= 1:  # all is as bad as all else
        return None
    share = lost_share + TOLERANCE_SHARE
    found = intervals.as_good_as(share, basis.cost.value, basis.mttf.value, basis.recovery_seconds)
    if found is None:
        return None
    shortest = found[0] if basis.duration is None else max(found[0], basis.duration.value)
    return (shortest, max(shortest, found[1]))


def compare(basis: Basis, advice: Advice) -> tuple[IntervalRule, ...]:
    """Apply every rule that the figures allow, and add today's interval."""
    mttf, recovery = basis.mttf.value, basis.recovery_seconds
    found: list[tuple[str, str, float]] = []
    if basis.cost is not None and basis.cost.value > 0:
        cost = basis.cost.value
        found += [
            ("Young", "sqrt(2 C M)", intervals.young(cost, mttf)),
            ("Daly", "minimum of his complete model", intervals.daly_exact(cost, mttf)),
            (BEST, "C + sqrt(2 (M + R) C + C^2)", intervals.best_availability(cost, mttf, recovery)),
            ("5 % stall", "C / 0.05, the shortest that SNIA's rule allows", cost / SNIA_SHARE),
        ]
    found.append((PER_MTTF, "M / 20, Micron's 95 % goodput", mttf / intervals.SAVES_PER_MTTF))
    if advice.rule == BACK_TO_BACK:
        found.append((BACK_TO_BACK, "each save starts when the previous one ends", advice.interval_seconds))
    if basis.interval is not None:
        found.append(("today", basis.interval.text or basis.interval.origin.value, basis.interval.value))
    return tuple(_rule(name, source, interval, basis, advice) for name, source, interval in found)


def _rule(name: str, source: str, interval: float, basis: Basis, advice: Advice) -> IntervalRule:
    lost = _losses(interval, basis)
    redone = lost or intervals.losses(interval, 0.0, basis.mttf.value, basis.recovery_seconds)
    return IntervalRule(
        name=name,
        source=source,
        interval_seconds=interval,
        saves_per_day=saves_per_day(interval),
        stall_share=_stall(interval, basis),
        redone_share=None if redone is None else redone.redone_share,
        lost_share=None if lost is None else lost.lost_share,
        advised=name == advice.rule,
    )


def saves_per_day(interval: float) -> float:
    """Return the number of saves in a day that starts with one: 233 at 6.2 min; for longer intervals a fraction."""
    each = DAY_SECONDS / interval
    return each if each < 1 else math.ceil(round(each, _DIGITS))


def _traffic(basis: Basis, size: float, interval: float, measured: MeasuredFigures) -> StorageDemand:
    # Not the average over the day: a save should not take all of its interval. 269 GB/s for 5 TB at 6.2 min
    burst = size / (SNIA_SHARE * interval)
    speed = None if basis.duration is None else size / basis.duration.value
    if measured.rate is not None and is_measured(basis.size) and is_measured(basis.duration):
        speed = measured.rate.value
    gpus = None if basis.gpus is None else basis.gpus.value
    needed = None if gpus is None else tiers.needed(Kind.SAVE, burst / gpus)
    reached = None if gpus is None or speed is None else tiers.reached(Kind.SAVE, speed / gpus)
    return StorageDemand(
        bytes_per_day=size * saves_per_day(interval),
        average_bytes_per_second=size * saves_per_day(interval) / DAY_SECONDS,
        burst_seconds=interval * SNIA_SHARE,
        burst_bytes_per_second=burst,
        burst_bytes_per_second_per_gpu=None if gpus is None else burst / gpus,
        measured_bytes_per_second=speed,
        needed_tier=None if needed is None else needed.name,
        reached_tier=None if reached is None else reached.name,
        published=field.write_of(size),
    )


def _fit(tier: tiers.Tier, basis: Basis) -> TierFit:
    each = None if basis.gpus is None or basis.size is None else basis.size.value / basis.gpus.value
    return TierFit(
        name=tier.name,
        write_bytes_per_second_per_gpu=tier.write_bytes_per_second,
        read_bytes_per_second_per_gpu=tier.read_bytes_per_second,
        save_seconds=None if each is None else each / tier.write_bytes_per_second,
        restore_seconds=None if each is None else each / tier.read_bytes_per_second,
    )


def _notes(basis: Basis, advice: Advice, given: GivenFigures, measured: MeasuredFigures) -> list[str]:
    cost, size, share, ranks = basis.cost, basis.size, advice.stall_share, measured.ranks or 0
    notes = []
    if cost is not None and share is not None and round(share, _DIGITS) > SNIA_SHARE:
        field = f" The field reports {percent(FIELD_MEAN_SHARE)} on average and up to {percent(FIELD_MOST_SHARE)}"
        notes.append(
            f"At this interval saves block training {percent(round(share, _DIGITS))} of the time, above SNIA's 5 %. "
            "Saving less often would lose more to failures than it gains: reduce the cost of a save to "
            f"{seconds(advice.affordable_cost_seconds)} or less, from {seconds(cost.value)}."
            f"{f'{field} (Maeng et al. 2021).' if share > FIELD_MEAN_SHARE else ''}"
        )
    if cost is None:
        needed = advice.interval_seconds**2 / (2 * basis.mttf.value)
        notes.append(
            f"This interval is optimal (Young) only if a save blocks training for {seconds(needed)}; give --cost, "
            "--write or a recorded job to calculate the interval and the time lost."
        )
    is_sync = measured.job is not None and not measured.may_be_async and is_measured(basis.duration)
    if basis.background_seconds > 0 and not is_sync:
        notes.append(
            f"An async save is usable only once it is written, {seconds(basis.background_seconds)} after training "
            "resumes: a failure before that falls back to the previous save, which is counted as recovery."
        )
    if measured.size is not None and size is not None and is_measured(cost):
        ratio = size.value / measured.size.value
        if not 1 / CLEARLY <= ratio <= CLEARLY:
            notes.append(
                f"The cost was measured on saves of another size; this one is {ratio:.3g} times as large: give --cost."
            )
    if is_measured(size) and given.gpus is not None and given.gpus > ranks:
        own = plural(ranks, "rank") if ranks else "an unknown number of ranks"
        notes.append(
            f"The size is what this host recorded for {own}; if other hosts write "
            f"parts of the checkpoint of the {given.gpus:,} GPUs, give the total with --size or --parameters."
        )
    if basis.mttf.origin is Origin.ASSUMED:
        notes.append(
            "The failure rate is assumed, and every figure here depends on it: give your own (--failures 12/30d)."
        )
    if measured.other_jobs:
        other = "1 other job was" if measured.other_jobs == 1 else f"{measured.other_jobs:,} other jobs were"
        notes.append(f"{other} left out: --job chooses one.")
    return notes
