"""From the cumulative counters of a process to its transfers between two samples, and to the edges of runs.

The model. /proc/PID/io has two counters for each direction. rchar and wchar rise when a call returns; read_bytes and
write_bytes when pages are fetched or dirtied, which may be long before the call returns (a write of 2 GB in one call)
or without any call (page faults, io_uring). `_EarlyBytes` merges both: bytes that were counted early are subtracted
once their call returns, so that each byte is reported once, as early as it was observed.

The kernel adds the counters of a child to its parent's when the parent waits for it. They are subtracted again, or a
parent would seem to write what its children wrote.

Runs: intervals of activity with short pauses are joined. The edges of a run lie somewhere within its first and last
interval; they are interpolated at the rate of the neighbouring interval.

Invariant: intervals of one process follow each other and never overlap.

Example: at ticks 0, 100 and 200 ms a process has written 0, 5 and 15 MB, and no more later. At the rate of the second
interval (10 MB in 100 ms) the first 5 MB took 50 ms: the run is 50 to 200 ms, 15 MB.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import add
from typing import NamedTuple

import msgspec

from ckptprof.detect.tolerances import LATE_COUNTER_NS
from ckptprof.detect.world.bounded import MAX_RECENT
from ckptprof.detect.world.keys import ProcessKey
from ckptprof_collectors.samples import ProcessIo, ProcessStat

ACTIVE_BYTES = 16 << 10  # in one interval; less is the noise of a log line
GAP_NS = 400_000_000  # activity with a longer pause is two runs
_INHERITED = ("read_chars", "write_chars", "read_syscalls", "write_syscalls", "write_bytes")


class ProcessInterval(NamedTuple):
    """Transfers of one process between two ticks; CLOCK_MONOTONIC. What was not observed is 0."""

    start_ns: int
    end_ns: int
    read_bytes: int = 0  # read(2) and its kin, and what came from storage before (read-ahead, page faults, io_uring)
    new_written_bytes: int = 0  # written and not reported before: a long write(2) dirties pages before it returns
    written_bytes: int = 0  # by the `writes` of this interval (wchar)
    returned_bytes: int = 0  # by the `reads` of this interval (rchar): positions advance by it
    reads: int = 0
    writes: int = 0
    fetched_bytes: int = 0  # from a device or the network (read_bytes)
    resident_bytes: int = 0  # growth of file-backed memory: pages of mappings that were touched
    minor_faults: int = 0  # pages mapped from memory; remains after they are unmapped
    major_faults: int = 0  # pages that had to be fetched for a mapping, of whatever file
    grown_bytes: int = 0  # of anonymous memory, since the interval before; negative if it shrank
    dirtied_bytes: int = 0  # pages of files, and direct writes (write_bytes): none in pipes, sockets and memory
    busy: float = -1.0  # share of one core that the process used; negative: not observed

    def transferred(self, *, writes: bool) -> int:
        """Bytes that are evidence of writing or of reading."""
        return self.new_written_bytes if writes else self.read_bytes


_ROW, _START = struct.Struct("=14qd"), struct.Struct("=q")  # an interval, and its start
_WIDTH = len(ProcessInterval._fields)


class ActivityRun(NamedTuple):
    """Activity without a longer pause; edges interpolated within the first and last interval."""

    start_ns: int
    end_ns: int
    bytes: int


@dataclass(slots=True)
class _EarlyBytes:
    """Bytes that were counted before their call returned."""

    reported_bytes: int = 0
    reported_ns: int = 0

    def unreported(self, at_ns: int, called: int, transferred: int, *, is_requested: bool = True) -> int:
        """Bytes not reported yet, of those that calls returned and those to or from the page cache.

        `is_requested`: calls will return these bytes; otherwise page faults of mappings requested them.
        """
        if at_ns - self.reported_ns > LATE_COUNTER_NS:
            self.reported_bytes = 0
        reported, self.reported_bytes = (
            self.reported_bytes,
            max(0, self.reported_bytes + (transferred if is_requested else 0) - called),
        )
        if transferred > 0:
            self.reported_ns = at_ns
        return max(transferred, called - reported)


@dataclass(slots=True)
class ProcessHistory:
    """The recent intervals of one process."""

    last_io: ProcessIo | None = None
    last_stat: ProcessStat | None = None
    first_ns: int = 0  # the first tick at which its bytes were read
    last_ns: int = 0  # the last tick at which the process was read, changed or not
    child_counters: list[tuple[int, ProcessIo]] = field(default_factory=list)  # (exit time, counters) of children
    born_ns: int | None = None  # its birth, if during the recording: all its counters were zero then
    ends_ns: array[int] = field(default_factory=lambda: array("q"))  # of its intervals
    _rows: bytearray = field(default_factory=bytearray)  # the intervals, in a quarter of the memory of objects
    _grown_bytes: int = 0  # not yet in an interval
    _cached_runs: tuple[int, int, list[ActivityRun]] | None = None  # (how many intervals, the end of the last, runs)
    _fetched: _EarlyBytes = field(default_factory=_EarlyBytes)
    _dirtied: _EarlyBytes = field(default_factory=_EarlyBytes)
    _child_exit_times: list[int] = field(default_factory=list)  # when children ended

    @property
    def intervals(self) -> list[ProcessInterval]:
        """The recent intervals, in the order of time."""
        return self._slice(0, len(self.ends_ns))

    def _slice(self, first: int, end: int) -> list[ProcessInterval]:
        return list(map(ProcessInterval._make, _ROW.iter_unpack(self._rows[first * _ROW.size : end * _ROW.size])))

    def _append(self, interval: ProcessInterval) -> None:
        limited = (max(-sys.maxsize, min(value, sys.maxsize)) for value in interval[:-1])  # of a damaged recording
        self._rows += _ROW.pack(*limited, interval.busy)
        self.ends_ns.append(min(interval.end_ns, sys.maxsize))

    def _places_between(self, start_ns: int, end_ns: int) -> tuple[int, int]:
        first = bisect_right(self.ends_ns, start_ns)
        last = bisect_left(self.ends_ns, end_ns, first)
        overlaps = last < len(self.ends_ns) and _START.unpack_from(self._rows, last * _ROW.size)[0] < end_ns
        return first, last + overlaps

    def _sum_between(self, name: str, start_ns: int, end_ns: int) -> int:
        first, end = (
            at * _WIDTH + ProcessInterval._fields.index(name) for at in self._places_between(start_ns, end_ns)
        )
        return sum(memoryview(self._rows).cast("q")[first:end:_WIDTH])

    def observe(
        self, at_ns: int, previous_tick_ns: int, io: ProcessIo | None, stat: ProcessStat | None, ticks_per_second: int
    ) -> ProcessInterval | None:
        """Ingest the samples of one tick (None: unchanged); return the interval if anything was transferred.

        A counter that went back gives no difference: it starts again.
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
                self._record_child_exit(at_ns)  # it waited for a child, whose counters are now in its own
        self.first_ns = self.first_ns or (at_ns if io is not None else 0)
        busy = _busy(stat_before, stat, at_ns - start_ns, ticks_per_second)
        has_child_counters = self.last_stat is not None and bool(self.last_stat.child_minor_faults)
        if before is None and io is not None and self.born_ns is not None and not has_child_counters:
            before = ProcessIo(io.pid, io.start_ticks, 0, 0, 0, 0, io.read_bytes, 0, 0)  # its program was fetched, too
            start_ns = max([self.born_ns, *self.ends_ns[-1:]])
        mapped = resident > 0 or minor_faults > 0
        if (io is None or before is None) and not mapped:
            return None
        counts = _difference(before, io)
        if counts is None or not (any(counts) or mapped):
            return None
        called, fetched, written, dirtied, reads, writes = counts
        read = self._fetched.unreported(at_ns, called, fetched, is_requested=not major_faults)
        wrote = self._dirtied.unreported(at_ns, written, dirtied)
        interval = ProcessInterval(
            start_ns, at_ns, read, wrote, written, called, reads, writes, fetched, resident, minor_faults, major_faults,
            self._grown_bytes, dirtied, busy,
        )  # fmt: skip
        self._grown_bytes = 0
        self._append(interval)
        return interval

    def writing_runs(self) -> list[ActivityRun]:
        """Find the runs of writing; cached, since tens of thousands of files may query them."""
        last_ns = self.ends_ns[-1] if self.ends_ns else 0
        cached = self._cached_runs
        if cached is None or cached[:2] != (len(self.ends_ns), last_ns):
            found = find_runs((one.start_ns, one.end_ns, one.new_written_bytes) for one in self.intervals)
            cached = self._cached_runs = (len(self.ends_ns), last_ns, found)
        return cached[2]

    def add_child_counters(self, at_ns: int, io: ProcessIo) -> None:
        """Record the counters of a child that exited: the kernel adds them to its parent when that waits for it.

        (kernel/exit.c, wait_task_zombie: task_io_accounting_add)
        """
        self.child_counters = [(when, child) for when, child in self.child_counters if at_ns - when < LATE_COUNTER_NS]
        self.child_counters.append((at_ns, io))
        self._record_child_exit(at_ns)

    def _record_child_exit(self, at_ns: int) -> None:
        self._child_exit_times.append(at_ns)
        del self._child_exit_times[:-MAX_RECENT]

    def had_child_exit(self, start_ns: int, end_ns: int) -> bool:
        """Whether a child exited or was waited for in this time, so that its counters were added."""
        return any(start_ns <= at_ns <= end_ns for at_ns in self._child_exit_times)

    def _with_children(self, at_ns: int, io: ProcessIo | None) -> ProcessIo | None:
        """Counters of the last sample, plus those of children that were added since."""
        before = self.last_io
        if before is None or io is None or not self.child_counters:
            return before
        pending = []
        for when, child in self.child_counters:
            sums = map(add, msgspec.structs.astuple(before)[2:], msgspec.structs.astuple(child)[2:])
            raised = ProcessIo(before.pid, before.start_ticks, *sums)
            # bytes read from disks may be added later
            if all(getattr(io, name) >= getattr(raised, name) for name in _INHERITED):
                before = raised
            elif at_ns - when < LATE_COUNTER_NS:
                pending.append((when, child))
        self.child_counters = pending
        return before

    def forget_before(self, at_ns: int) -> None:
        """Drop intervals that ended before a time."""
        count = bisect_left(self.ends_ns, at_ns)
        del self._rows[: count * _ROW.size], self.ends_ns[:count]

    def between(self, start_ns: int, end_ns: int) -> list[ProcessInterval]:
        """Select the intervals that overlap a time."""
        return self._slice(*self._places_between(start_ns, end_ns))

    def returned_bytes(self, start_ns: int, end_ns: int) -> int:
        """Bytes returned by its read calls in the intervals that overlap a time."""
        return self._sum_between("returned_bytes", start_ns, end_ns)

    def dirtied_bytes(self, start_ns: int, end_ns: int) -> int:
        """Bytes of dirtied pages and direct writes in the intervals that overlap a time."""
        return self._sum_between("dirtied_bytes", start_ns, end_ns)

    def wrote_bytes(self, start_ns: int, end_ns: int) -> int:
        """Bytes written in the intervals that overlap a time."""
        return self._sum_between("new_written_bytes", start_ns, end_ns)


