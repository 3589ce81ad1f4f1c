"""Counters of one thread: time on CPU, and its own bytes (/proc/PID/task/TID).

A descriptor stays bound to the thread it was opened for: once that has ended a read gives ESRCH.
schedstat needs no privilege beyond that of seeing the process, io the same as /proc/PID/io.
"""

from __future__ import annotations

import os

from ckptprof_collectors.processes.process import Process, ProcessGone
from ckptprof_collectors.samples import ThreadTime


class ThreadClock:
    """The main thread of a process: in nearly all training programs the one that trains."""

    __slots__ = ("_folder", "_io_denied", "_io_fd", "_previous", "_schedstat_fd", "process", "tid")

    def __init__(self, process: Process) -> None:
        """Open its schedstat; raises ProcessGone, and OSError where the kernel keeps none (CONFIG_SCHED_INFO)."""
        self.process = process
        self.tid = process.pid
        self._folder = process.folder + b"/task/%d" % self.tid
        self._io_fd = -1
        self._io_denied = False
        self._previous: tuple[bytes, bytes] = (b"", b"")
        try:
            self._schedstat_fd = os.open(self._folder + b"/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, ProcessLookupError) as error:
            process.check_alive()
            raise OSError("the kernel keeps no schedstat") from error
        try:
            process.check_alive()  # the pid in the path was still this process's when it was opened
        except ProcessGone:
            self.close()
            raise

    def read(self) -> ThreadTime | None:
        """Read the counters, including its bytes; None if unchanged. Raises ProcessGone."""
        try:
            raw = os.pread(self._schedstat_fd, 128, 0)
            counted = self._read_io()
        except ProcessLookupError as error:
            raise ProcessGone from error
        if (raw, counted) == self._previous:
            return None
        self._previous = (raw, counted)
        return parse(self.process.pid, self.process.start_ticks, self.tid, raw, counted)

    def _read_io(self) -> bytes:
        if self._io_denied:
            return b""
        try:
            if self._io_fd < 0:
                self._io_fd = os.open(self._folder + b"/io", os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(self._io_fd, 512, 0)
        except FileNotFoundError as error:
            raise ProcessGone from error
        except PermissionError:
            self._io_denied = True
            return b""

    def close_io(self) -> None:
        """Close the descriptor that only a burst needs."""
        if self._io_fd >= 0:
            os.close(self._io_fd)
            self._io_fd = -1

    def close(self) -> None:
        self.close_io()
        if self._schedstat_fd >= 0:
            os.close(self._schedstat_fd)
            self._schedstat_fd = -1


def parse(pid: int, start_ticks: int, tid: int, schedstat: bytes, io: bytes) -> ThreadTime | None:
    """Parse schedstat and io (b"" if that was not read); None if schedstat is incomplete."""
    try:
        on_cpu_ns, waited_ns, slices = map(int, schedstat.split()[:3])
    except ValueError:
        return None
    read_chars = written_chars = None
    fields = io.split()
    if len(fields) > 3 and fields[0] == b"rchar:" and fields[2] == b"wchar:":
        try:
            read_chars, written_chars = int(fields[1]), int(fields[3])
        except ValueError:
            read_chars = written_chars = None
    return ThreadTime(pid, start_ticks, tid, on_cpu_ns, waited_ns, slices, written_chars, read_chars)
