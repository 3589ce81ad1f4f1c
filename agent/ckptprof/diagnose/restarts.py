"""What the restarts of a job cost: from the save that it goes on from to the first step after the restore.

The model. A restart is a restore of a save that was recorded, by a process that did not write it, after the processes
of the job ended. Evaluation is none: the trainer lives on, or the process that restored has ended when the job saves
again. The saves of a job that was restarted go on under the job's name, or to a path that differs in digits only: else
it is another job that begins with this one's save (fine-tuning).

The end of a process is the last change of its counters, its start the first. The first step is worked out from the
steps of the next save: a step takes as long as between two saves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timezone
from itertools import accumulate, groupby, pairwise

import msgspec

from ckptprof import figures, units
from ckptprof.bounds import Amount, Count, Share
from ckptprof.frameworks.runkeys import job_key
from ckptprof.model import Checkpoint, Gap, Interval, Kind
from ckptprof.units import NS

# The times in which the counters of processes with a pid changed, from `since_ns` to `until_ns`
LivesOf = Callable[[int, int, int], Sequence[Interval]]
_AROUND_NS = 60 * NS  # an event is at most so long before or after a sign of life of its processes


class Restart(msgspec.Struct, frozen=True, kw_only=True):
    """A job that ended, as planned or not, and went on from a save; null: not observed."""

    job: str  # that went on
    save: Count  # id of the checkpoint that it went on from
    restore: Count  # id
    step: Count | None  # of the save
    saved_ns: int  # epoch nanoseconds, as the next ones: training stopped for the save
    ended_ns: int | None  # last sign of life of the first of its processes that ended
    started_ns: int | None  # first sign of life of a process that restored
    restoring_ns: int
    restored_ns: int
    resumed_ns: int | None  # first step, worked out from the step of the next save
    in_gap: bool  # nothing was recorded for a time between end and start: it may have ended later
    redone_seconds: Amount | None  # training after the save, without the time that saves blocked
    waiting_seconds: Amount | None  # from the end to the start
    starting_seconds: Amount | None  # from the start to the restore
    restoring_seconds: Amount
    warming_seconds: Amount | None  # from the restore to the first step
    down_seconds: Amount | None  # from the end to the first step; to the end of the restore if that is not known


class MonthOfRestarts(msgspec.Struct, frozen=True, kw_only=True):
    """The restarts of a month."""

    month: str  # UTC, of the restore: 2026-11
    restarts: Count
    redone_seconds: Amount  # where observed
    down_seconds: Amount  # where observed


class JobRestarts(msgspec.Struct, frozen=True, kw_only=True):
    """The restarts of one job."""

    job: str  # its name when it was observed last
    restarts: tuple[Restart, ...]
    months: tuple[MonthOfRestarts, ...]
    observed_seconds: Amount  # from its first save to the end of its last checkpoint
    redone_seconds: Amount  # where observed, as the next one
    down_seconds: Amount
    blocked_seconds: Amount  # by saves
    used_share: Share | None  # of the observed time, without these three; null if one end was not observed


@dataclass
class _Job:
    """The events of one job, in the order of their start."""

    saves: list[Checkpoint] = field(default_factory=list)
    restores: list[tuple[Checkpoint, Checkpoint]] = field(default_factory=list)  # each with the save that it reads


@dataclass(frozen=True)
class _Life:
    """A restart, as found: its restores, the save that they read, and when the processes before it ended."""

    restores: tuple[Checkpoint, ...]
    save: Checkpoint
    ended_ns: int | None
    next_save: Checkpoint | None

    @property
    def pids(self) -> set[int]:
        return {pid for one in self.restores for pid in _pids(one)}


def find_restarts(checkpoints: Iterable[Checkpoint], lives: LivesOf, gaps: Sequence[Gap] = ()) -> list[JobRestarts]:
    """Return the jobs that were restarted, the one that lost most first; `gaps`: times without a recording."""
    found = []
    for job in _jobs(checkpoints):
        accepted = _restarts(job, lives)
        if accepted:
            found.append(_priced(job, accepted, lives, gaps))
    return sorted(found, key=lambda one: (-(one.redone_seconds + one.down_seconds), one.job))


def _jobs(checkpoints: Iterable[Checkpoint]) -> list[_Job]:
    """Group saves into jobs, with the restores that read them."""
    jobs: dict[str, _Job] = {}  # by each of its names
    written: dict[str, tuple[_Job, Checkpoint]] = {}  # by path: the newest complete save
    restored: dict[str, tuple[_Job, Checkpoint]] = {}  # by the name of a job: what it read last
    for one in sorted(checkpoints, key=lambda one: (one.start_ns, one.id)):
        name = _name(one)
        if one.kind is Kind.SAVE:
            if name not in jobs:
                job, read = restored.get(name, (_Job(), None))
                jobs[name] = job if read is None or _pattern(one) == _pattern(read) else _Job()
            jobs[name].saves.append(one)
            if figures.complete((one,)):
                written |= dict.fromkeys(_places(one, name), (jobs[name], one))
        elif one.kind is Kind.RESTORE:
            found = [written[place] for place in _readable(one, name) if place in written]
            if found:
                restored[name] = max(found, key=lambda pair: pair[1].start_ns)
                restored[name][0].restores.append((one, restored[name][1]))
    every = list({id(job): job for job in jobs.values()}.values())
    for job in every:  # without what another job begins with
        job.restores = [pair for pair in job.restores if jobs.get(_name(pair[0]), job) is job]
    return every


def _places(save: Checkpoint, name: str) -> tuple[str, ...]:
    """Return where a save can be found: its path, its folder; in an object store, by its job."""
    return (f"job {name}",) if save.path is None else (save.path, f"{save.path.rpartition('/')[0]}/*")


def _readable(restore: Checkpoint, name: str) -> tuple[str, ...]:
    """Return the places that a restore may have read: its path, a folder above it, files in it."""
    if restore.path is None:
        return (f"job {name}",)
    folders = accumulate(restore.path.split("/"), "{}/{}".format)
    return (f"{restore.path}/*", *folders)


def _restarts(job: _Job, lives: LivesOf) -> list[_Life]:
    found: list[_Life] = []
    for restore, save in job.restores:
        before = found[-1] if found else None
        others_ns = (other.start_ns for other, _ in job.restores if not _pids(other) & _pids(restore))
        until_ns = min((at_ns for at_ns in others_ns if at_ns > restore.start_ns), default=None)
        later = [one for one in job.saves if one.start_ns >= restore.start_ns]
        own = [one for one in later if until_ns is None or one.start_ns < until_ns or _pids(one) & _pids(restore)]
        next_save = own[0] if own else None
        if before is not None and before.pids & _pids(restore):
            if before.next_save is next_save:  # its second part
                found[-1] = replace(before, restores=(*before.restores, restore), save=save)
            continue
        since_ns = 0 if before is None else before.restores[0].start_ns
        processes, last_ns = set() if before is None else before.pids, since_ns
        for last in [one for one in job.saves if since_ns < one.start_ns < restore.start_ns][-1:]:
            processes, last_ns = processes | _pids(last), last.start_ns
        spans = [lives(pid, last_ns - _AROUND_NS, restore.end_ns + _AROUND_NS) for pid in processes]
        ends = [max(one.end_ns for one in each if one.start_ns <= restore.start_ns) for each in spans if each]
        is_alive = processes & _pids(restore) or any(end_ns >= restore.start_ns for end_ns in ends)
        if not is_alive and _goes_on(job, restore, next_save, lives):
            ended_ns = min((end_ns for end_ns in ends if end_ns >= last_ns), default=None)
            found.append(_Life((restore,), save, ended_ns, next_save))
    return found


def _goes_on(job: _Job, restore: Checkpoint, next_save: Checkpoint | None, lives: LivesOf) -> bool:
    """Whether the process that restored trains: it saves, or lives when the job saves, or has the job's program."""
    if next_save is None:
        return any(_title(one) == _title(restore) for one in job.saves)
    if _pids(restore) & _pids(next_save):
        return True
    spans = (lives(pid, next_save.start_ns - _AROUND_NS, next_save.end_ns + _AROUND_NS) for pid in _pids(restore))
    return any(one.end_ns >= next_save.start_ns for each in spans for one in each)


