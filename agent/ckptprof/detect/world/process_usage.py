"""What whole processes used: CPU time, faults, memory, and how long the kernel blocked them for dirty pages."""

from __future__ import annotations

from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple

from ckptprof.detect.tolerances import AT_ONCE_NS, LATE_COUNTER_NS, LITTLE_SHARE, MANY, MOST_SHARE
from ckptprof.detect.world.counter_history import UNOBSERVED, CounterHistories, CounterHistory
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.spans import clip, length
from ckptprof_collectors.samples import CgroupMemory, DirtyPause, ProcessStat

_HISTORY_BYTES = 37_440  # of one process, 585 samples: a node has hundreds
_Column = IntEnum("_Column", "TICKS USER MINOR_FAULTS MAJOR_FAULTS ANONYMOUS RESIDENT THREADS", start=0)


class UsageTotals(NamedTuple):
    """Of one process between two times."""

    busy: float  # cores on average
    minor_faults: int
    major_faults: int
    grown_bytes: int  # of anonymous memory; negative if it shrank


class MemoryChange(NamedTuple):
    """Anonymous memory of one process from one sample to the next."""

    start_ns: int
    end_ns: int
    grown_bytes: int
    touched_bytes: int  # pages newly touched
    level_bytes: int  # at its end


class ProcessUsage:
    """Recent usage of the observed processes."""

    def __init__(self, ticks_per_second: int = 100, page_bytes: int = 4096) -> None:
        self._page_bytes = page_bytes
        self._ticks_per_second = max(1, ticks_per_second)
        self._stats: CounterHistories[ProcessKey] = CounterHistories(
            lambda: CounterHistory(len(_Column), max_bytes=_HISTORY_BYTES)
        )
        self._pauses, self._limits = (
            CounterHistories[ProcessKey](lambda: CounterHistory(2, max_bytes=_HISTORY_BYTES)) for _ in range(2)
        )

    def observe(self, at_ns: int, unchanged_ns: int, stat: ProcessStat) -> None:
        """Ingest one sample; until `unchanged_ns` nothing had changed since the previous one."""
        ticks = stat.user_ticks + stat.system_ticks
        anonymous = max(0, (stat.rss_bytes or 0) - (stat.rss_file_bytes or 0))
        faults = stat.minor_faults, stat.major_faults
        values = (ticks, stat.user_ticks, *faults, anonymous, stat.rss_bytes, stat.threads)
        self._stats.touch((stat.pid, stat.start_ticks)).add(at_ns, values, unchanged_ns)

    def record_pause(self, at_ns: int, unchanged_ns: int, pause: DirtyPause) -> None:
        """Record how long the kernel has blocked a process so far."""
        history = self._pauses.touch((pause.pid, pause.start_ticks))
        if not history:  # it had not been paused before
            history.add(min(unchanged_ns, at_ns - 1), (0, 0))
        history.add(at_ns, (pause.pauses, pause.paused_ns), unchanged_ns)

    def record_limit(self, at_ns: int, cgroup: CgroupMemory) -> None:
        """Record how near the memory of a process's cgroup is to its limit."""
        self._limits.touch((cgroup.pid, cgroup.start_ticks)).add(at_ns, (cgroup.limit_bytes, cgroup.used_bytes))

    def limits(self, process: ProcessKey, start_ns: int, end_ns: int) -> list[tuple[int, int, int]]:
        """List (time, limit, used) of the memory of its cgroup in a time."""
        samples = self._limits[process].samples(start_ns, end_ns)
        return [(at_ns, values[0], values[1]) for at_ns, values in samples if start_ns <= at_ns <= end_ns]

    def levels(self, process: ProcessKey, start_ns: int, end_ns: int) -> list[tuple[int, int]]:
        """List anonymous memory as (time, bytes), from the last sample before a time to the first after another."""
        return [(at_ns, counts[_Column.ANONYMOUS]) for at_ns, counts in self._memory(process, start_ns, end_ns)]

    def totals(self, process: ProcessKey, start_ns: int, end_ns: int) -> UsageTotals | None:
        """Total what a process used; None: no sample by then."""
        history = self._stats[process]
        counts = history.difference(start_ns, end_ns) if end_ns > start_ns else None
        if counts is None:
            return None
        ticks, _, minor_faults, major_faults, anonymous, *_ = counts
        seconds = (end_ns - max(start_ns, history.first_ns)) / 1e9
        return UsageTotals(
            busy=max(0.0, ticks) / self._ticks_per_second / seconds,
            minor_faults=round(max(0.0, minor_faults)),
            major_faults=round(max(0.0, major_faults)),
            grown_bytes=round(anonymous),
        )

    def kernel_time_end_ns(self, process: ProcessKey, start_ns: int, since_ns: int, until_ns: int) -> int | None:
        """Find until when a process ran from a time on, almost only in kernel mode; None if it did not.

        Nor if it ran mostly in kernel mode both before `start_ns` and afterwards; and if it never returned to user
        mode, the kernel was cleaning up after its exit.
        """
        history = self._stats[process]
        if not history:
            return None
        samples = [one for one in history.samples(since_ns, until_ns) if since_ns <= one[0] <= until_ns]
        first_ns, first = samples[0] if samples else (0, ())
        last_ns, in_kernel = since_ns, 0
        for at_ns, counts in samples:
            own = counts[_Column.USER] - first[_Column.USER]
            ran = counts[_Column.TICKS] - first[_Column.TICKS]
            if own > max(MANY, LITTLE_SHARE * ran):  # listing what is deleted takes some
                if at_ns - since_ns > AT_ONCE_NS:
                    lasts = in_kernel >= MANY and last_ns - first_ns >= AT_ONCE_NS
                    sides = (start_ns - LATE_COUNTER_NS, start_ns), (last_ns, last_ns + LATE_COUNTER_NS)
                    return last_ns if lasts and any(_is_mostly_user_time(history, *side) for side in sides) else None
                first_ns, first, in_kernel = at_ns, counts, 0  # first it lists what to delete
            elif ran - own > in_kernel:
                last_ns, in_kernel = at_ns, ran - own
        return None

    def user_time(self, process: ProcessKey, until_ns: int) -> tuple[int, float] | None:
        """Return (observed ns, share of a core in user mode); None: not observed."""
        history = self._stats[process]
        span_ns = history.time_by(until_ns) - history.first_ns if history else 0
        counts = history.difference(history.first_ns, history.first_ns + span_ns) if span_ns else None
        return None if counts is None else (span_ns, counts[_Column.USER] / self._ticks_per_second / (span_ns / 1e9))

    def is_single_threaded(self, process: ProcessKey, start_ns: int, end_ns: int) -> bool:
        """Whether each sample around a time found the main thread alone."""
        history = self._stats[process]
        return bool(history) and all(counts[_Column.THREADS] == 1 for _, counts in history.samples(start_ns, end_ns))

    def resident_growth(self, process: ProcessKey, start_ns: int, end_ns: int) -> list[tuple[int, int, int]] | None:
        """List increases of resident memory in a time as (from, to, bytes); None: not sampled."""
        history = self._stats[process]
        if not history or history.last_values[_Column.RESIDENT] >= UNOBSERVED:
            return None
        return _growth(history, _Column.RESIDENT, start_ns, end_ns)

    def growing_ns(self, process: ProcessKey, start_ns: int, end_ns: int, least_bytes: int) -> int | None:
        """Time in which anonymous memory grew by `least_bytes` per sample; None: fewer than two samples."""
        history = self._stats[process]
        until_ns = history.time_by(end_ns) if history else 0
        if not history or until_ns <= history.time_by(start_ns):
            return None
        grown = _growth(history, _Column.ANONYMOUS, start_ns, until_ns)
        return length(clip([one[:2] for one in grown if one[2] >= least_bytes], [(start_ns, end_ns)]))

    def memory_changes(self, process: ProcessKey, start_ns: int, end_ns: int) -> list[MemoryChange]:
        """List the changes of anonymous memory in a time."""
        return [
            MemoryChange(
                since_ns,
                until_ns,
                now[_Column.ANONYMOUS] - before[_Column.ANONYMOUS],
                (now[_Column.MINOR_FAULTS] - before[_Column.MINOR_FAULTS]) * self._page_bytes,
                now[_Column.ANONYMOUS],
            )
            for (since_ns, before), (until_ns, now) in pairwise(self._memory(process, start_ns, end_ns))
        ]

    def file_memory_growth(self, process: ProcessKey, start_ns: int, end_ns: int) -> int:
        """Growth of memory shared with files since a time, at most; 0 if not observed."""
        memory = self._memory(process, start_ns, end_ns)
        levels = [counts[_Column.RESIDENT] - counts[_Column.ANONYMOUS] for _, counts in memory]
        return max(levels) - levels[0] if levels else 0

    def _memory(self, process: ProcessKey, start_ns: int, end_ns: int) -> list[tuple[int, tuple[int, ...]]]:
        history = self._stats[process]
        is_known = history and history.last_values[_Column.RESIDENT] < UNOBSERVED
        return history.samples(start_ns, end_ns) if is_known else []

    def pause_totals(self, process: ProcessKey, start_ns: int, end_ns: int) -> tuple[int, int] | None:
        """Return (number, ns) of pauses by the kernel; None: no pause of this process was ever reported."""
        if process not in self._pauses:
            return None
        pauses, paused_ns = self._pauses[process].difference(start_ns, end_ns) or (0, 0)
        return round(pauses), round(paused_ns)

    @property
    def retained_bytes(self) -> int:
        """Memory used, approximately."""
        return self._stats.retained_bytes + self._pauses.retained_bytes + self._limits.retained_bytes

    def shrink(self, share: float) -> None:
        """Thin each history to this share of its limit."""
        for each in (self._stats, self._pauses, self._limits):
            each.shrink(share)

    def forget_before(self, at_ns: int) -> None:
        """Drop processes without samples since a time."""
        for each in (self._stats, self._pauses, self._limits):
            each.forget_before(at_ns)


def _is_mostly_user_time(history: CounterHistory, start_ns: int, end_ns: int) -> bool:
    counts = history.difference(start_ns, end_ns)
    return counts is not None and counts[_Column.USER] >= MOST_SHARE * max(MANY, counts[_Column.TICKS])


def _growth(history: CounterHistory, column: int, start_ns: int, end_ns: int) -> list[tuple[int, int, int]]:
    pairs = pairwise((at_ns, counts[column]) for at_ns, counts in history.samples(start_ns, end_ns))
    return [(since_ns, until_ns, now - before) for (since_ns, before), (until_ns, now) in pairs if now > before]
