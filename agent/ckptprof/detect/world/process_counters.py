"""From cumulative counters of a process to what it moved between two looks, and to the edges of what it did."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import add, itemgetter
from typing import NamedTuple

import msgspec

from ckptprof.detect.tolerances import LATE_NS
from ckptprof.detect.world.bounded import MAX_RECENT
from ckptprof.detect.world.keys import ProcessKey
from ckptprof_collectors.samples import ProcessIo, ProcessStat

ACTIVE_BYTES = 16 << 10  # in one interval; less is the noise of a log line
GAP_NS = 400_000_000  # activity with a longer pause is two runs
_PIECE_BYTES = 16 << 10  # by a call, in the mean; modules come in smaller ones: PyTorch's in 2,335 calls, 24 MB
_INHERITED = ("read_chars", "write_chars", "read_syscalls", "write_syscalls", "write_bytes")


class Interval(NamedTuple):
    """What one process moved between two ticks; CLOCK_MONOTONIC. What was not seen is 0."""

    start_ns: int
    end_ns: int
    read_bytes: int = 0  # read(2) and its kin, and what came from storage before (read-ahead, page faults, io_uring)
    wrote_bytes: int = 0  # of writing what was not told before: a long write(2) dirties pages before it ends
    written_bytes: int = 0  # what the `writes` of this interval wrote (wchar)
    returned_bytes: int = 0  # what the `reads` of this interval returned (rchar): positions move with it
    reads: int = 0
    writes: int = 0
    fetched_bytes: int = 0  # came from a device or the network (read_bytes)
    resident_bytes: int = 0  # growth of file-backed memory: pages of mappings that were touched
    minor_faults: int = 0  # pages that were mapped from memory: stays when what was touched is unmapped again
    major_faults: int = 0  # pages that had to be fetched for a mapping, of whatever file
    grown_bytes: int = 0  # of anonymous memory, since the interval before; negative if it shrank
    busy: float | None = None  # share of one core that the process used

    def moved(self, *, writes: bool) -> int:
        """Return the bytes that speak for writing or for reading."""
        return self.wrote_bytes if writes else self.read_bytes


_START_NS, _END_NS = itemgetter(0), itemgetter(1)  # of an interval; those of one process follow each other


class Run(NamedTuple):
    """A stretch of activity without a longer pause; edges interpolated within the first and last interval."""

    start_ns: int
    end_ns: int
    bytes: int


@dataclass(slots=True)
class _Ahead:
    """Bytes that moved before the call that asks for them returned and was counted: they are reported once."""

    told_bytes: int = 0
    told_ns: int = 0

    def new(self, at_ns: int, called: int, moved: int, *, asked: bool = True) -> int:
        """Return what is new of what the calls returned, and of what moved to or from the page cache meanwhile.

        `asked`: calls will return what moved; else page faults of mappings asked for it.
        """
        if at_ns - self.told_ns > LATE_NS:
            self.told_bytes = 0
        told, self.told_bytes = self.told_bytes, max(0, self.told_bytes + (moved if asked else 0) - called)
        if moved > 0:
            self.told_ns = at_ns
        return max(moved, called - told)


@dataclass(slots=True)
class ProcessHistory:
    """The recent intervals of one process."""

    intervals: list[Interval] = field(default_factory=list)  # an empty deque has room for 64, and most move little
    last_io: ProcessIo | None = None
    last_stat: ProcessStat | None = None
    first_ns: int = 0  # the first tick at which its bytes were read
    last_ns: int = 0  # the last tick at which the process was read, changed or not
    inherited: list[tuple[int, ProcessIo]] = field(default_factory=list)  # of children that ended, and when
    _grown_bytes: int = 0  # of what no interval has told yet
    _writing: tuple[int, int, list[Run]] | None = None  # (how many intervals, the end of the last, runs)
    _fetched: _Ahead = field(default_factory=_Ahead)
    _dirtied: _Ahead = field(default_factory=_Ahead)
    _heir: list[int] = field(default_factory=list)  # when children ended

    def observe(
        self, at_ns: int, previous_tick_ns: int, io: ProcessIo | None, stat: ProcessStat | None, ticks_per_second: int
    ) -> Interval | None:
        """Take the samples of one tick (None: unchanged); return the interval if anything moved.

        A counter that went back gives no difference: it is taken as a new start.
        """
        start_ns = max(self.last_ns, previous_tick_ns)
        before, self.last_io = self._with_children(at_ns, io), io or self.last_io
        stat_before, self.last_stat = self.last_stat, stat or self.last_stat
        self.last_ns = at_ns
        resident = minor_faults = major_faults = 0
        if stat_before is not None and stat is not None:
            resident = max(0, _rise(stat_before.rss_file_bytes, stat.rss_file_bytes))
            minor_faults = max(0, stat.minor_faults - stat_before.minor_faults)
            major_faults = max(0, stat.major_faults - stat_before.major_faults)
            self._grown_bytes += _rise(_anonymous(stat_before), _anonymous(stat))
            if _rise(stat_before.child_minor_faults, stat.child_minor_faults) > 0:
                self._inherit_at(at_ns)  # it waited for a child, whose counters are added to its own by then
        self.first_ns = self.first_ns or (at_ns if io is not None else 0)
        busy = _busy(stat_before, stat, at_ns - start_ns, ticks_per_second)
        mapped = resident > 0 or minor_faults > 0
        if (io is None or before is None) and not mapped:
            return None
        counts = _difference(before, io)
        if counts is None or not (any(counts) or mapped):
            return None
        called, fetched, written, dirtied, reads, writes = counts
        read = self._fetched.new(at_ns, called, fetched, asked=not major_faults)
        wrote = self._dirtied.new(at_ns, written, dirtied)
        interval = Interval(
            start_ns, at_ns, read, wrote, written, called, reads, writes, fetched, resident, minor_faults, major_faults,
            self._grown_bytes, busy,
        )  # fmt: skip
        self._grown_bytes = 0
        self.intervals.append(interval)
        return interval

    def writing_runs(self) -> list[Run]:
        """Return the runs of writing; of tens of thousands of files each asks for them."""
        last_ns = self.intervals[-1].end_ns if self.intervals else 0
        known = self._writing
        if known is None or known[:2] != (len(self.intervals), last_ns):
            found = runs((one.start_ns, one.end_ns, one.wrote_bytes) for one in self.intervals)
            known = self._writing = (len(self.intervals), last_ns, found)
        return known[2]

    def inherit(self, at_ns: int, io: ProcessIo) -> None:
        """Take note of the counters of a child that ended: the kernel adds them to its parent's when it is waited for.

        (kernel/exit.c, wait_task_zombie: task_io_accounting_add)
        """
        self.inherited = [(when, child) for when, child in self.inherited if at_ns - when < LATE_NS]
        self.inherited.append((at_ns, io))
        self._inherit_at(at_ns)

    def _inherit_at(self, at_ns: int) -> None:
        self._heir.append(at_ns)
        del self._heir[:-MAX_RECENT]

    def was_heir(self, start_ns: int, end_ns: int) -> bool:
        """Return whether a child ended or was waited for in the given time: what it moved came in by it."""
        return any(start_ns <= at_ns <= end_ns for at_ns in self._heir)

    def _with_children(self, at_ns: int, io: ProcessIo | None) -> ProcessIo | None:
        """Return the counters of the last look, with those of the children that have come in since."""
        before = self.last_io
        if before is None or io is None or not self.inherited:
            return before
        left = []
        for when, child in self.inherited:
            sums = map(add, msgspec.structs.astuple(before)[2:], msgspec.structs.astuple(child)[2:])
            raised = ProcessIo(before.pid, before.start_ticks, *sums)
            # what was read from disks and taken back may come in later
            if all(getattr(io, name) >= getattr(raised, name) for name in _INHERITED):
                before = raised
            elif at_ns - when < LATE_NS:
                left.append((when, child))
        self.inherited = left
        return before

    def forget_before(self, at_ns: int) -> None:
        """Drop what ended before `at_ns`."""
        if self.intervals and self.intervals[0].end_ns < at_ns:
            self.intervals = list(itertools.dropwhile(lambda interval: interval.end_ns < at_ns, self.intervals))

    def between(self, start_ns: int, end_ns: int) -> list[Interval]:
        """Return the intervals that overlap the given time."""
        first = bisect_right(self.intervals, start_ns, key=_END_NS)
        return self.intervals[first : bisect_left(self.intervals, end_ns, first, key=_START_NS)]

    def returned_bytes(self, start_ns: int, end_ns: int) -> int:
        """Return what its read calls returned in the intervals that overlap the given time."""
        return sum(interval.returned_bytes for interval in self.between(start_ns, end_ns))

    def loaded_bytes(self, start_ns: int, end_ns: int) -> int:
        """Return what it may have read then of large files that nobody saw open: what calls returned in large pieces.

        Page faults fetch libraries; a file that they read stays mapped, and is seen. Small calls return modules, logs,
        what /proc tells.
        """
        around = self.between(start_ns, end_ns)
        return sum(one.returned_bytes for one in around if one.returned_bytes >= one.reads * _PIECE_BYTES)

    def wrote_bytes(self, start_ns: int, end_ns: int) -> int:
        """Return what it wrote in the intervals that overlap the given time."""
        return sum(interval.wrote_bytes for interval in self.between(start_ns, end_ns))


class Histories(dict[ProcessKey, ProcessHistory]):
    """The histories of the processes that are watched; that of any other is empty, and not kept."""

    def __missing__(self, _: ProcessKey) -> ProcessHistory:
        """Return an empty history."""
        return ProcessHistory()


def _anonymous(stat: ProcessStat) -> int | None:
    if stat.rss_bytes is None or stat.rss_file_bytes is None:
        return None
    return stat.rss_bytes - stat.rss_file_bytes


def _rise(before: int | None, after: int | None) -> int:
    return after - before if before is not None and after is not None else 0


def _busy(before: ProcessStat | None, after: ProcessStat | None, span_ns: int, ticks_per_second: int) -> float | None:
    if before is None or span_ns <= 0:
        return None
    if after is None:
        return 0.0  # nothing changed at all: it did not run
    ticks = after.user_ticks + after.system_ticks - before.user_ticks - before.system_ticks
    return ticks / ticks_per_second / (span_ns / 1e9) if ticks >= 0 else None


def _difference(before: ProcessIo | None, after: ProcessIo | None) -> tuple[int, int, int, int, int, int] | None:
    if after is None or before is None:
        return 0, 0, 0, 0, 0, 0
    read = after.read_chars - before.read_chars
    fetched = max(0, after.read_bytes - before.read_bytes)
    written = after.write_chars - before.write_chars
    dirtied = after.write_bytes - before.write_bytes
    reads = after.read_syscalls - before.read_syscalls
    writes = after.write_syscalls - before.write_syscalls
    if min(read, written, dirtied, reads, writes) < 0:
        return None
    return read, fetched, written, dirtied, reads, writes


def runs(
    intervals: Iterable[tuple[int, int, int]], *, gap_ns: int = GAP_NS, active_bytes: int = ACTIVE_BYTES
) -> list[Run]:
    """Join (start, end, bytes) intervals into runs, interpolating both edges.

    The first and last interval are only partly filled: at the rate of their neighbour inside the run their bytes take
    bytes / rate, never longer than the interval itself.
    """
    found: list[list[tuple[int, int, int]]] = []
    for interval in intervals:
        if interval[2] < active_bytes:
            continue
        if found and interval[0] - found[-1][-1][1] <= gap_ns:
            found[-1].append(interval)
        else:
            found.append([interval])
    return [_edges(members) for members in found]


def _edges(members: list[tuple[int, int, int]]) -> Run:
    total = sum(member[2] for member in members)
    first, last = members[0], members[-1]
    if len(members) == 1:
        return Run(first[0], last[1], total)
    start_ns = max(first[0], first[1] - _duration(first, members[1]))
    end_ns = min(last[1], last[0] + _duration(last, members[-2]))
    return Run(start_ns, end_ns, total)


def _duration(edge: tuple[int, int, int], inner: tuple[int, int, int]) -> int:
    span = inner[1] - inner[0]
    return int(edge[2] * span / inner[2]) if inner[2] > 0 else span
