"""What the restarts of a job cost: from the save that it goes on from to the first step after the restore.

The model. A restart is a restore of a save that was recorded, after the processes of the job ended, by a process that
saves later or lives when the job saves again. Evaluation is none: the trainer lives on, or no save follows. A restart
that failed before its first save looks the same, and counts only if Slurm started the job again and none of that run
saved: else its time belongs to the next restart. The saves of a job that was restarted go on under the job's name, or
to a path that differs in digits only: else it is another job that begins with this one's save (fine-tuning).

A restart without a restore is a save under the job's name and to its folder, by a new process, after the others ended.
It goes on from the last save if its step is higher (the restore was not observed), else it starts over from nothing.

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
    save: Count | None  # id of the checkpoint that it went on from
    restores: tuple[Count, ...]  # ids
    step: Count | None  # of the save; 0: it started over
    saved_ns: int | None  # epoch nanoseconds, as the next ones: training stopped for the save
    ended_ns: int | None  # last sign of life of the first of its processes that ended
    started_ns: int | None  # first sign of life of its processes
    restoring_ns: int | None
    restored_ns: int | None
    resumed_ns: int | None  # first step, worked out from the step of the next save
    seen_ns: int  # its first restore or save
    in_gap: bool  # nothing was recorded for a time between end and start: it may have ended later
    redone_seconds: Amount | None  # training after the save, without the time that saves blocked
    waiting_seconds: Amount | None  # from the end to the start
    starting_seconds: Amount | None  # from the start to the restore
    restoring_seconds: Amount | None
    warming_seconds: Amount | None  # from the restore, or else the start, to the first step
    down_seconds: Amount | None  # from the end to the first step; to the end of the restore if that is not known


class MonthOfRestarts(msgspec.Struct, frozen=True, kw_only=True):
    """The restarts of a month."""

    month: str  # UTC, of the restore or the first save: 2026-11
    restarts: Count
    redone_seconds: Amount  # where observed
    down_seconds: Amount  # where observed


class JobRestarts(msgspec.Struct, frozen=True, kw_only=True):
    """The restarts of one job."""

    job: str  # its name when it was observed last
    names: tuple[str, ...]  # all, the first one first: one for each launcher
    restarts: tuple[Restart, ...]
    months: tuple[MonthOfRestarts, ...]
    unsaved: Count  # restores by its program, after it ended, without a later save: evaluation, or failed restarts
    observed_seconds: Amount  # from its first step, as far as recorded, to the end of its last checkpoint
    redone_seconds: Amount  # where observed, as the next one
    down_seconds: Amount
    blocked_seconds: Amount  # by saves
    used_share: Share | None  # of the observed time, without these three; null if one end was not observed


@dataclass
class _Job:
    """The events of one job, in the order of their start."""

    saves: list[Checkpoint] = field(default_factory=list)
    starts: list[tuple[Checkpoint, Checkpoint | None]] = field(default_factory=list)
    # restores, each with the save that it reads; saves by new processes, each with the one that they may go on from
    pids: set[int] = field(default_factory=set)
    unsaved: int = 0  # see JobRestarts


@dataclass(frozen=True)
class _Life:
    """A restart, as found: its restores, else its first save; what it goes on from; when the processes before ended."""

    events: tuple[Checkpoint, ...]
    save: Checkpoint | None
    ended_ns: int | None
    next_save: Checkpoint | None

    @property
    def pids(self) -> set[int]:
        return {pid for one in self.events for pid in _pids(one)}

    @property
    def restores(self) -> tuple[Checkpoint, ...]:
        return tuple(one for one in self.events if one.kind is Kind.RESTORE)


def find_restarts(checkpoints: Iterable[Checkpoint], lives: LivesOf, gaps: Sequence[Gap] = ()) -> list[JobRestarts]:
    """Return the jobs that were restarted, the one that lost most first; `gaps`: times without a recording."""
    found = [_priced(job, accepted, lives, gaps) for job in _jobs(checkpoints) if (accepted := _restarts(job, lives))]
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
            _add_save(jobs[name], one)
            if figures.complete((one,)):
                written |= dict.fromkeys(_places(one, name), (jobs[name], one))
        elif one.kind is Kind.RESTORE:
            found = [written[place] for place in _readable(one, name) if place in written]
            if found:
                restored[name] = max(found, key=lambda pair: pair[1].start_ns)
                restored[name][0].starts.append((one, restored[name][1]))
                restored[name][0].pids |= _pids(one)
    every = list({id(job): job for job in jobs.values()}.values())
    for job in every:  # without what another job begins with
        job.starts = [pair for pair in job.starts if jobs.get(_name(pair[0]), job) is job]
    _take_detours(every)
    return [job for job in every if job.saves]


def _take_detours(every: Sequence[_Job]) -> None:
    """Give a job the saves of its program to its folder, between a save and the restore of this save."""
    alike: dict[tuple[str, str | None], list[_Job]] = {}
    for job in every:
        for first in job.saves[:1]:
            alike.setdefault((_title(first), _folder(first)), []).append(job)
    for job in every:
        for restore, save in list(job.starts):
            if save is None or save.path is None:
                continue
            for other in alike.get((_title(restore), _folder(save)), ()):
                others_ns = [one.start_ns for one in other.saves]
                if other is not job and others_ns and save.start_ns < others_ns[0] <= others_ns[-1] < restore.start_ns:
                    starts = [*job.starts, *other.starts, (other.saves[0], None)]
                    job.starts = sorted(starts, key=lambda pair: pair[0].start_ns)
                    job.saves = sorted([*job.saves, *other.saves], key=lambda one: one.start_ns)
                    other.saves, other.starts = [], []


def _add_save(job: _Job, save: Checkpoint) -> None:
    are_new = job.pids.isdisjoint(_pids(save)) and all(one.role in ("trainer", "thread") for one in save.writers)
    if are_new and save.step is not None and (complete := figures.complete(job.saves)):
        last = complete[-1]
        if last.step is not None and _folder(save) == _folder(last) is not None:
            job.starts.append((save, last if save.step > last.step else None))
    job.saves.append(save)
    job.pids |= _pids(save)


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
    restored = {pid for one, _ in job.starts if one.kind is Kind.RESTORE for pid in _pids(one)}
    for event, save in job.starts:
        before = found[-1] if found else None
        next_save = _next_save(job.saves, restored, event, lives)
        if before is not None and before.pids & _pids(event):
            if before.next_save is next_save:  # its second part
                found[-1] = replace(before, events=(*before.events, event), save=save)
            continue
        since_ns = 0 if before is None else before.events[0].start_ns
        processes, last_ns = set() if before is None else before.pids, since_ns
        for last in [one for one in job.saves if since_ns <= one.start_ns < event.start_ns][-1:]:
            processes, last_ns = processes | _pids(last), last.start_ns
        spans = [lives(pid, last_ns - _AROUND_NS, event.end_ns + _AROUND_NS) for pid in processes]
        earlier = [[one.end_ns for one in each if one.start_ns <= event.start_ns] for each in spans]
        ends = [max(each) for each in earlier if each]
        is_alive = processes & _pids(event) or any(end_ns >= event.start_ns for end_ns in ends)
        ended_ns = min((end_ns for end_ns in ends if end_ns >= last_ns), default=None)
        is_ended = event.kind is Kind.RESTORE or (ended_ns is not None and len(ends) == len(processes))
        if is_alive or not is_ended:
            continue
        if next_save is not None or _is_rerun(event, (*job.saves, *(one for life in found for one in life.events))):
            found.append(_Life((event,), save, ended_ns, next_save))
        elif any(_title(one) == _title(event) for one in job.saves):
            job.unsaved += 1
    return found


def _next_save(saves: Sequence[Checkpoint], restored: set[int], event: Checkpoint, lives: LivesOf) -> Checkpoint | None:
    """Return the first save by the processes of an event, or, while they live, by those that have not `restored`."""
    later = [one for one in saves if one.start_ns >= event.start_ns]
    own = next((one for one in later if _pids(one) & _pids(event)), None)
    other = next((one for one in later if restored.isdisjoint(_pids(one))), None)
    if other is None or (own is not None and own.start_ns <= other.start_ns):
        return own
    spans = (lives(pid, other.start_ns - _AROUND_NS, other.end_ns + _AROUND_NS) for pid in _pids(event))
    return other if any(span.end_ns >= other.start_ns for each in spans for span in each) else own


def _is_rerun(event: Checkpoint, others: Iterable[Checkpoint]) -> bool:
    """Whether Slurm started the job again for a run that has none of the other events."""
    numbers = {one.run.restart for one in others if one.run is not None and _name(one) == _name(event)}
    return bool(numbers) and event.run is not None and event.run.restart not in (None, *numbers)


def _priced(job: _Job, accepted: Sequence[_Life], lives: LivesOf, gaps: Sequence[Gap]) -> JobRestarts:
    first_ns = _first_ns(job, lives)
    restarts: list[Restart] = []
    trained: list[Interval] = []  # what the job had learned
    begun_ns = first_ns
    for number, life in enumerate(accepted):
        trained.append(Interval(begun_ns, max(begun_ns, life.ended_ns or begun_ns)))
        from_ns = _kept_ns(life, accepted[number + 1 :])
        lost = [Interval(max(each.start_ns, from_ns), each.end_ns) for each in trained if each.end_ns > from_ns]
        trained = [Interval(each.start_ns, min(each.end_ns, from_ns)) for each in trained if each.start_ns < from_ns]
        restarts.append(_restart(job, life, lost, lives, gaps))
        begun_ns = restarts[-1].resumed_ns or restarts[-1].restored_ns or restarts[-1].seen_ns
    is_known = all(one.ended_ns is not None for one in restarts)
    redone, down = sum(_known(restarts, "redone_seconds")), sum(_known(restarts, "down_seconds"))
    blocked = sum(map(figures.lost_seconds, job.saves))
    ends_ns = [one.end_ns for one in (*job.saves, *(event for event, _ in job.starts))]
    observed = (max(ends_ns) - first_ns) / NS
    return JobRestarts(
        job=restarts[-1].job,
        names=tuple(dict.fromkeys([*(one.job for one in job.saves), restarts[-1].job])),
        restarts=tuple(restarts),
        months=tuple(_month(month, tuple(each)) for month, each in groupby(restarts, _month_of)),
        unsaved=job.unsaved,
        observed_seconds=observed,
        redone_seconds=redone,
        down_seconds=down,
        blocked_seconds=blocked,
        used_share=max(0.0, 1 - (redone + down + blocked) / observed) if is_known and observed > 0 else None,
    )


def _kept_ns(life: _Life, later: Sequence[_Life]) -> int:
    """Return the end of what is kept: a job that starts over may go on from an older save after all."""
    begun_ns = life.events[0].start_ns
    saves = [one.save for one in (life, *later) if one.save is not None and one.save.start_ns < begun_ns]
    return _stop_ns(life.save) if life.save is not None else max(map(_stop_ns, saves), default=0)


def _first_ns(job: _Job, lives: LivesOf) -> int:
    """Return when the job began to train, or to be recorded."""
    first, step_ns = job.saves[0], _step_ns(job, 0)
    stop_ns = _stop_ns(first)
    if first.step is None or step_ns is None:
        return stop_ns
    since_ns = max(0, round(stop_ns - first.step * step_ns))
    return min((one.start_ns for pid in _pids(first) for one in lives(pid, since_ns, stop_ns)), default=stop_ns)


def _month_of(one: Restart) -> str:
    return units.stamp(one.seen_ns, timezone.utc, "%Y-%m")


def _month(month: str, each: Sequence[Restart]) -> MonthOfRestarts:
    redone, down = sum(_known(each, "redone_seconds")), sum(_known(each, "down_seconds"))
    return MonthOfRestarts(month=month, restarts=len(each), redone_seconds=redone, down_seconds=down)


def _restart(job: _Job, life: _Life, lost: Sequence[Interval], lives: LivesOf, gaps: Sequence[Gap]) -> Restart:
    first, ended_ns, save, next_save = life.events[0], life.ended_ns, life.save, life.next_save
    restoring_ns = life.restores[0].start_ns if life.restores else None
    restored_ns = max((one.end_ns for one in life.restores), default=None)
    since_ns = ended_ns if ended_ns is not None else 0 if save is None else save.end_ns
    seen = (lives(pid, since_ns, first.end_ns) for pid in life.pids)
    starts = [one.start_ns for each in seen for one in each if since_ns < one.start_ns <= first.start_ns]
    started_ns = min(starts, default=None)
    step_ns, resumed_ns = _step_ns(job, first.start_ns), None
    step = 0 if save is None else save.step
    if next_save is not None and step_ns is not None and step is not None and next_save.step is not None:
        stop_ns, least_ns = _stop_ns(next_save), restored_ns or started_ns or since_ns
        resumed_ns = max(least_ns, min(stop_ns, round(stop_ns - (next_save.step - step) * step_ns)))
    redone = None
    if ended_ns is not None:
        within = (one for one in job.saves if any(each.start_ns <= one.start_ns < each.end_ns for each in lost))
        spent_ns = sum(each.end_ns - each.start_ns for each in lost)
        redone = max(0.0, spent_ns / NS - sum(map(figures.lost_seconds, within)))
    return Restart(
        job=first.job,
        save=None if save is None else save.id,
        restores=tuple(one.id for one in life.restores),
        step=step,
        saved_ns=None if save is None else _stop_ns(save),
        ended_ns=ended_ns,
        started_ns=started_ns,
        restoring_ns=restoring_ns,
        restored_ns=restored_ns,
        resumed_ns=resumed_ns,
        seen_ns=first.start_ns,
        in_gap=any(gap.start_ns < first.start_ns and gap.end_ns > since_ns for gap in gaps if not gap.lost_samples),
        redone_seconds=redone,
        waiting_seconds=_seconds(ended_ns, started_ns),
        starting_seconds=_seconds(started_ns, restoring_ns),
        restoring_seconds=_seconds(restoring_ns, restored_ns),
        warming_seconds=_seconds(restored_ns or started_ns, resumed_ns),
        down_seconds=_seconds(ended_ns, restored_ns if resumed_ns is None else resumed_ns),
    )


def _step_ns(job: _Job, restored_ns: int) -> float | None:
    """Return the time of a step, from the next two saves with only training between them, else from the last two."""
    starts_ns = [event.start_ns for event, _ in job.starts]
    found = [
        (one.start_ns >= restored_ns, (_stop_ns(later) - _stop_ns(one) - figures.lost_seconds(one) * NS) / steps)
        for one, later in pairwise(job.saves)
        if one.step is not None and later.step is not None and (steps := later.step - one.step) > 0
        and not any(one.start_ns < at_ns <= later.start_ns for at_ns in starts_ns)
    ]  # fmt: skip
    before = [step_ns for is_after, step_ns in found if not is_after]
    return next((step_ns for is_after, step_ns in found if is_after), before[-1] if before else None)


def _stop_ns(save: Checkpoint) -> int:
    """Return when training stopped for a save: what comes after is not in it."""
    return min(save.start_ns, save.blocked[0].start_ns) if save.blocked else save.start_ns


def _pids(one: Checkpoint) -> set[int]:
    """Return the training processes of an event; a child or a daemon that writes ends by itself."""
    return {writer.pid for writer in one.writers if writer.role not in ("child", "daemon")}


def _folder(one: Checkpoint) -> str | None:
    return None if one.path is None else one.path.rpartition("/")[0]


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
