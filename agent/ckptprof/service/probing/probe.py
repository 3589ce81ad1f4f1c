"""The probe of a directory: transfers data in five ways, each briefly, and returns the rate or why there is none.

A verdict compares a checkpoint with the fastest rate of its direction. Two of the ways are the common ones, one
buffered writer and one buffered reader: the report shows their share of the fastest.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import mmap
import os
import socket
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from errno import EDQUOT, EFBIG, ENOSPC
from functools import partial
from time import perf_counter_ns

import msgspec
import psutil

from ckptprof import __version__
from ckptprof.diagnose.ceilings import FULL, READ, SIZE, STOPPED, TIME, WRITE, Ceilings, Measure
from ckptprof.service.probing.probe_plan import ProbeFiles, ProbePlan, probe_files, usable_bytes
from ckptprof_collectors import process_facts

IS_FULL = frozenset((ENOSPC, EDQUOT, EFBIG))  # EFBIG: RLIMIT_FSIZE
STEP = 1 << 20  # bytes of an operation
_BLOCK_WORDS = 512  # of 8 bytes: 4 KiB, the unit of deduplicating storage
_NS = 1_000_000_000
_WORST_FIRST = (STOPPED, FULL, TIME, SIZE)
IN_MEMORY = frozenset(("tmpfs", "ramfs", "hugetlbfs"))
PARALLEL_WORKERS = 4
_FIRST_BYTES = 4 * STEP  # of buffered writes while the duration of their fsync is unknown
_MAX_PASSES = 8
_MIN_DEVICE_SHARE = 0.9  # share of a read that must come from the device, or the page cache was measured
_SLACK_SECONDS = 2.0  # beyond the sum of the phases; no row is started after that
OnRow = Callable[[Measure, int, int], None]  # the row that starts, its number from 1 on, and the number of rows


class UniqueData:
    """A page-aligned buffer of random bytes; no 4 KiB block is ever written twice, so that none is deduplicated."""

    def __init__(self, size: int) -> None:
        self._memory = mmap.mmap(-1, size)
        self._memory.write(os.urandom(size))
        self.view = memoryview(self._memory)
        self._marks = self.view.cast("Q")[::_BLOCK_WORDS]
        self._blocks = len(self._marks)
        self._number = int.from_bytes(os.urandom(7), "little")

    def renew(self) -> None:
        """Make every block differ from all before."""
        self._number += 1
        self._marks[:] = memoryview(array("Q", (self._number,)) * self._blocks)


@dataclass
class RowLimits:
    """Limits of one row."""

    seconds: float
    max_bytes: int
    halt: threading.Event


@dataclass
class RowResult:
    """Bytes transferred from `start_ns` to `end_ns` of the monotonic clock."""

    start_ns: int
    end_ns: int = 0
    transferred_bytes: int = 0
    ended: str = SIZE

    @property
    def duration_ns(self) -> int:
        """Duration, at least 1 ns."""
        return max(1, self.end_ns - self.start_ns)


def repeat(step: Callable[[int], int], offsets: Iterable[int], limits: RowLimits) -> RowResult:
    """Call `step`, which returns the bytes transferred, with one offset after the other until a limit is reached.

    Raises OSError; a full file system ends a started row without one.
    """
    tally = RowResult(perf_counter_ns())
    deadline = tally.start_ns + round(limits.seconds * _NS)
    try:
        for offset in offsets:
            if tally.transferred_bytes > limits.max_bytes - STEP:
                break
            done = step(offset)
            tally.transferred_bytes += done
            if limits.halt.is_set() or perf_counter_ns() >= deadline:
                tally.ended = STOPPED if limits.halt.is_set() else TIME
                break
            if done < STEP:  # regular files have no other short writes: it is almost full, or at its end
                tally.ended = FULL
                break
    except OSError as error:
        if error.errno not in IS_FULL or not tally.transferred_bytes:
            raise
        tally.ended = FULL
    tally.end_ns = perf_counter_ns()
    return tally


def write(fd: int, limits: RowLimits) -> RowResult:
    """Write in order, and fsync; raises OSError."""
    data = UniqueData(STEP)

    def step(offset: int) -> int:
        data.renew()
        return os.pwrite(fd, data.view, offset)

    tally = repeat(step, itertools.count(0, STEP), limits)
    os.fsync(fd)
    tally.end_ns = perf_counter_ns()
    return tally


def read(fd: int, offsets: Iterable[int], limits: RowLimits) -> RowResult:
    """Read one operation after the other; raises OSError."""
    into = (memoryview(mmap.mmap(-1, STEP)),)
    return repeat(lambda offset: os.preadv(fd, into, offset), offsets, limits)


def run_parallel(works: list[Callable[[], RowResult]]) -> RowResult:
    """Run all at once, a thread each; return the sum from the first start to the last end. Raises OSError."""
    barrier = threading.Barrier(len(works))

    def begin(work: Callable[[], RowResult]) -> RowResult:
        barrier.wait()
        return work()

    with ThreadPoolExecutor(len(works), thread_name_prefix="probe") as pool:
        tallies = [future.result() for future in [pool.submit(begin, work) for work in works]]
    return RowResult(
        min(tally.start_ns for tally in tallies),
        max(tally.end_ns for tally in tallies),
        sum(tally.transferred_bytes for tally in tallies),
        min((tally.ended for tally in tallies), key=_WORST_FIRST.index),
    )


def _measure(name: str, work: str, *, direct: bool, workers: int = 1) -> Measure:
    return Measure(id=name, work=work, operation_bytes=STEP, workers=workers, direct=direct)


ROWS = (
    _measure("write-direct-many", WRITE, direct=True, workers=PARALLEL_WORKERS),
    _measure("write-buffered", WRITE, direct=False),
    _measure("write-buffered-many", WRITE, direct=False, workers=PARALLEL_WORKERS),
    _measure("read-direct-many", READ, direct=True, workers=PARALLEL_WORKERS),
    _measure("read-buffered", READ, direct=False),
)
_WRITES = sum(row.work == WRITE for row in ROWS)


class _MissingError(Exception):
    """This row cannot be measured here; the text is the reason."""


def probe(plan: ProbePlan, *, halt: threading.Event, on_row: OnRow, rows: Sequence[Measure] = ROWS) -> Ceilings:
    """Measure the rows; ends early, with the rows so far, once `halt` is set. Raises OSError."""
    at_ns, start_ns = time.time_ns(), time.monotonic_ns()
    with probe_files(plan.directory) as place:
        measures = _Probe(plan, place, halt).run(rows, on_row)
    return Ceilings(
        version=__version__,
        host=socket.gethostname(),
        at_ns=at_ns,
        spent_ns=time.monotonic_ns() - start_ns,
        path=plan.path,
        mount_point=plan.mount_point,
        fs_type=plan.fs_type,
        source=plan.source,
        device=plan.device,
        server=plan.server,
        size_bytes=plan.size_bytes,
        phase_seconds=plan.phase_seconds,
        busy_before=plan.busy,
        complete=not any(one.ended in (FULL, STOPPED) for one in measures),
        measures=tuple(measures),
    )


class _Probe:
    def __init__(self, plan: ProbePlan, place: ProbeFiles, halt: threading.Event) -> None:
        self._plan, self._place, self._halt = plan, place, halt
        self._read_fd = -1  # file of one worker, to be read
        self._seconds = plan.phase_seconds
        self._known_rate: float | None = None  # the best so far

    def run(self, rows: Sequence[Measure], on_row: OnRow) -> list[Measure]:
        end = time.monotonic() + self._seconds * len(rows) + _SLACK_SECONDS
        measures: list[Measure] = []
        for number, row in enumerate(rows, 1):
            if self._halt.is_set():
                measures.append(_unmeasured_row(row, "interrupted", STOPPED))
            elif time.monotonic() > end:
                measures.append(_unmeasured_row(row, "out of time", STOPPED))
            else:
                on_row(row, number, len(rows))
                measures.append(self._measure_row(row))
        return measures

    def _measure_row(self, row: Measure) -> Measure:
        try:
            done = measured_row(row, self._run_row(row))
        except _MissingError as error:
            return msgspec.structs.replace(row, missing=str(error))
        except OSError as error:
            return _unmeasured_row(row, _error_reason(error, row), FULL if error.errno in IS_FULL else None)
        if row.work == WRITE and done.bytes_per_second is not None:
            self._known_rate = max(self._known_rate or 0.0, done.bytes_per_second)
        return done

    def _run_row(self, row: Measure) -> Sequence[RowResult]:
        if self._plan.fs_type in IN_MEMORY and (row.direct or row.work == READ):
            raise _MissingError(f"{self._plan.fs_type} keeps files in memory: there is no disk")
        return self._run_read(row) if row.work == READ else (self._run_write(row),)

    def _run_write(self, row: Measure) -> RowResult:
        """Write up to the limits of bytes and time; the file to be read and the files of a row share the free space.

        Buffered writes go in rounds, each of as many bytes as fit into the time with its final fsync: the largest round
        counts.
        """
        free_bytes = min(self._plan.footprint_bytes, usable_bytes(self._place.parent_fd) + self._readable_bytes) // 2
        limit = min(self._plan.size_bytes // _WRITES, free_bytes) // row.workers // STEP * STEP
        if not limit:
            raise _MissingError("--size or the free space is too small for it")
        return self._write_new_files(row, limit) if row.direct else self._write_rounds(row, limit * row.workers)

    def _write_rounds(self, row: Measure, max_bytes: int) -> RowResult:
        step = STEP * row.workers
        start = time.monotonic()
        amount = _FIRST_BYTES if self._known_rate is None else int(0.75 * self._known_rate * self._seconds)
        written, tally = 0, None
        while True:
            amount = max(step, min(amount, max_bytes - written) // step * step)
            subject_before = self._read_fd
            try:
                tally = self._write_new_files(row, amount // row.workers)
            except OSError as error:
                if tally is None or error.errno not in IS_FULL:
                    raise
                tally.ended = FULL  # of the smaller round before
                return tally
            written += tally.transferred_bytes
            left_seconds = self._seconds - (time.monotonic() - start)
            larger = int(
                min(
                    max_bytes - written,
                    8 * amount,
                    0.8 * tally.transferred_bytes * _NS / tally.duration_ns * left_seconds,
                )
            )
            if tally.ended != SIZE or larger < 2 * amount or self._halt.is_set():
                return tally
            if subject_before < 0 and self._read_fd >= 0:  # a larger one replaces it
                self._place.remove(self._read_fd)
                self._read_fd = -1
            amount = larger

    def _write_new_files(self, row: Measure, bytes_per_file: int) -> RowResult:
        """Write new files in parallel; the first suitable one is retained for reading."""
        files: list[int] = []
        limits = RowLimits(self._seconds, bytes_per_file, self._halt)
        try:
            files += [self._place.open(direct=bool(row.direct)) for _ in range(row.workers)]
            tally = run_parallel([partial(write, fd, limits) for fd in files])
            if self._read_fd < 0 and row.workers == 1 and tally.transferred_bytes:
                self._read_fd = files.pop()
        finally:
            for fd in files:
                self._place.remove(fd)
        return tally

    @property
    def _readable_bytes(self) -> int:
        return os.fstat(self._read_fd).st_size // STEP * STEP if self._read_fd >= 0 else 0

    def _run_read(self, row: Measure) -> Sequence[RowResult]:
        fd, whole = self._read_fd, self._readable_bytes
        if not whole:
            raise _MissingError("no file to read: none could be written")
        flags = fcntl.fcntl(fd, fcntl.F_GETFL)
        fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_DIRECT if row.direct else flags & ~os.O_DIRECT)
        if not row.direct:
            return self._cold_passes(fd, whole)
        each = whole // STEP // row.workers * STEP
        if not each:
            raise _MissingError("the file is too small for so many readers")
        limits = RowLimits(self._seconds, each * _MAX_PASSES, self._halt)
        parts = [range(worker * each, (worker + 1) * each, STEP) for worker in range(row.workers)]
        return (run_parallel([partial(read, fd, itertools.cycle(part), limits) for part in parts]),)

    def _cold_passes(self, fd: int, whole: int) -> Sequence[RowResult]:
        """Read the file several times, each time after dropping it from the page cache."""
        end = time.monotonic() + self._seconds
        tallies: list[RowResult] = []
        while len(tallies) < _MAX_PASSES and (left := end - time.monotonic()) > 0:
            os.fsync(fd)  # only clean pages can be dropped
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            before = _device_read_bytes()
            tallies.append(read(fd, range(0, whole, STEP), RowLimits(left, whole, self._halt)))
            after = _device_read_bytes()
            if self._plan.device is None or before is None or after is None:
                continue
            if after - before < _MIN_DEVICE_SHARE * tallies[-1].transferred_bytes:
                raise _MissingError("the file could not be dropped from the page cache")
        return tallies


def measured_row(row: Measure, tallies: Sequence[RowResult]) -> Measure:
    """Return a row with its result; without a rate if a signal interrupted it."""
    transferred = sum(tally.transferred_bytes for tally in tallies)
    spent_ns = sum(tally.duration_ns for tally in tallies)
    ended = tallies[-1].ended
    if ended == STOPPED or not transferred:
        return _unmeasured_row(row, "interrupted" if ended == STOPPED else "no bytes were transferred", ended)
    measured = {"bytes_per_second": transferred * _NS / spent_ns, "transferred_bytes": transferred}
    return msgspec.structs.replace(row, **measured, spent_ns=spent_ns, ended=ended)


def _unmeasured_row(row: Measure, why: str, ended: str | None) -> Measure:
    return msgspec.structs.replace(row, missing=why, ended=ended)


def _error_reason(error: OSError, row: Measure) -> str:
    if row.direct and error.errno == errno.EINVAL:
        return "O_DIRECT is not supported here"
    if error.errno == errno.EDQUOT:
        return "the quota is exceeded"
    return error.strerror or str(error)


def _device_read_bytes() -> int | None:
    """Bytes that this process fetched from storage, None if unknown."""
    try:
        return int(process_facts.own_process().io_counters().read_bytes)
    except (psutil.Error, OSError):
        return None
