"""What each job would go back to if it failed now, and how often it should save on this fleet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import msgspec

from ckptprof import figures
from ckptprof.bounds import Amount, Count
from ckptprof.cluster.fleet.runs import Told, counted, grouped, job_of, run_of
from ckptprof.cluster.model import ClusterCheckpoint, NodeRecord
from ckptprof.diagnose.plan.intervals import daly_exact
from ckptprof.model import Checkpoint, Kind

OVERDUE = 2  # times its usual interval
LEAST_SAVES = 3  # that tell what is usual
_NS = 1_000_000_000


class NewestRow(msgspec.Struct, frozen=True, kw_only=True):
    """The newest checkpoint that a job can be restored from. None: not known, or there is none."""

    job: str
    run: str  # the last one of the job: its key, or node and job where nothing tells one
    nodes: Count  # at most, of one checkpoint
    step: int | None
    path: str | None
    saved_ns: int | None  # epoch nanoseconds: when that save began; None: none is whole
    is_durable: bool | None  # it is on stable storage
    seen_until_ns: int  # epoch nanoseconds: until then its nodes were watched
    age_seconds: Amount | None  # of the step, at that time: so much would have to be computed again
    unusable: Count  # saves since then that broke off, or may restore wrongly
    saves: Count
    interval_seconds: Amount | None  # between the starts of two saves, the median
    is_overdue: bool | None  # the age is more than twice that. Nothing tells whether the job has ended
    restarts: Count  # runs of the job after its first
    resumed_seconds: Amount | None  # from the end of a run's newest restorable save until the next run had restored
    # one, the median: computed again, or spent on waiting
    held_seconds: Amount | None  # that a save blocks training, the median
    mttf_seconds: Amount | None  # between restarts on as many nodes, by the whole fleet
    best_interval_seconds: Amount | None  # for these two (Daly)


class Newest(Told, frozen=True, kw_only=True):
    """What each job would go back to, that which would lose most first."""

    node_seconds: Amount  # that runs were seen for, times their nodes
    restarts: Count  # of all jobs
    jobs: tuple[NewestRow, ...]


def newest(checkpoints: Sequence[ClusterCheckpoint], records: Iterable[NodeRecord], now_ns: int) -> Newest:
    """Return the newest restorable step of each job that saves, at the time until which its nodes were watched."""
    every = counted(checkpoints)
    jobs = {job: grouped(mine, run_of) for job, mine in grouped(every, job_of).items()}
    restarts = sum(len(runs) - 1 for runs in jobs.values())
    spent = sum(_seconds(run) * _nodes(run) for runs in jobs.values() for run in runs.values())
    mttf = spent / restarts if restarts and spent else None  # of one node
    seen: dict[str, int] = {}
    for record in records:
        if record.watched.end_ns is not None:
            seen[record.host] = min(now_ns, max(record.watched.end_ns, seen.get(record.host, 0)))
    rows = [_row(runs, seen, mttf) for runs in jobs.values()]
    told = [one for one in rows if one.saves]
    told.sort(key=lambda one: (one.age_seconds is not None, -(one.age_seconds or 0.0), one.job, one.run))
    return Newest(checkpoints=len(every), node_seconds=spent, restarts=restarts, jobs=tuple(told))


def restorable(saves: Iterable[ClusterCheckpoint]) -> list[Checkpoint]:
    """Return the saves of one run that are whole on all nodes that have a part, as far as that was seen.

    A node that wrote before has one: of a node that nobody tells of, its last save; of one that was watched and wrote
    nothing, the save just before, for a run may go over to saving on fewer nodes.
    """
    found: list[Checkpoint] = []
    wrote: set[str] = set()  # in the last save of which all nodes were seen
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


def _row(runs: Mapping[str, Sequence[ClusterCheckpoint]], seen: Mapping[str, int], mttf: float | None) -> NewestRow:
    every = [one for mine in runs.values() for one in mine]
    saves = [one.whole for one in every if one.whole.kind is Kind.SAVE]
    usable = [one for mine in runs.values() for one in restorable(mine)]
    whole = max(usable, key=lambda one: one.start_ns, default=None)
    last_ns = max(one.whole.end_ns for one in every)
    ahead = {part.host: part.ahead_seconds or 0.0 for one in every for part in one.nodes}
    until_ns = max([last_ns, *(seen.get(host, 0) - round(seconds * _NS) for host, seconds in ahead.items())])
    age = None if whole is None else (until_ns - whole.start_ns) / _NS
    apart = figures.intervals_seconds(saves)
    usual = figures.median(apart) if len(apart) + 1 >= LEAST_SAVES else None
    held = figures.of_complete(saves, figures.stall_seconds)
    cost = figures.median(held) if held else None
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
        seen_until_ns=until_ns,
        age_seconds=age,
        unusable=sum(whole is None or one.start_ns > whole.start_ns for one in saves),
        saves=len(saves),
        interval_seconds=usual,
        is_overdue=None if usual is None or age is None else age > OVERDUE * usual,
        restarts=len(runs) - 1,
        resumed_seconds=figures.median(resumed) if resumed else None,
        held_seconds=cost,
        mttf_seconds=of_job,
        best_interval_seconds=daly_exact(cost, of_job) if cost and of_job else None,
    )


def _resumed(runs: Sequence[Sequence[ClusterCheckpoint]]) -> Iterable[float]:
    """Return for each run after one that could be restored when it had restored, from the end of that one's newest."""
    for before, after in pairwise(runs):
        kept = [one.end_ns for one in restorable(before)]
        back = [one.whole.end_ns for one in after if one.whole.kind is Kind.RESTORE]
        if kept and back and min(back) > max(kept):
            yield (min(back) - max(kept)) / _NS