def _priced(job: _Job, accepted: Sequence[_Life], lives: LivesOf, gaps: Sequence[Gap]) -> JobRestarts:
    restarts: list[Restart] = []
    for life in accepted:
        restarts.append(_restart(job, life, restarts[-1] if restarts else None, lives, gaps))
    is_known = all(one.ended_ns is not None for one in restarts)
    redone, down = sum(_known(restarts, "redone_seconds")), sum(_known(restarts, "down_seconds"))
    blocked = sum(map(figures.lost_seconds, job.saves))
    ends_ns = [one.end_ns for one in (*job.saves, *(restore for restore, _ in job.restores))]
    observed = (max(ends_ns) - _stop_ns(job.saves[0])) / NS
    return JobRestarts(
        job=restarts[-1].job,
        restarts=tuple(restarts),
        months=tuple(_month(month, tuple(each)) for month, each in groupby(restarts, _month_of)),
        observed_seconds=observed,
        redone_seconds=redone,
        down_seconds=down,
        blocked_seconds=blocked,
        used_share=max(0.0, 1 - (redone + down + blocked) / observed) if is_known and observed > 0 else None,
    )


def _month_of(one: Restart) -> str:
    return units.stamp(one.restored_ns, timezone.utc, "%Y-%m")


def _month(month: str, each: Sequence[Restart]) -> MonthOfRestarts:
    redone, down = sum(_known(each, "redone_seconds")), sum(_known(each, "down_seconds"))
    return MonthOfRestarts(month=month, restarts=len(each), redone_seconds=redone, down_seconds=down)


