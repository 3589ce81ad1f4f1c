"""The checkpoint each job would resume from if it failed now, and its optimal save interval on this fleet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import msgspec

from ckptprof import figures
from ckptprof.bounds import Amount, Count
from ckptprof.cluster.fleet.runs import FleetAnswer, grouped, job_of, run_of, saves_and_restores
from ckptprof.cluster.model import ClusterCheckpoint, NodeRecord
from ckptprof.diagnose.plan.intervals import daly_exact
from ckptprof.model import Checkpoint, Kind

OVERDUE = 2  # times its usual interval
LEAST_SAVES = 3  # needed for a usual interval
_NS = 1_000_000_000


class NewestRow(msgspec.Struct, frozen=True, kw_only=True):
    """The newest restorable checkpoint of a job. None: unknown, or none."""

    job: str
    run: str  # last run of the job: its key, or node and job without a key
    nodes: Count  # maximum of one checkpoint
    step: int | None
    path: str | None
    saved_ns: int | None  # epoch nanoseconds: start of that save; None: none is restorable
    is_durable: bool | None  # on stable storage
    observed_until_ns: int  # epoch nanoseconds: end of the monitored time of its nodes
    age_seconds: Amount | None  # of the step at that time: the work that a failure would lose
    unusable: Count  # later saves that are incomplete or may restore wrongly
    saves: Count
    interval_seconds: Amount | None  # median time between the starts of saves
    is_overdue: bool | None  # the age exceeds twice the interval; the job may have ended
    restarts: Count  # runs of the job after the first
    resumed_seconds: Amount | None  # median time from the end of a run's newest restorable save to the end of
    # the next run's restore: recomputation or waiting
    stall_seconds: Amount | None  # median stall of a save
    mttf_seconds: Amount | None  # mean time between restarts for this number of nodes, from the whole fleet
    optimal_interval_seconds: Amount | None  # for this stall and mttf_seconds (Daly)


class NewestSteps(FleetAnswer, frozen=True, kw_only=True):
    """The newest restorable checkpoint of each job, the largest loss first."""

    node_seconds: Amount  # observed run time times nodes
    restarts: Count  # of all jobs
    jobs: tuple[NewestRow, ...]


def newest_restorable(
    checkpoints: Sequence[ClusterCheckpoint], records: Iterable[NodeRecord], now_ns: int
) -> NewestSteps:
    """Return the newest restorable step of each job, as of the end of its monitored time."""
    every = saves_and_restores(checkpoints)
    jobs = {job: grouped(mine, run_of) for job, mine in grouped(every, job_of).items()}
    restarts = sum(len(runs) - 1 for runs in jobs.values())
    spent = sum(_seconds(run) * _nodes(run) for runs in jobs.values() for run in runs.values())
    mttf = spent / restarts if restarts and spent else None  # of one node
    observed_until: dict[str, int] = {}
    for record in records:
        if record.watched.end_ns is not None:
            observed_until[record.host] = min(now_ns, max(record.watched.end_ns, observed_until.get(record.host, 0)))
    rows = [_row(runs, observed_until, mttf) for runs in jobs.values()]
    with_saves = [one for one in rows if one.saves]
    with_saves.sort(key=lambda one: (one.age_seconds is not None, -(one.age_seconds or 0.0), one.job, one.run))
    return NewestSteps(checkpoints=len(every), node_seconds=spent, restarts=restarts, jobs=tuple(with_saves))


def restorable(saves: Iterable[ClusterCheckpoint]) -> list[Checkpoint]:
    """Return the saves of one run that are complete on all participating nodes, as far as observed.

    A node participates if it wrote before: for a node without a database, its last save counts; for a monitored node,
    the previous save, because a run may change to fewer writing nodes.
    """
    found: list[Checkpoint] = []
    wrote: set[str] = set()  # in the last save with all nodes observed
    before: set[str] = set()
    for one in saves:
        if one.whole.kind is not Kind.SAVE:
            continue
        mine = {part.host for part in one.nodes}
        lacking = wrote - mine if one.is_partial else set[str]()
        lacking |= before & set(one.waited)
        if one.whole.is_restorable and not lacking:
            found.append(one.whole)
        wrote = wrote | mine if one.is_partial else mine
        before = mine
    return found


def _nodes(mine: Sequence[ClusterCheckpoint]) -> int:
    return max(one.nodes_expected or len(one.nodes) + len(one.waited) for one in mine)


def _seconds(mine: Sequence[ClusterCheckpoint]) -> float:
    return (max(one.whole.end_ns for one in mine) - mine[0].whole.start_ns) / _NS


def _row(
    runs: Mapping[str, Sequence[ClusterCheckpoint]], observed_until: Mapping[str, int], mttf: float | None
) -> NewestRow:
    every = [one for mine in runs.values() for one in mine]
    saves = [one.whole for one in every if one.whole.kind is Kind.SAVE]
    usable = [one for mine in runs.values() for one in restorable(mine)]
    whole = max(usable, key=lambda one: one.start_ns, default=None)
    last_ns = max(one.whole.end_ns for one in every)
    ahead = {part.host: part.ahead_seconds or 0.0 for one in every for part in one.nodes}
    until_ns = max([last_ns, *(observed_until.get(host, 0) - round(seconds * _NS) for host, seconds in ahead.items())])
    age = None if whole is None else (until_ns - whole.start_ns) / _NS
    apart = figures.intervals_seconds(saves)
    usual = figures.median(apart) if len(apart) + 1 >= LEAST_SAVES else None
    stalls = figures.of_complete(saves, figures.stall_seconds)
    cost = figures.median(stalls) if stalls else None
    of_job = mttf / _nodes(every) if mttf is not None else None
    resumed = list(_resumed([*runs.values()]))
    return NewestRow(
        job=every[-1].whole.job,
        run=run_of(every[-1]),
        nodes=_nodes(every),
        step=None if whole is None else whole.step,
        path=None if whole is None else whole.path,
        saved_ns=None if whole is None else whole.start_ns,
        is_durable=None if whole is None or whole.durable_ns is None else whole.durable_ns <= until_ns,
        observed_until_ns=until_ns,
        age_seconds=age,
        unusable=sum(whole is None or one.start_ns > whole.start_ns for one in saves),
        saves=len(saves),
        interval_seconds=usual,
        is_overdue=None if usual is None or age is None else age > OVERDUE * usual,
        restarts=len(runs) - 1,
        resumed_seconds=figures.median(resumed) if resumed else None,
        stall_seconds=cost,
        mttf_seconds=of_job,
        optimal_interval_seconds=daly_exact(cost, of_job) if cost and of_job else None,
    )


def _resumed(runs: Sequence[Sequence[ClusterCheckpoint]]) -> Iterable[float]:
    """Yield, for each resumed run, the seconds from the end of the newest restorable save to the end of the restore."""
    for before, after in pairwise(runs):
        ends_ns = [one.end_ns for one in restorable(before)]
        back = [one.whole.end_ns for one in after if one.whole.kind is Kind.RESTORE]
        if ends_ns and back and min(back) > max(ends_ns):
            yield (min(back) - max(ends_ns)) / _NS
