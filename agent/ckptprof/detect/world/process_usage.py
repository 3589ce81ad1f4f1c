"""What whole processes used: time on processors, faults, memory, and how long the kernel held them for dirty pages."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from ckptprof.detect.world.bounded import Bounded
from ckptprof.detect.world.counter_history import SECOND_NS, CounterHistory, Kept
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.spans import overlap_ns
from ckptprof_collectors.samples import DirtyPause, ProcessStat

MAX_PROCESSES = 256  # of those that are watched, the ones that did something last
_KEPT = Kept(fast_looks=128, slow_looks=256, slow_ns=5 * SECOND_NS)  # 20 KB of a process


class Usage(NamedTuple):
    """Of one process between two times."""

    cores: float  # in the mean
    minor_faults: int
    major_faults: int
    grown_bytes: int | None  # of anonymous memory; negative if it shrank


class ProcessUsage:
    """The recent past of the processes that are watched."""

    def __init__(self, ticks_per_second: int = 100) -> None:
        """Start with nothing."""
        self._ticks_per_second = max(1, ticks_per_second)
        self._stats: Bounded[ProcessKey, CounterHistory] = Bounded(MAX_PROCESSES)
        self._pauses: Bounded[ProcessKey, CounterHistory] = Bounded(MAX_PROCESSES)

    def __len__(self) -> int:
        """Return of how many processes something is held."""
        return len(self._stats) + len(self._pauses)

    def observe(self, at_ns: int, unchanged_ns: int, stat: ProcessStat) -> None:
        """Take one reading; up to `unchanged_ns` nothing had changed since the one before."""
        resident = max(0, (stat.rss_bytes or 0) - (stat.rss_file_bytes or 0))
        values = (stat.user_ticks + stat.system_ticks, stat.minor_faults, stat.major_faults, resident)
        past = self._stats.update_of((stat.pid, stat.start_ticks), lambda: CounterHistory(4, _KEPT))
        past.add(at_ns, values, unchanged_ns)

    def pause(self, at_ns: int, unchanged_ns: int, pause: DirtyPause) -> None:
        """Take how long a process was held so far."""
        past = self._pauses.update_of((pause.pid, pause.start_ticks), lambda: CounterHistory(2, _KEPT))
        if not past:  # it had not been held before
            past.add(min(unchanged_ns, at_ns - 1), (0, 0))
        past.add(at_ns, (pause.pauses, pause.paused_ns), unchanged_ns)

    def used(self, process: ProcessKey, start_ns: int, end_ns: int) -> Usage | None:
        """Return what a process used; None if it was not looked at by then."""
        past = self._stats.get(process)
        counts = past.difference(start_ns, end_ns) if past is not None and end_ns > start_ns else None
        if past is None or counts is None:
            return None
        ticks, minor_faults, major_faults, grown_bytes = counts
        return Usage(
            cores=max(0.0, ticks) / self._ticks_per_second / ((end_ns - max(start_ns, past.first_ns)) / 1e9),
            minor_faults=round(max(0.0, minor_faults)),
            major_faults=round(max(0.0, major_faults)),
            grown_bytes=round(grown_bytes),
        )

    def growing_ns(self, process: ProcessKey, start_ns: int, end_ns: int, least_bytes: int) -> int | None:
        """Return for how long its memory grew by so much and more from look to look; None if it was not looked at."""
        past = self._stats.get(process)
        looks = past.looks(start_ns, end_ns) if past is not None else []
        if len(looks) < 2:
            return None
        growing = ((since, until) for (since, had), (until, has) in pairwise(looks) if has[3] - had[3] >= least_bytes)
        return sum(overlap_ns(span, [(start_ns, end_ns)]) for span in growing)

    def paused(self, process: ProcessKey, start_ns: int, end_ns: int) -> tuple[int, int] | None:
        """Return (how often, how long) the kernel held a process; None if it never told of this one."""
        past = self._pauses.get(process)
        if past is None:
            return None
        pauses, paused_ns = past.difference(start_ns, end_ns) or (0, 0)
        return round(pauses), round(paused_ns)

    def forget_before(self, at_ns: int) -> None:
        """Drop those of whom nothing was told since."""
        for pasts in (self._stats, self._pauses):
            pasts.forget_before(at_ns, lambda past: past.last_ns)
