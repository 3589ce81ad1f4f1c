"""The plan of a job's checkpoints: how often to save, what that costs, and what storage it takes (design section 6)."""

from __future__ import annotations

import msgspec

from ckptprof.diagnose import tiers
from ckptprof.diagnose.plan import limits, sizes
from ckptprof.diagnose.plan.basis import Basis, settle
from ckptprof.diagnose.plan.figures import Figure, Given, Measured, Origin
from ckptprof.diagnose.plan.notes import notes
from ckptprof.diagnose.plan.rules import Advice, Rule, advise, compare
from ckptprof.model import Kind
from ckptprof.units import plural

LEAST_SAVES = 3  # recorded, from which on an interval is advised
_MORE = "record more, or give --cost"


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """What saving at the advised interval moves."""

    bytes_per_day: float
    average_bytes_per_second: float
    burst_seconds: float  # SNIA's share of the interval, in which a sync save should be written
    burst_bytes_per_second: float
    burst_bytes_per_second_per_gpu: float | None
    measured_bytes_per_second: float | None  # the median rate of the saves; of given figures the size over the duration
    needed_tier: str | None  # the lowest that gives the burst; None: more than the highest, or GPUs not known
    reached_tier: str | None  # that the measured saves reach


class TierFit(msgspec.Struct, frozen=True, kw_only=True):
    """One tier of storage, and a checkpoint of this size on it."""

    name: str
    write_bytes_per_second_per_gpu: float
    read_bytes_per_second_per_gpu: float
    node_write_bytes_per_second: float
    node_read_bytes_per_second: float
    all_write_bytes_per_second: float | None
    all_read_bytes_per_second: float | None
    save_seconds: float | None
    restore_seconds: float | None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `ckptprof plan`: seconds, bytes, bytes per second, shares of 0..1; None: not known."""

    job: str | None  # whose checkpoints were measured
    saves: int  # of it
    basis: Basis
    lacking: str | None  # what is missing to advise an interval; None: nothing. Where something is, advice, traffic and
    # filling are None and there are no rules
    advice: Advice | None
    rules: tuple[Rule, ...]
    traffic: Traffic | None  # None: the size is not known
    tiers: tuple[TierFit, ...]
    filling: sizes.Filling | None  # None: the size or the free space is not known
    notes: tuple[str, ...]


def plan(given: Given, measured: Measured | None = None) -> Plan:
    """Return the plan; what is given goes before what was measured. Raises UsageError for impossible figures."""
    limits.check(given)
    basis = settle(given, measured)
    limits.check_mttf(basis.mttf.value, cost=_value(basis.cost), duration=_value(basis.duration))
    missing = lacking(basis, measured)
    if missing is not None:
        return _unadvised(basis, measured, missing)
    advice = advise(basis)
    filling = None
    if given.free_bytes is not None and basis.size is not None:
        filling = sizes.fill(given.free_bytes, basis.size.value, advice.interval_seconds, given.keep)
    traffic = None if basis.size is None else _traffic(basis, basis.size, advice.interval_seconds, measured)
    return Plan(
        job=None if measured is None else measured.job,
        saves=0 if measured is None else measured.saves,
        basis=basis,
        lacking=None,
        advice=advice,
        rules=compare(basis, advice),
        traffic=traffic,
        tiers=tuple(_fit(tier, basis) for tier in tiers.TIERS),
        filling=filling,
        notes=notes(basis, advice, given, measured),
    )


def lacking(basis: Basis, measured: Measured | None) -> str | None:
    """Return what recorded saves do not tell of the cost of one; None if they tell it, or it was given."""
    cost = basis.cost
    if measured is None or (cost is not None and cost.origin is not Origin.MEASURED):
        return None
    saves = plural(measured.saves, "complete save")
    if measured.saves < LEAST_SAVES:
        return f"{saves} recorded, and it takes {LEAST_SAVES} to tell what one costs; {_MORE}"
    if not _value(cost) and basis.mttf.origin is Origin.ASSUMED:
        return f"no stall was seen of {saves}, and failures are assumed; give --cost or --mttf"
    if cost is not None and measured.costs < LEAST_SAVES:
        return f"the stall was seen of {measured.costs:,} of {saves}; {_MORE}"
    if basis.mttf.origin is Origin.ASSUMED and _is_guessed(basis.gpus):
        return "nothing tells how often this job fails; give --mttf 3h, --failures 12/30d, or the number of --gpus"
    return None


def _is_guessed(gpus: Figure | None) -> bool:
    """Return whether GPUs are but the few ranks that were seen: what thousands report tells nothing of them."""
    return gpus is None or (gpus.origin is Origin.ASSUMED and gpus.value < tiers.GPUS_PER_NODE)


def _unadvised(basis: Basis, measured: Measured | None, missing: str) -> Plan:
    """Return what was measured, without an interval and all that rests on one."""
    return Plan(
        job=None if measured is None else measured.job,
        saves=0 if measured is None else measured.saves,
        basis=basis,
        lacking=missing,
        advice=None,
        rules=(),
        traffic=None,
        tiers=tuple(_fit(tier, basis) for tier in tiers.TIERS),
        filling=None,
        notes=(),
    )


def _traffic(basis: Basis, size: Figure, interval: float, measured: Measured | None) -> Traffic:
    burst = sizes.burst_rate(size.value, interval)
    speed = None if basis.duration is None else size.value / basis.duration.value
    if measured is not None and measured.rate is not None and _all_measured(basis.size, basis.duration):
        speed = measured.rate.value
    gpus = _value(basis.gpus)
    needed = None if gpus is None else tiers.needed(Kind.SAVE, burst / gpus)
    reached = None if gpus is None or speed is None else tiers.reached(Kind.SAVE, speed / gpus)
    return Traffic(
        bytes_per_day=sizes.bytes_per_day(size.value, interval),
        average_bytes_per_second=sizes.average_rate(size.value, interval),
        burst_seconds=interval * sizes.BURST_SHARE,
        burst_bytes_per_second=burst,
        burst_bytes_per_second_per_gpu=None if gpus is None else burst / gpus,
        measured_bytes_per_second=speed,
        needed_tier=None if needed is None else needed.name,
        reached_tier=None if reached is None else reached.name,
    )


def _fit(tier: tiers.Tier, basis: Basis) -> TierFit:
    gpus, size = _value(basis.gpus), _value(basis.size)
    write, read = (None if gpus is None else tier.rate(kind) * gpus for kind in (Kind.SAVE, Kind.RESTORE))
    return TierFit(
        name=tier.name,
        write_bytes_per_second_per_gpu=tier.write_bytes_per_second,
        read_bytes_per_second_per_gpu=tier.read_bytes_per_second,
        node_write_bytes_per_second=tier.node_rate(Kind.SAVE, basis.gpus_per_node),
        node_read_bytes_per_second=tier.node_rate(Kind.RESTORE, basis.gpus_per_node),
        all_write_bytes_per_second=write,
        all_read_bytes_per_second=read,
        save_seconds=None if size is None or write is None else size / write,
        restore_seconds=None if size is None or read is None else size / read,
    )


def _all_measured(*figures: Figure | None) -> bool:
    return all(figure is not None and figure.origin is Origin.MEASURED for figure in figures)


def _value(figure: Figure | None) -> float | None:
    return None if figure is None else figure.value
