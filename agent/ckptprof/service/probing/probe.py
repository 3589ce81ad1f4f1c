"""The probe of a directory: does each kind of work for a moment, and says how fast it went or why it could not."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import psutil

from ckptprof import __version__
from ckptprof.diagnose.ceilings import MIB, Ceilings, Ended, Measure, Work
from ckptprof.figures import quantile
from ckptprof.service.probing import moving
from ckptprof.service.probing.moving import Limits, Tally
from ckptprof.service.probing.phases import PHASES, Phase
from ckptprof.service.probing.place import Place, working
from ckptprof.service.probing.planning import Plan, room_bytes, room_files
from ckptprof_collectors import hostfacts

IN_MEMORY = frozenset(("tmpfs", "ramfs", "hugetlbfs"))
_FIRST_BYTES = 4 * MIB  # of buffered writes while nobody knows how long their fsync takes
_MOST_FILES = 5000
_MOST_PASSES = 8
_FROM_DEVICE = 0.9  # of what was read must have come from the device, or the page cache was measured
_SLACK_SECONDS = 2.0  # more than the sum of the phases; what is left then is not begun
_NS = 1_000_000_000

Tell = Callable[[Measure, int, int], None]  # the row that begins, its number from 1 on, and how many there are


class _MissingError(Exception):
    """This row cannot be measured here; the text says why."""


def probe(plan: Plan, *, halt: threading.Event, tell: Tell, phases: Sequence[Phase] = PHASES) -> Ceilings:
    """Measure all that can be of the phases; ends early, with what there is, once `halt` is set. Raises OSError."""
    at_ns, begin_ns = time.time_ns(), time.monotonic_ns()
    with working(plan.directory) as place:
        measures = _Probe(plan, place, halt).run(phases, tell)
    broken = any(one.ended in (Ended.FULL, Ended.STOPPED) for one in measures)
    return Ceilings(
        version=__version__,
        host=socket.gethostname(),
        at_ns=at_ns,
        spent_ns=time.monotonic_ns() - begin_ns,
        path=plan.path,
        mount_point=plan.mount_point,
        fs_type=plan.fs_type,
        source=plan.source,
        device=plan.device,
        server=plan.server,
        size_bytes=plan.size_bytes,
        phase_seconds=plan.phase_seconds,
        busy_before=plan.busy,
        complete=not broken,
        measures=tuple(measures),
    )


class _Probe:
    """One run through all phases."""

    def __init__(self, plan: Plan, place: Place, halt: threading.Event) -> None:
        self._plan, self._place, self._halt = plan, place, halt
        self._subject = -1  # a file of 1 MiB writes, kept to be written at random and read
        self._seconds = plan.phase_seconds
        self._known_rate: float | None = None  # the best so far

    def run(self, phases: Sequence[Phase], tell: Tell) -> list[Measure]:
        """Return a measure for each row."""
        end = time.monotonic() + self._seconds * len(phases) + _SLACK_SECONDS
        measures: list[Measure] = []
        for number, phase in enumerate(phases, 1):
            if self._halt.is_set():
                measures += [_broken(row, "interrupted", Ended.STOPPED) for row in phase.rows]
            elif time.monotonic() > end:
                measures += [_broken(row, "out of time", Ended.STOPPED) for row in phase.rows]
            else:
                tell(phase.rows[0], number, len(phases))
                measures += self._measured(phase)
        return measures

    def _measured(self, phase: Phase) -> list[Measure]:
        row = phase.rows[0]
        try:
            if row.work is Work.CREATE:
                return self._names(phase.rows)
            done = [measured(row, self._tallies(row, phase.share))]
        except _MissingError as error:
            return [msgspec.structs.replace(one, missing=str(error)) for one in phase.rows]
        except OSError as error:
            ended = Ended.FULL if error.errno in moving.FULL else None
            return [_broken(one, _reason(error, row), ended) for one in phase.rows]
        if row.work is Work.WRITE and done[0].bytes_per_second is not None:
            self._known_rate = max(self._known_rate or 0.0, done[0].bytes_per_second)
        return done

    def _tallies(self, row: Measure, share: float) -> Sequence[Tally]:
        if self._plan.fs_type in IN_MEMORY and (row.direct or row.work is Work.READ):
            raise _MissingError(f"{self._plan.fs_type} keeps files in memory: there is no device")
        if row.work is Work.READ:
            return self._reads(row)
        limit = self._limit(row, share)
        if row.work is Work.SYNC:
            return (self._sync(row, limit),)
        if row.random:
            return (self._random(row, limit),)
        return (self._direct(row, limit) if row.direct else self._buffered(row, limit),)

    def _limit(self, row: Measure, share: float) -> int:
        """Return how many bytes each worker may write now: the subject and the files of one phase share the room."""
        most = min(self._plan.footprint_bytes, room_bytes(self._place.parent_fd) + self._subject_bytes) // 2
        each = min(int(share * self._plan.size_bytes), most) // row.workers
        size = row.operation_bytes or 1
        if each < size:
            raise _MissingError("too little may be written for it, by --size or by the free space")
        return each // size * size

    def _limits(self, most_bytes: int, *, seconds: float | None = None, steady: bool = True) -> Limits:
        return Limits(self._seconds if seconds is None else seconds, most_bytes, self._halt, steady)

    @property
    def _subject_bytes(self) -> int:
        return os.fstat(self._subject).st_size // MIB * MIB if self._subject >= 0 else 0

    def _direct(self, row: Measure, limit: int) -> Tally:
        return self._fresh(row, self._limits(limit, steady=row.workers == 1))

    def _fresh(self, row: Measure, limits: Limits) -> Tally:
        """Write new files side by side; the first one that may serve to be read is kept."""
        files: list[int] = []
        size = row.operation_bytes or 1
        try:
            files += [self._place.open(direct=bool(row.direct)) for _ in range(row.workers)]
            tally = moving.side_by_side([partial(moving.write, fd, size, limits) for fd in files])
            if self._subject < 0 and row.workers == 1 and size == MIB and tally.moved_bytes:
                self._subject = files.pop()
        finally:
            for fd in files:
                self._place.drop(fd)
        return tally

    def _buffered(self, row: Measure, limit: int) -> Tally:
        """Write as much as fits into the time with the fsync that ends it; the largest round is what counts."""
        step = (row.operation_bytes or 1) * row.workers
        most = limit * row.workers
        begin = time.monotonic()
        amount = _FIRST_BYTES if self._known_rate is None else int(0.75 * self._known_rate * self._seconds)
        written, tally = 0, None
        while True:
            amount = max(step, min(amount, most - written) // step * step)
            limits = self._limits(amount // row.workers, steady=False)
            kept = self._subject
            try:
                tally = self._fresh(row, limits)
            except OSError as error:
                if tally is None or error.errno not in moving.FULL:
                    raise
                tally.ended = Ended.FULL  # of the smaller round before
                return tally
            written += tally.moved_bytes
            left = self._seconds - (time.monotonic() - begin)
            rate = tally.moved_bytes * _NS / tally.spent_ns
            larger = int(min(most - written, 8 * amount, 0.8 * rate * left))
            if tally.ended is not Ended.SIZE or larger < 2 * amount or self._halt.is_set():
                return tally
            if kept < 0 and self._subject >= 0:  # a larger one takes its place
                self._place.drop(self._subject)
                self._subject = -1
            amount = larger

    def _random(self, row: Measure, limit: int) -> Tally:
        size = row.operation_bytes or 1
        _go_direct(self._some_subject(), direct=True)
        offsets = list(range(0, self._subject_bytes, size))
        random.shuffle(offsets)
        return moving.write(self._subject, size, self._limits(limit), itertools.cycle(offsets))

    def _sync(self, row: Measure, limit: int) -> Tally:
        fd = self._place.open(direct=False)
        try:
            return moving.write_and_sync(fd, row.operation_bytes or 1, self._limits(limit))
        finally:
            self._place.drop(fd)

    def _names(self, rows: tuple[Measure, ...]) -> list[Measure]:
        free = room_files(self._place.parent_fd)
        most = _MOST_FILES if free is None else min(_MOST_FILES, free)
        if not most:
            raise _MissingError("too few free inodes")
        fd, made, measures = self._place.fd, 0, []
        for row in rows:
            step = {Work.CREATE: _create, Work.RENAME: _rename, Work.UNLINK: _unlink}[row.work]
            limits = self._limits(made or most, seconds=self._seconds / len(rows), steady=False)
            tally = moving.repeat(partial(step, fd), itertools.count(), 1, limits)
            made = tally.operations
            tally.moved_bytes = 0
            measures.append(measured(row, (tally,)))
            if not made:
                break
        return measures

    def _some_subject(self) -> int:
        if self._subject < 0 or not self._subject_bytes:
            raise _MissingError("no file could be written for it")
        return self._subject

    def _reads(self, row: Measure) -> Sequence[Tally]:
        fd = self._some_subject()
        _go_direct(fd, direct=bool(row.direct))
        size, whole = row.operation_bytes or 1, self._subject_bytes
        if not row.direct:
            return self._cold_passes(row, fd)
        each = whole // size // row.workers * size
        if not each:
            raise _MissingError("the file is too small for so many readers")
        parts = [range(worker * each, (worker + 1) * each, size) for worker in range(row.workers)]
        limits = self._limits(each * _MOST_PASSES, steady=row.workers == 1)
        return (moving.side_by_side([partial(moving.read, fd, size, itertools.cycle(part), limits) for part in parts]),)

    def _cold_passes(self, row: Measure, fd: int) -> Sequence[Tally]:
        """Read the file several times, out of the page cache each time."""
        size, whole = row.operation_bytes or 1, self._subject_bytes
        end = time.monotonic() + self._seconds
        tallies: list[Tally] = []
        while len(tallies) < _MOST_PASSES and (left := end - time.monotonic()) > 0:
            os.fsync(fd)  # only clean pages can be dropped
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            before = _read_bytes()
            limits = self._limits(whole, seconds=left, steady=False)
            if row.mapped:
                tallies.append(moving.read_mapped(fd, whole, size, limits))
            else:
                tallies.append(moving.read(fd, size, range(0, whole, size), limits))
            after = _read_bytes()
            if self._plan.device is None or before is None or after is None:
                continue
            if after - before < _FROM_DEVICE * tallies[-1].moved_bytes:
                raise _MissingError("the file could not be dropped from the page cache")
        return tallies


def measured(row: Measure, tallies: Sequence[Tally]) -> Measure:
    """Return a row with what was done; broken off by a signal it has no rates."""
    moved = sum(tally.moved_bytes for tally in tallies)
    operations = sum(tally.operations for tally in tallies)
    spent_ns = sum(tally.spent_ns for tally in tallies)
    ended = tallies[-1].ended
    if ended is Ended.STOPPED or not operations:
        return _broken(row, "interrupted" if ended is Ended.STOPPED else "nothing could be done", ended)
    laps = sorted(lap for tally in tallies for lap in tally.laps_ns)
    timed = row.direct is not False  # what ends in the page cache tells nothing
    return msgspec.structs.replace(
        row,
        bytes_per_second=moved * _NS / spent_ns if moved else None,
        operations_per_second=operations * _NS / spent_ns,
        latency_p50_seconds=quantile(laps, 0.5) / _NS if timed else None,
        latency_p99_seconds=quantile(laps, 0.99) / _NS if timed else None,
        moved_bytes=moved,
        operations=operations,
        spent_ns=spent_ns,
        ended=ended,
    )


def _broken(row: Measure, why: str, ended: Ended | None) -> Measure:
    return msgspec.structs.replace(row, missing=why, ended=ended)


def _reason(error: OSError, row: Measure) -> str:
    if row.direct and error.errno == errno.EINVAL:
        return "O_DIRECT is refused here"
    if error.errno == errno.EDQUOT:
        return "the quota is exceeded"
    return error.strerror or str(error)


def _go_direct(fd: int, *, direct: bool) -> None:
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_DIRECT if direct else flags & ~os.O_DIRECT)


def _create(fd: int, number: int) -> int:
    os.close(os.open(f"name-{number}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=fd))
    return 1


def _rename(fd: int, number: int) -> int:
    os.rename(f"name-{number}", f"renamed-{number}", src_dir_fd=fd, dst_dir_fd=fd)
    return 1


def _unlink(fd: int, number: int) -> int:
    os.unlink(f"renamed-{number}", dir_fd=fd)
    return 1


def _read_bytes() -> int | None:
    """Return what this process has had fetched from storage, None if it cannot be seen."""
    try:
        return int(hostfacts.own().io_counters().read_bytes)
    except (psutil.Error, OSError):
        return None
