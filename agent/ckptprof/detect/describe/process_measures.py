"""What each process of the job did during a checkpoint, including those that only waited for it, and their memory."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate

from ckptprof.detect.describe.draft import Draft
from ckptprof.detect.describe.thread_measures import ThreadAct
from ckptprof.detect.tolerances import COUNTER_LAG_NS, LITTLE_SHARE, MAX_PER_ITEM
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.processes import key_of
from ckptprof.detect.world.spans import Span
from ckptprof.detect.world.stack_states import classify_act
from ckptprof.detect.world.training_threads import BASELINE_NS
from ckptprof.frameworks.program_names import NUMERIC_RUNTIMES, TRAINING_RUNTIMES
from ckptprof.measures import DeviceMeasure, JobMemoryMeasure, ProcessMeasure, UsageMeasure

_PAUSE_PROGRAM = "dirty-pauses"  # the trace program that counts them


def measure_processes(draft: Draft, acts: list[ThreadAct]) -> tuple[ProcessMeasure, ...]:
    """Measure the processes that transferred bytes, most first, then the others of the job, by rank."""
    return tuple(_measure(draft, process, acts) for process in list_job_processes(draft))


def measure_others(draft: Draft, acts: list[ThreadAct], disks: Iterable[DeviceMeasure]) -> tuple[UsageMeasure, ...]:
    """Measure by name which other observed processes used CPUs or disks, those that the writers started apart.

    Nothing if no thread waited for a CPU, and no disk transferred more than the checkpoint.
    """
    span = draft.candidate.start_ns, draft.candidate.end_ns
    least_ns, least_bytes = LITTLE_SHARE * (span[1] - span[0]), LITTLE_SHARE * draft.candidate.bytes
    waits_ns = [None if one.usage is None else one.usage.runqueue_ns for one in acts]
    has_waited = any(one is None or one >= least_ns for one in waits_ns)
    is_shared = any(one.read_bytes + one.written_bytes > draft.candidate.bytes + least_bytes for one in disks)
    if not has_waited and not is_shared:
        return ()
    jobs, used = draft.world.jobs, dict[tuple[str, bool], list[tuple[float, int]]]()
    for process in draft.world.histories.keys() - set(list_job_processes(draft)):
        usage, info = draft.world.usage.totals(process, *span), jobs.info(process)
        intervals = draft.world.histories[process].between(*span)
        busy, disk_bytes = usage.busy if usage else 0.0, sum(one.fetched_bytes + one.dirtied_bytes for one in intervals)
        if busy >= LITTLE_SHARE or disk_bytes >= least_bytes:
            above = jobs.ancestors(info)[1:] if info is not None else ()
            is_own = any(key_of(one) in draft.writers for one in above)
            used.setdefault((jobs.comm(process), is_own), []).append((busy, disk_bytes))
    found = [
        UsageMeasure(comm=comm, count=len(each), busy=sum(busy for busy, _ in each), started_by_writer=is_own,
                     disk_bytes=sum(disk_bytes for _, disk_bytes in each))
        for (comm, is_own), each in used.items()
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda one: (-one.busy, one.comm))[:MAX_PER_ITEM])


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


def measure_job_memory(draft: Draft, stopped_ns: int) -> JobMemoryMeasure:
    """Measure the memory of a job around a save, from the time that training stopped.

    A process shares the pages of the one that forked it: of a child that was born to write only growth counts. What a
    cgroup has beyond its processes (tmpfs, the kernel's, other processes) is added to their peak: it is sampled only
    while bytes are transferred, perhaps before the peak, or when a short transfer has ended.
    """
    start_ns = min([stopped_ns, *(start_ns for start_ns, _ in draft.stall.blocked)])
    end_ns = draft.candidate.end_ns + COUNTER_LAG_NS
    since_ns = max(start_ns - BASELINE_NS, draft.known.history.blocked_until_ns(draft.candidate.job, start_ns))
    levels = _job_levels(draft, since_ns)
    after = [level for at_ns, level in levels if end_ns < at_ns <= draft.world.counted_ns]
    peak = max((level for at_ns, level in levels if at_ns <= end_ns), default=None)
    limits = _limits(draft, (start_ns, end_ns), levels, peak or 0)
    is_cgroup, limit, used = min(limits, key=lambda one: one[1] - one[2], default=(None, None, None))
    return JobMemoryMeasure(
        before_bytes=min((level for at_ns, level in levels if at_ns <= start_ns), default=None),
        peak_bytes=peak,
        after_bytes=min(after, default=0) or None,
        limit_bytes=limit,
        is_of_cgroup=is_cgroup,
        used_peak_bytes=used,
    )


def _job_levels(draft: Draft, since_ns: int) -> list[tuple[int, int]]:
    """Add up the anonymous memory of the processes of the job: (time, bytes) when it changed, and zero at the end."""
    world, changes = draft.world, Counter[int]()
    for process in list_job_processes(draft):
        ended_ns = world.ended.get(process, world.counted_ns + 1)
        levels = [one for one in world.usage.levels(process, since_ns, ended_ns) if one[0] < ended_ns]
        is_forked = process in draft.writers and world.jobs.parent(process) in world.histories
        shared = levels[0][1] if is_forked and levels and levels[0][0] > since_ns else 0
        held = 0
        for at_ns, level in [*levels, (ended_ns, 0)] if levels else ():
            own = max(0, level - shared)
            changes[max(since_ns, at_ns)] += own - held
            held = own
    times = sorted(changes)
    return list(zip(times, accumulate(changes[at_ns] for at_ns in times), strict=True))


def _limits(draft: Draft, span: Span, levels: list[tuple[int, int]], peak: int) -> Iterator[tuple[bool, int, int]]:
    """Yield of the host and each cgroup: whether it is a cgroup, its limit, and at most used, in bytes."""
    host = draft.world.memory.between(*span)
    if host is not None and host.total_bytes is not None and host.available_min_bytes is not None:
        yield False, host.total_bytes, host.total_bytes - host.available_min_bytes
    times = [at_ns for at_ns, _ in levels]
    for process in draft.writers:
        for at_ns, limit, used in draft.world.usage.limits(process, span[0], draft.world.counted_ns):
            place = bisect_right(times, at_ns)  # which of the two was read first is not known
            level = max((level for _, level in levels[max(0, place - 1) : place + 1]), default=peak)
            yield True, limit, used + max(0, peak - level)
