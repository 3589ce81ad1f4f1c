"""The memory of a job around a save: its own, and how near it came to a limit.

A process shares the pages of the one that forked it: of a child that was born to write only growth counts. What a
cgroup has beyond its processes (tmpfs, the kernel's, other processes) is added to their peak: it is sampled only while
bytes are transferred, perhaps before the peak, or when a short transfer has ended.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate

from ckptprof.detect.describe.draft import Draft
from ckptprof.detect.describe.process_measures import list_job_processes
from ckptprof.detect.tolerances import COUNTER_LAG_NS
from ckptprof.detect.world.spans import Span
from ckptprof.detect.world.training_threads import BASELINE_NS
from ckptprof.measures import JobMemoryMeasure


def measure_job_memory(draft: Draft, stopped_ns: int) -> JobMemoryMeasure:
    """Measure it from the time that training stopped."""
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
