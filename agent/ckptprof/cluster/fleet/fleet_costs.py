"""The cost of checkpoints: GPU time in which training was blocked, by job, week, framework and so on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import tzinfo

import msgspec

from ckptprof import figures, units
from ckptprof.bounds import Amount, Count, Share
from ckptprof.cluster.fleet.runs import FleetAnswer, grouped, job_of, run_of, saves_and_restores, storage_of
from ckptprof.cluster.model import ClusterCheckpoint
from ckptprof.diagnose.job_costs import SNIA_SHARE, job_costs
from ckptprof.diagnose.tiers import word
from ckptprof.model import Kind
from ckptprof.verdicts import JobCost

_UNKNOWN = "-"


class CostRow(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of checkpoints of one group (job, week ...). None: unknown."""

    name: str  # of the job, run, framework ...; of a week: 2026-W48
    job: str | None  # common job of all
    saves: Count
    restores: Count
    incomplete: Count
    nodes: Count  # maximum of one checkpoint
    gpus: Count | None  # maximum of one run
    stall_seconds: Amount | None  # time training was blocked, sum of all runs
    stalls_unknown: Count  # checkpoints with an unknown stall
    gpu_seconds: Amount | None  # blocked time times GPUs, sum of nodes
    run_seconds: Amount | None  # of the runs, from the first checkpoint of each until the next is due
    allocated_gpu_seconds: Amount | None  # run_seconds times GPUs
    share: Share | None  # share of run time in which training was blocked, for runs with both known
    gpu_share: Share | None  # the same of GPU time
    exceeds_snia: bool | None  # gpu_share, or share without GPUs, is above 5 %
    median_save_seconds: Amount | None  # of complete saves, by the slowest rank
    bytes_per_second: Amount | None  # median of saves
    bytes_per_second_per_gpu: Amount | None  # likewise
    tier: str | None  # DGX SuperPOD storage tier reached: light | medium | high | below
    amplification: Amount | None  # written bytes relative to unique bytes of saves


class Costs(FleetAnswer, frozen=True, kw_only=True):
    """The cost of checkpoints, the most costly first; weeks in order."""

    by: str
    partial: Count  # checkpoints with nodes without a database: their waits are not included
    waited: Count  # checkpoints with nodes without a transfer: likewise
    rows: tuple[CostRow, ...]


def _by_owner(name: str) -> Callable[[ClusterCheckpoint], str]:
    def owner(one: ClusterCheckpoint) -> str:
        return getattr(one.whole.run, name, None) or _UNKNOWN

    return owner


BY: dict[str, Callable[[ClusterCheckpoint], str]] = {
    "job": job_of,
    "run": run_of,
    **{name: _by_owner(name) for name in ("user", "account", "partition")},
    "framework": lambda one: one.whole.framework or _UNKNOWN,
    "mode": lambda one: _UNKNOWN if one.whole.mode is None else one.whole.mode.value,
    "storage": storage_of,
}
WEEK = "week"


def costs(checkpoints: Sequence[ClusterCheckpoint], by: str, zone: tzinfo) -> Costs:
    """Return the cost grouped by one of `BY` or by the week of the start, in this zone."""
    every = saves_and_restores(checkpoints)
    key = (lambda one: units.stamp(one.whole.start_ns, zone, "%G-W%V")) if by == WEEK else BY[by]
    rows = [row_of(name, mine) for name, mine in grouped(every, key).items()]
    rows.sort(key=(lambda one: (one.name,)) if by == WEEK else _by_cost)
    return Costs(
        by=by,
        checkpoints=len(every),
        partial=sum(one.is_partial for one in every),
        waited=sum(bool(one.waited) for one in every),
        rows=tuple(rows),
    )


def _by_cost(one: CostRow) -> tuple[float, float, str]:
    return -(one.gpu_seconds or 0.0), -(one.stall_seconds or 0.0), one.name


def row_of(name: str, mine: Sequence[ClusterCheckpoint]) -> CostRow:
    """Return the cost of one group."""
    runs = [
        job_costs([one.whole for one in of_run])[0]
        for of_run in grouped(mine, lambda one: (run_of(one), one.whole.job)).values()
    ]
    wholes = [one.whole for one in mine]
    saves = [one for one in wholes if one.kind is Kind.SAVE]
    jobs = {one.job for one in wholes}
    spent = [one.cost.gpu_seconds for one in wholes if one.cost is not None and one.cost.gpu_seconds is not None]
    lengths = figures.of_complete(saves, figures.duration_seconds)
    rates = figures.of_complete(saves, figures.rate_bytes_per_second)
    each = figures.of_complete(saves, lambda one: None if one.cost is None else one.cost.bytes_per_second_per_gpu)
    share, gpu_share = _share(runs, lambda _: 1), _share(runs, lambda one: one.gpus)
    compared_share = share if gpu_share is None else gpu_share
    per_gpu = figures.median(each) if each else None
    pairs = [(one.whole.written_bytes, one.whole.unique_bytes) for one in mine if one.whole.kind is Kind.SAVE]
    known = [(written, unique) for written, unique in pairs if written is not None and unique]
    unique = sum(one for _, one in known)
    return CostRow(
        name=name,
        job=jobs.pop() if len(jobs) == 1 else None,
        saves=len(saves),
        restores=len(wholes) - len(saves),
        incomplete=len(wholes) - len(figures.complete(wholes)),
        nodes=max(len(one.nodes) + len(one.waited) for one in mine),
        gpus=max((one.gpus for one in runs if one.gpus), default=None),
        stall_seconds=_sum(one.stall_seconds for one in runs),
        stalls_unknown=sum(one.stalls_unknown for one in runs),
        gpu_seconds=sum(spent) if spent else None,
        run_seconds=_sum(one.run_seconds for one in runs),
        allocated_gpu_seconds=_sum(
            one.run_seconds * one.gpus if one.run_seconds and one.gpus else None for one in runs
        ),
        share=share,
        gpu_share=gpu_share,
        exceeds_snia=None if compared_share is None else compared_share > SNIA_SHARE,
        median_save_seconds=figures.median(lengths) if lengths else None,
        bytes_per_second=figures.median(rates) if rates else None,
        bytes_per_second_per_gpu=per_gpu,
        tier=word(Kind.SAVE, per_gpu),
        amplification=sum(one for one, _ in known) / unique if unique else None,
    )


def _share(runs: Iterable[JobCost], weight: Callable[[JobCost], int | None]) -> float | None:
    """Return the weighted blocked share of the runs with all values known; None without any."""
    blocked = had = 0.0
    for one in runs:
        by = weight(one)
        if one.share is not None and one.run_seconds is not None and by:
            blocked += one.share * one.run_seconds * by
            had += one.run_seconds * by
    return blocked / had if had else None


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
