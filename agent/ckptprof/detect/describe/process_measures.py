"""What each process of the job did during a checkpoint, including those that only waited for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ckptprof.detect.describe.draft import Draft
from ckptprof.detect.describe.thread_measures import ThreadAct
from ckptprof.detect.tolerances import MAX_PER_ITEM
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.stack_states import classify_act
from ckptprof.frameworks.program_names import NUMERIC_RUNTIMES, TRAINING_RUNTIMES
from ckptprof.measures import ProcessMeasure

_PAUSE_PROGRAM = "dirty-pauses"  # the trace program that counts them


def measure_processes(draft: Draft, acts: list[ThreadAct]) -> tuple[ProcessMeasure, ...]:
    """Measure the processes that transferred bytes, most first, then the others of the job, by rank."""
    return tuple(_measure(draft, process, acts) for process in list_job_processes(draft))


def list_job_processes(draft: Draft) -> list[ProcessKey]:
    """List the processes of the job, at most MAX_EACH, writers first."""
    jobs = draft.world.jobs
    others = [
        process
        for process, history in draft.world.histories.items()
        if process not in draft.writers
        and history.first_ns <= draft.candidate.end_ns
        and _is_member(draft, process)
        and jobs.job_of(process) == draft.candidate.job
    ]
    others.sort(key=lambda process: (jobs.rank(process) or 0, process))
    return [*draft.writers, *others][:MAX_PER_ITEM]


def _is_member(draft: Draft, process: ProcessKey) -> bool:
    jobs, candidate = draft.world.jobs, draft.candidate
    info = jobs.info(process)
    if info is None or draft.world.ended.get(process, candidate.end_ns) < candidate.start_ns:
        return False
    loaded = bool(set(info.runtimes) & (TRAINING_RUNTIMES | NUMERIC_RUNTIMES))
    return (loaded or jobs.rank(process) is not None) and not jobs.is_tool(process)


def _measure(draft: Draft, process: ProcessKey, acts: list[ThreadAct]) -> ProcessMeasure:
    world, span = draft.world, (draft.candidate.start_ns, draft.candidate.end_ns)
    own_acts = [one for one in acts if one.process == process]
    used = world.usage.totals(process, *span)
    pauses, pause_ns = world.usage.pause_totals(process, *span) or (None, None)
    if pauses is None and any(one.is_counted for one in acts) and world.health.is_attached(_PAUSE_PROGRAM):
        pauses = pause_ns = 0
    history = world.histories[process]
    intervals = history.between(*span)
    writer = draft.writers.get(process)
    parts = [part for part in draft.candidate.parts if part.process == process]
    faulted = sum(session.faulted_bytes for part in parts for session in part.threads)
    if not faulted and any(part.mapped_bytes for part in parts):
        faulted = sum(one.resident_bytes for one in intervals)
    tids = {one.tid for one in own_acts} or {process[0]}
    return ProcessMeasure(
        pid=process[0],
        comm=world.jobs.comm(process),
        rank=world.jobs.rank(process) if writer is None else writer.rank,
        bytes=writer.bytes if writer is not None else 0,
        first_ns=writer.start_ns if writer is not None else None,
        last_ns=writer.end_ns if writer is not None else None,
        dirty_pauses=pauses,
        dirty_pause_ns=pause_ns,
        faulted_bytes=faulted if writer is not None else None,
        fetched_bytes=sum(one.fetched_bytes for one in intervals) if history.last_io else None,
        stacks=dict(Counter(map(classify_act, _sampled_frames(draft, process, tids)))) or None,
        **(used._asdict() if used is not None else {}),
    )


def _sampled_frames(draft: Draft, process: ProcessKey, tids: set[int]) -> Iterator[tuple[tuple[str, str, int], ...]]:
    """Yield the sampled frames of its writing threads, or of its main thread if it wrote nothing."""
    for sample in draft.world.trainers.stacks(process, draft.candidate.start_ns, draft.candidate.end_ns):
        for thread in sample.threads:
            if thread.tid in tids and thread.frames:
                yield thread.frames