class ProcessHistories(dict[ProcessKey, ProcessHistory]):
    """Histories of the observed processes; a missing one is empty, and not stored."""

    def __missing__(self, _: ProcessKey) -> ProcessHistory:
        return ProcessHistory()


def _anonymous(stat: ProcessStat) -> int | None:
    return None if stat.rss_bytes is None or stat.rss_file_bytes is None else stat.rss_bytes - stat.rss_file_bytes


def _rise(before: int | None, after: int | None) -> int:
    return after - before if before is not None and after is not None else 0


def _busy(before: ProcessStat | None, after: ProcessStat | None, span_ns: int, ticks_per_second: int) -> float:
    if before is None or span_ns <= 0:
        return -1.0
    if after is None:
        return 0.0  # nothing changed at all: it did not run
    ticks = after.user_ticks + after.system_ticks - before.user_ticks - before.system_ticks
    return ticks / ticks_per_second / (span_ns / 1e9) if ticks >= 0 else -1.0


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


def find_runs(
    intervals: Iterable[tuple[int, int, int]], *, gap_ns: int = GAP_NS, active_bytes: int = ACTIVE_BYTES
) -> list[ActivityRun]:
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


def _edges(members: list[tuple[int, int, int]]) -> ActivityRun:
    total = sum(member[2] for member in members)
    first, last = members[0], members[-1]
    if len(members) == 1:
        return ActivityRun(first[0], last[1], total)
    start_ns = max(first[0], first[1] - _duration(first, members[1]))
    end_ns = min(last[1], last[0] + _duration(last, members[-2]))
    return ActivityRun(start_ns, end_ns, total)


def _duration(edge: tuple[int, int, int], inner: tuple[int, int, int]) -> int:
    span = inner[1] - inner[0]
    return int(edge[2] * span / inner[2]) if inner[2] > 0 else span
