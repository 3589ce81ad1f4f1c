"""The plan of a job's checkpoints: how often to save, what that costs, and what storage it takes (design section 6)."""

from __future__ import annotations

import msgspec

from ckptprof.diagnose import tiers
from ckptprof.diagnose.plan import limits, sizes
from ckptprof.diagnose.plan.basis import Basis, settle
from ckptprof.diagnose.plan.figures import Figure, Given, Measured
from ckptprof.diagnose.plan.notes import notes
from ckptprof.diagnose.plan.rules import Advice, Rule, advise, compare
from ckptprof.model import Kind


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """What saving at the advised interval moves."""

    bytes_per_day: float
    average_bytes_per_second: float
    burst_seconds: float  # SNIA's share of the interval, in which a sync save should be written
    burst_bytes_per_second: float
    burst_bytes_per_second_per_gpu: float | None
    measured_bytes_per_second: float | None  # size over the duration of a save
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
    """The answer to `ckptprof plan`."""

    job: str | None  # whose checkpoints were measured
    saves: int  # of it
    basis: Basis
    advice: Advice
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
    advice = advise(basis)
    filling = None
    if given.free_bytes is not None and basis.size is not None:
        filling = sizes.fill(given.free_bytes, basis.size.value, advice.interval_seconds, given.keep)
    traffic = None if basis.size is None else _traffic(basis, basis.size, advice.interval_seconds)
    return Plan(
        job=None if measured is None else measured.job,
        saves=0 if measured is None else measured.saves,
        basis=basis,
        advice=advice,
        rules=compare(basis, advice),
        traffic=traffic,
        tiers=tuple(_fit(tier, basis) for tier in tiers.TIERS),
        filling=filling,
        notes=notes(basis, advice, given, measured),
    )


def _traffic(basis: Basis, size: Figure, interval: float) -> Traffic:
    burst = sizes.burst_rate(size.value, interval)
    speed = None if basis.duration is None else size.value / basis.duration.value
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


def _value(figure: Figure | None) -> float | None:
    return None if figure is None else figure.value
