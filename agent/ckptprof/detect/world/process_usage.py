"""What whole processes used: time on processors, faults, memory, and how long the kernel held them for dirty pages."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from ckptprof.detect.world.counter_history import CounterHistory
from ckptprof.detect.world.keys import ProcessKey
from ckptprof_collectors.samples import DirtyPause, ProcessStat

MAX_PROCESSES = 256
_FAST_LOOKS, _SLOW_LOOKS, _SLOW_NS = 128, 256, 5_000_000_000  # 20 KB of a process


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
        self._stats: dict[ProcessKey, CounterHistory] = {}  # the process that did something last comes last
        self._pauses: dict[ProcessKey, CounterHistory] = {}

    def __len__(self) -> int:
        """Return of how many processes something is held."""
        return len(self._stats) + len(self._pauses)

    def learn(self, at_ns: int, unchanged_ns: int, stat: ProcessStat) -> None:
        """Take one reading; up to `unchanged_ns` nothing had changed since the one before."""
        resident = max(0, (stat.rss_bytes or 0) - (stat.rss_file_bytes or 0))
        values = (stat.user_ticks + stat.system_ticks, stat.minor_faults, stat.major_faults, resident)
        _add(self._stats, (stat.pid, stat.start_ticks), at_ns, values, unchanged_ns)

    def pause(self, at_ns: int, unchanged_ns: int, pause: DirtyPause) -> None:
        """Take how long a process was held so far."""
        values = (pause.pauses, pause.paused_ns)
        known = (pause.pid, pause.start_ticks) in self._pauses
        _add(self._pauses, (pause.pid, pause.start_ticks), at_ns, values, unchanged_ns)
        if not known:  # it had not been held before
            past = _new(2)
            past.add(min(unchanged_ns, at_ns - 1), (0, 0))
            past.add(at_ns, values)
            self._pauses[pause.pid, pause.start_ticks] = past

    def used(self, process: ProcessKey, start_ns: int, end_ns: int) -> Usage | None:
        """Return what a process used; None if it was not looked at by then."""
        past = self._stats.get(process)
        if past is None or past.first_ns >= end_ns or end_ns <= start_ns:
            return None
        start_ns = max(start_ns, past.first_ns)
        before, after = past.at(start_ns), past.at(end_ns)
        return Usage(
            cores=max(0.0, after[0] - before[0]) / self._ticks_per_second / ((end_ns - start_ns) / 1e9),
            minor_faults=round(max(0.0, after[1] - before[1])),
            major_faults=round(max(0.0, after[2] - before[2])),
            grown_bytes=round(after[3] - before[3]),
        )

    def growing_ns(self, process: ProcessKey, start_ns: int, end_ns: int, least_bytes: int) -> int | None:
        """Return for how long its memory grew by so much and more from look to look; None if it was not looked at."""
        past = self._stats.get(process)
        looks = past.looks(start_ns, end_ns) if past is not None else []
        if len(looks) < 2:
            return None
        pairs = pairwise(looks)
        return sum(
            min(after[0], end_ns) - max(before[0], start_ns)
            for before, after in pairs
            if after[1][3] - before[1][3] >= least_bytes and after[0] > start_ns
        )

    def paused(self, process: ProcessKey, start_ns: int, end_ns: int) -> tuple[int, int] | None:
        """Return (how often, how long) the kernel held a process; None if it never told of this one."""
        past = self._pauses.get(process)
        if past is None:
            return None
        before, after = past.at(start_ns), past.at(end_ns)
        return round(after[0] - before[0]), round(after[1] - before[1])

    def forget_before(self, at_ns: int) -> None:
        """Drop those of whom nothing was told since."""
        for book in (self._stats, self._pauses):
            for process in [process for process, past in book.items() if past.last_ns < at_ns]:
                del book[process]


def _new(width: int) -> CounterHistory:
    return CounterHistory(width, fast_looks=_FAST_LOOKS, slow_looks=_SLOW_LOOKS, slow_ns=_SLOW_NS)


def _add(
    book: dict[ProcessKey, CounterHistory], process: ProcessKey, at_ns: int, values: tuple[int, ...], unchanged_ns: int
) -> None:
    past = book.pop(process, None)
    if past is None:
        while len(book) >= MAX_PROCESSES:
            del book[next(iter(book))]
        past = _new(len(values))
    book[process] = past
    if past.last and past.last_ns < unchanged_ns < at_ns:
        past.add(unchanged_ns, past.last)
    past.add(at_ns, values)