def _restart(job: _Job, life: _Life, before: Restart | None, lives: LivesOf, gaps: Sequence[Gap]) -> Restart:
    restoring_ns, restored_ns = life.restores[0].start_ns, max(one.end_ns for one in life.restores)
    ended_ns, save, next_save = life.ended_ns, life.save, life.next_save
    since_ns = ended_ns if ended_ns is not None else save.end_ns
    starts = [one.start_ns for pid in life.pids for one in lives(pid, since_ns, restored_ns) if one.start_ns > since_ns]
    started_ns = min((start_ns for start_ns in starts if start_ns <= restoring_ns), default=None)
    step_ns, resumed_ns = _step_ns(job, restored_ns), None
    if next_save is not None and step_ns is not None and save.step is not None and next_save.step is not None:
        stop_ns = _stop_ns(next_save)
        resumed_ns = max(restored_ns, min(stop_ns, round(stop_ns - (next_save.step - save.step) * step_ns)))
    trained_ns = _stop_ns(save)
    if before is not None:  # it may have been restarted since the save
        trained_ns = max(trained_ns, before.resumed_ns or before.restored_ns)
    redone = None
    if ended_ns is not None:
        blocked = (figures.lost_seconds(one) for one in job.saves if trained_ns <= one.start_ns < ended_ns)
        redone = max(0.0, (ended_ns - trained_ns) / NS - sum(blocked))
    return Restart(
        job=life.restores[0].job,
        save=save.id,
        restore=life.restores[0].id,
        step=save.step,
        saved_ns=_stop_ns(save),
        ended_ns=ended_ns,
        started_ns=started_ns,
        restoring_ns=restoring_ns,
        restored_ns=restored_ns,
        resumed_ns=resumed_ns,
        in_gap=any(gap.start_ns < restoring_ns and gap.end_ns > since_ns for gap in gaps if not gap.lost_samples),
        redone_seconds=redone,
        waiting_seconds=_seconds(ended_ns, started_ns),
        starting_seconds=_seconds(started_ns, restoring_ns),
        restoring_seconds=(restored_ns - restoring_ns) / NS,
        warming_seconds=_seconds(restored_ns, resumed_ns),
        down_seconds=_seconds(ended_ns, restored_ns if resumed_ns is None else resumed_ns),
    )


def _step_ns(job: _Job, restored_ns: int) -> float | None:
    """Return the time of a step, from the next two saves with only training between them, else from the last two."""
    restores_ns = [restore.start_ns for restore, _ in job.restores]
    found = [
        (one.start_ns >= restored_ns, (_stop_ns(later) - _stop_ns(one) - figures.lost_seconds(one) * NS) / steps)
        for one, later in pairwise(job.saves)
        if one.step is not None and later.step is not None and (steps := later.step - one.step) > 0
        and not any(one.start_ns < at_ns < later.start_ns for at_ns in restores_ns)
    ]  # fmt: skip
    before = [step_ns for is_after, step_ns in found if not is_after]
    return next((step_ns for is_after, step_ns in found if is_after), before[-1] if before else None)


def _stop_ns(save: Checkpoint) -> int:
    """Return when training stopped for a save: what comes after is not in it."""
    return min(save.start_ns, save.blocked[0].start_ns) if save.blocked else save.start_ns


def _pids(one: Checkpoint) -> set[int]:
    """Return the training processes of an event; a child or a daemon that writes ends by itself."""
    return {writer.pid for writer in one.writers if writer.role not in ("child", "daemon")}


def _pattern(one: Checkpoint) -> str | None:
    return None if one.path is None else re.sub(r"\d+", "#", one.path)


def _name(one: Checkpoint) -> str:
    """Return the name of a job; a rendezvous may be that of other jobs, at other times."""
    return one.job if one.run is None or one.run.scheduler == "rendezvous" else job_key(one.run)


def _title(one: Checkpoint) -> str:
    """Return the name of a job without the pid of its launcher."""
    return re.sub(r"-\d+$", "", _name(one))


def _seconds(start_ns: int | None, end_ns: int | None) -> float | None:
    return None if start_ns is None or end_ns is None else max(0, end_ns - start_ns) / NS


def _known(restarts: Sequence[Restart], name: str) -> list[float]:
    return [value for one in restarts if (value := getattr(one, name)) is not None]
