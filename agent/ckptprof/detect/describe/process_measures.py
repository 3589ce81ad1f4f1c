"""What each process of the job did from a checkpoint's start to its end, also those that only waited for it."""

from __future__ import annotations

from collections.abc import Iterator

from ckptprof.detect.describe.draft import Draft
from ckptprof.detect.describe.thread_measures import Act
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.stacks import act
from ckptprof.frameworks.runtimes import NUMERIC_RUNTIMES, TRAINING_RUNTIMES
from ckptprof.measures import ProcessMeasure

MAX_TOLD = 64
_PAUSES = "dirty-pauses"  # the program of the trace that tells of them


def processes_of(draft: Draft, acts: list[Act]) -> tuple[ProcessMeasure, ...]:
    """Return those that moved bytes, most first, then the others of the job, by rank."""
    members = members_of(draft)
    return tuple(_measure(draft, process, acts) for process in members[:MAX_TOLD])


def members_of(draft: Draft) -> list[ProcessKey]:
    """Return the processes that were there, those that moved most first."""
    candidate, jobs = draft.candidate, draft.known.world.jobs
    moved = dict.fromkeys(candidate.processes, 0)
    for part in candidate.parts:
        moved[part.process] += part.bytes
    writers = sorted(moved, key=lambda process: -moved[process])
    others = [
        process
        for process, history in draft.known.world.histories.items()
        if process not in moved
        and history.first_ns <= candidate.end_ns
        and _trains(draft, process)
        and jobs.job_of(process) == candidate.job
    ]
    return [*writers, *sorted(others, key=lambda process: (jobs.rank(process) or 0, process))]


def _trains(draft: Draft, process: ProcessKey) -> bool:
    """Return whether it is one of those that train, and was alive then."""
    info = draft.known.world.jobs.info(process)
    if info is None or draft.known.world.ended.get(process, draft.candidate.end_ns) < draft.candidate.start_ns:
        return False
    loaded = bool(set(info.runtimes) & (TRAINING_RUNTIMES | NUMERIC_RUNTIMES))
    return (loaded or draft.known.world.jobs.rank(process) is not None) and not draft.known.world.jobs.is_tool(process)


def _measure(draft: Draft, process: ProcessKey, acts: list[Act]) -> ProcessMeasure:
    candidate, jobs = draft.candidate, draft.known.world.jobs
    start_ns, end_ns = candidate.start_ns, candidate.end_ns
    parts = [part for part in candidate.parts if part.process == process]
    own = [one for one in acts if one.process == process]
    used = draft.known.world.host.usage.used(process, start_ns, end_ns)
    paused = draft.known.world.host.usage.paused(process, start_ns, end_ns)
    if paused is None and any(one.is_counted for one in acts) and draft.known.world.health.attached(_PAUSES):
        paused = 0, 0
    history = draft.known.world.histories.get(process)
    around = history.between(start_ns, end_ns) if history is not None else []
    faulted = sum(session.faulted_bytes for part in parts for session in part.threads)
    mapped = any(part.mapped_bytes for part in parts)
    ranks = draft.ranks()
    return ProcessMeasure(
        pid=process[0],
        comm=jobs.comm(process),
        rank=ranks[process[0]] if process[0] in ranks else jobs.rank(process),
        bytes=sum(part.bytes for part in parts),
        first_ns=draft.known.world.clock.wall(min(part.start_ns for part in parts)) if parts else None,
        last_ns=draft.known.world.clock.wall(max(part.end_ns for part in parts)) if parts else None,
        busy=used.cores if used is not None else None,
        dirty_pauses=paused[0] if paused is not None else None,
        dirty_pause_ns=paused[1] if paused is not None else None,
        major_faults=used.major_faults if used is not None else None,
        minor_faults=used.minor_faults if used is not None else None,
        faulted_bytes=faulted or (sum(one.resident_bytes for one in around) if mapped else 0) if parts else None,
        fetched_bytes=sum(one.fetched_bytes for one in around) if history is not None and history.last_io else None,
        grown_bytes=used.grown_bytes if used is not None else None,
        stacks=_stacks(draft, process, own),
    )


def _stacks(draft: Draft, process: ProcessKey, own: list[Act]) -> dict[str, int] | None:
    """Return what its writing threads were met at, of one that wrote nothing its main thread; None: no look."""
    tids = {one.tid for one in own} or {process[0]}
    found: dict[str, int] = {}
    for frames in _frames(draft, process, tids):
        what = act(frames)
        found[what] = found.get(what, 0) + 1
    return found or None


def _frames(draft: Draft, process: ProcessKey, tids: set[int]) -> Iterator[tuple[tuple[str, str, int], ...]]:
    for look in draft.known.world.trainers.stacks(process, draft.candidate.start_ns, draft.candidate.end_ns):
        for thread in look.threads:
            if thread.tid in tids and thread.frames:
                yield thread.frames
