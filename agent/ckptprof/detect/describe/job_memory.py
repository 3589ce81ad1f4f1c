"""The memory of a job around a save: its own, and how near it came to a limit.

A process shares the pages of the one that forked it, so that of a child that was born to write only growth counts.
The memory of cgroups is sampled only while bytes are transferred: what it has beyond that of the processes (tmpfs, the
kernel's, other processes) is added to their peak, which may be between two of its samples.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from ckptprof.detect.describe.draft import Draft
from ckptprof.detect.describe.process_measures import list_job_processes
from ckptprof.detect.tolerances import COUNTER_LAG_NS
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.spans import Span
from ckptprof.detect.world.training_threads import BASELINE_NS
from ckptprof.measures import JobMemoryMeasure

_Levels = list[tuple[int, int]]  # time, bytes


def measure_job_memory(draft: Draft, stopped_ns: int) -> JobMemoryMeasure:
    """Measure it from the time that training stopped."""
    world, processes = draft.world, list_job_processes(draft)
    start_ns = min([stopped_ns, *(start_ns for start_ns, _ in draft.stall.blocked)])
    end_ns = draft.candidate.end_ns + COUNTER_LAG_NS
    since_ns = max(start_ns - BASELINE_NS, draft.known.history.blocked_until_ns(draft.candidate.job, start_ns))
    levels = _job_levels(draft, processes, (since_ns, world.counted_ns))
    peak = max((level for at_ns, level in levels if at_ns <= end_ns), default=None)
    after = [] if world.ended.keys() >= set(processes) else [level for at_ns, level in levels if at_ns > end_ns]
    limits = _limits(draft, (start_ns, end_ns), levels, peak or 0)
    is_cgroup, limit, used = min(limits, key=lambda one: one[1] - one[2], default=(None, None, None))
    return JobMemoryMeasure(
        before_bytes=min((level for at_ns, level in levels if at_ns <= start_ns), default=None),
        peak_bytes=peak,
        after_bytes=min(after, default=None),
        limit_bytes=limit,
        is_of_cgroup=is_cgroup,
        used_peak_bytes=used,
    )


def _job_levels(draft: Draft, processes: list[ProcessKey], span: Span) -> _Levels:
    """Add up the anonymous memory of its processes: when it changed, the first time is the start."""
    changes = [one for process in processes for one in _changes(draft, process, span)]
    held: dict[ProcessKey, int] = {}
    levels: dict[int, int] = {}
    total = 0
    for at_ns, process, level in sorted(changes, key=lambda change: change[0]):
        total += level - held.get(process, 0)
        held[process], levels[at_ns] = level, total
    return list(levels.items())


def _changes(draft: Draft, process: ProcessKey, span: Span) -> list[tuple[int, ProcessKey, int]]:
    world, (start_ns, end_ns) = draft.world, span
    levels = world.usage.levels(process, start_ns, end_ns)
    is_new = process in draft.writers and bool(levels) and levels[0][0] > start_ns
    shared = levels[0][1] if is_new and world.jobs.parent(process) in world.histories else 0
    found = [(max(start_ns, at_ns), process, max(0, level - shared)) for at_ns, level in levels if at_ns <= end_ns]
    ended_ns = world.ended.get(process)
    if ended_ns is None:
        return found
    return [*(one for one in found if one[0] < ended_ns), (max(start_ns, ended_ns), process, 0)]


def _limits(draft: Draft, span: Span, levels: _Levels, peak: int) -> Iterator[tuple[bool, int, int]]:
    """Yield of the host and each cgroup: whether it is a cgroup, its limit, and at most used, in bytes."""
    host = draft.world.memory.between(*span)
    if host is not None and host.total_bytes is not None and host.available_min_bytes is not None:
        yield False, host.total_bytes, host.total_bytes - host.available_min_bytes
    times = [at_ns for at_ns, _ in levels]
    for process in draft.writers:
        for at_ns, limit, used in draft.world.usage.limits(process, *span):
            place = bisect_right(times, at_ns)
            yield True, limit, used + (max(0, peak - levels[place - 1][1]) if place else 0)
