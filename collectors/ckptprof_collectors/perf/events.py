"""Calls of the system as perf events: rings of the kernel that tell of each call when it begins and when it ends."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import platform
import re
import select
import struct
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress

from ckptprof_collectors.kernelfs import KernelFs, UnavailableError

_LIBC = ctypes.CDLL(None, use_errno=True)
_OPEN_EVENT = {"x86_64": 298, "aarch64": 241}
_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432  # the same on every architecture, since 5.2
_CREATE = 6  # FSCONFIG_CMD_CREATE
_TRACEPOINT = 2  # include/uapi/linux/perf_event.h, from here on
_ATTRIBUTE_BYTES = 112  # PERF_ATTR_SIZE_VER5: Linux 4.1
_SAMPLE_TYPE = 2 | 4 | 1 << 10  # TID, TIME, RAW
_FORMAT_LOST = 1 << 4
_DISABLED, _INHERIT, _WATERMARK, _USE_CLOCK = 1 << 0, 1 << 1, 1 << 14, 1 << 25
_CLOCK_MONOTONIC = 1
_CLOSE_ON_EXEC = 8
_ENABLE, _DISABLE, _SET_OUTPUT = 0x2400, 0x2401, 0x2405
_SET_FILTER = 0x40082406
_HEAD, _TAIL = 1024 // 8, 1032 // 8  # of struct perf_event_mmap_page
_LOST, _SAMPLE = 2, 9
_RECORD = struct.Struct("<IHH")
_LOST_EVENTS = struct.Struct("<8x8xQ")
# Behind the head: pid, tid, time, size of what the tracepoint tells, its common part, number of the call, the rest
_ENTER = struct.Struct("<8xIIQ4x8xq6Q")
_EXIT = struct.Struct("<8xIIQ4x8xqq")
_ENTER_BYTES, _EXIT_BYTES = 96, 56
_PLACES = {
    "sys_enter": re.compile(rb"id;\s+offset:8;\s+size:8;.*args\[6\];\s+offset:16;\s+size:48;", re.DOTALL),
    "sys_exit": re.compile(rb"id;\s+offset:8;\s+size:8;.*ret;\s+offset:16;\s+size:8;", re.DOTALL),
}
_DENIED = (errno.EPERM, errno.EACCES)
_SMALLEST_RING = 64 << 10

Event = tuple[int, ...]  # enter: pid, tid, at_ns, call, six arguments; exit: pid, tid, at_ns, call, result


class _Attribute(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("config", ctypes.c_uint64),
        ("sample_period", ctypes.c_uint64),
        ("sample_type", ctypes.c_uint64),
        ("read_format", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("wakeup", ctypes.c_uint32),
        ("bp_type", ctypes.c_uint32),
        ("unused", ctypes.c_uint64 * 4),
        ("sample_stack_user", ctypes.c_uint32),
        ("clockid", ctypes.c_int32),
        ("unused_too", ctypes.c_uint64 * 2),
    )


assert ctypes.sizeof(_Attribute) == _ATTRIBUTE_BYTES  # noqa: S101 - fails on import, not in the field


def _unavailable(text: str, error: OSError | None = None) -> UnavailableError:
    reason = UnavailableError(f"{text}: {error.strerror}" if error else text)
    reason.permission = error is not None and error.errno in _DENIED
    return reason


def _call(number: int, *arguments: object) -> int:
    result = int(_LIBC.syscall(number, *arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def open_tracefs(fs: KernelFs) -> int:
    """Return a descriptor of tracefs, mounted or not: then it is opened without a place; raises UnavailableError."""
    for folder in (fs.sys / "kernel/tracing", fs.sys / "kernel/debug/tracing"):
        try:
            found = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in _DENIED:
                raise _unavailable(f"perf events: {folder} may not be read", error) from None
            continue
        try:
            os.stat("events/raw_syscalls", dir_fd=found)
        except OSError as error:
            os.close(found)
            if error.errno in _DENIED:
                raise _unavailable(f"perf events: {folder} may not be read", error) from None
            continue
        return found
    if not fs.is_live:
        raise _unavailable(f"perf events: no tracefs below {fs.sys}")
    try:
        return _open_unmounted()
    except OSError as error:
        raise _unavailable("perf events: tracefs is not mounted and cannot be opened", error) from None


def _open_unmounted() -> int:
    opened = _call(_FSOPEN, b"tracefs", 1)
    try:
        _call(_FSCONFIG, opened, _CREATE, None, None, 0)
        return _call(_FSMOUNT, opened, 1, 0)
    finally:
        os.close(opened)


def _read_at(folder: int, path: str) -> bytes:
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    with open(opened, "rb") as stream:
        return stream.read()


class Tracepoints:
    """The numbers of the tracepoints that are used; checks that they tell what is expected."""

    def __init__(self, fs: KernelFs) -> None:
        """Read them; raises UnavailableError."""
        if platform.machine() not in _OPEN_EVENT or sys.byteorder != "little" or sys.maxsize < 1 << 32:
            raise _unavailable(f"perf events: the calls of {platform.machine()} are not known")
        folder = open_tracefs(fs)
        try:
            for name, places in _PLACES.items():
                if places.search(_read_at(folder, f"events/raw_syscalls/{name}/format")) is None:
                    raise _unavailable(f"perf events: this kernel's {name} is laid out in another way")
            self.enter = int(_read_at(folder, "events/raw_syscalls/sys_enter/id"))
            self.exit = int(_read_at(folder, "events/raw_syscalls/sys_exit/id"))
            self.opens: int | None = None
            with suppress(OSError, ValueError):  # CONFIG_FTRACE_SYSCALLS
                self.opens = int(_read_at(folder, "events/syscalls/sys_enter_openat/id"))
        except OSError as error:
            raise _unavailable("perf events: the tracepoints of calls cannot be read", error) from None
        except ValueError:
            raise _unavailable("perf events: the tracepoints of calls have no numbers") from None
        finally:
            os.close(folder)


class Ring:
    """The ring of one processor, into which all its events go."""

    def __init__(self, fd: int, data_bytes: int) -> None:
        """Map it; `fd` stays its owner's. Raises OSError."""
        self._bytes = data_bytes
        self._map = mmap.mmap(fd, mmap.PAGESIZE + data_bytes)
        self._whole = memoryview(self._map)
        self._control = self._whole[: mmap.PAGESIZE].cast("Q")
        self._data = self._whole[mmap.PAGESIZE :]

    def waiting(self) -> int:
        """Return how many bytes are to be read."""
        return self._control[_HEAD] - self._control[_TAIL]

    def drain(self, events: list[Event], limit: int) -> tuple[int, bool]:
        """Append at most `limit` events; return how many the kernel had no room for, and whether all was taken."""
        head, tail = self._control[_HEAD], self._control[_TAIL]
        left = head - tail
        wanted = min(left, limit * _ENTER_BYTES)
        start = tail % self._bytes
        data = bytes(self._data[start : start + wanted])
        if len(data) < wanted:
            data += bytes(self._data[: wanted - len(data)])
        taken, lost = parse(data, events)
        if not taken and left:  # nothing that makes sense: go on behind it
            taken, lost = left, left // _ENTER_BYTES + 1
        self._control[_TAIL] = tail + taken
        return lost, taken >= left

    def close(self) -> None:
        """Unmap it."""
        for view in (self._data, self._control, self._whole):
            view.release()
        self._map.close()


def parse(data: bytes, events: list[Event]) -> tuple[int, int]:
    """Append the events of whole records; return how many bytes these are, and how many events were lost."""
    at, end, lost = 0, len(data), 0
    record, enter, leave, append = _RECORD.unpack_from, _ENTER.unpack_from, _EXIT.unpack_from, events.append
    while at + 8 <= end:
        kind, _, size = record(data, at)
        if size < 8 or at + size > end:
            break
        if kind == _SAMPLE:
            if size == _EXIT_BYTES:
                append(leave(data, at))
            elif size == _ENTER_BYTES:
                append(enter(data, at))
        elif kind == _LOST and size >= _LOST_EVENTS.size:
            lost += _LOST_EVENTS.unpack_from(data, at)[0]
        at += size
    return at, lost


class Rings:
    """The events of all processors, or on all processors those of some processes' children."""

    def __init__(self, fs: KernelFs, *, ring_bytes: int, family_of: tuple[int, ...]) -> None:
        """Prepare; nothing is told before `start`. Raises UnavailableError."""
        self._points = Tracepoints(fs)
        self._ring_bytes = ring_bytes
        self._family = family_of
        self._rings: list[Ring] = []
        self._fds: list[int] = []
        self._waking: list[int] = []
        self._poll = select.epoll()
        self._timer = _timer()
        self._poll.register(self._timer, select.EPOLLIN)
        self._told_lost = 0
        self._tells_lost = True

    def start(self, fs: KernelFs, *, enter: str, leave: str) -> None:
        """Begin, with filters for what is told; raises UnavailableError. Processors that come later are not seen."""
        try:
            targets = self._targets(fs)
            for processor in _online(fs):
                self._open_all(processor, targets, (enter, leave))
            for fd in self._fds:
                fcntl.ioctl(fd, _ENABLE, 0)
        except OSError as error:
            self.close()
            raise _unavailable("perf events: refused", error) from None
        if not self._rings:
            self.close()
            raise _unavailable("perf events: no processor takes them")

    def _targets(self, fs: KernelFs) -> Sequence[int]:
        """Return the threads whose children are told of; -1: everybody."""
        if not self._family:
            return (-1,)
        return [int(thread) for process in self._family for thread in os.listdir(fs.proc / str(process) / "task")]

    def _open_all(self, processor: int, targets: Sequence[int], filters: tuple[str, str]) -> None:
        owner = -1
        kinds = [(self._points.enter, filters[0], False), (self._points.exit, filters[1], False)]
        if self._points.opens is not None:
            kinds.append((self._points.opens, "flags & 3", True))  # O_WRONLY, O_RDWR
        for target in targets:
            for number, wanted, wakes in kinds:
                try:
                    fd = self._open(number, target, processor, wakes=wakes)
                except OSError as error:
                    if error.errno in (errno.ENODEV, errno.ESRCH):  # the processor, or the thread, is gone
                        continue
                    raise
                (self._waking if wakes else self._fds).append(fd)
                fcntl.ioctl(fd, _SET_FILTER, wanted.encode() + b"\0")
                if owner < 0:
                    owner = fd
                    self._rings.append(self._ring_of(fd))
                    self._poll.register(fd, select.EPOLLIN)
                else:
                    fcntl.ioctl(fd, _SET_OUTPUT, owner)

    def _open(self, number: int, target: int, processor: int, *, wakes: bool) -> int:
        flags = _DISABLED | _USE_CLOCK | (_INHERIT if target > 0 else 0) | (0 if wakes else _WATERMARK)
        wakeup = 1 if wakes else self._ring_bytes // 2
        attribute = _Attribute(
            _TRACEPOINT, _ATTRIBUTE_BYTES, number, 1, _SAMPLE_TYPE, 0, flags, wakeup, clockid=_CLOCK_MONOTONIC
        )
        arguments = (ctypes.byref(attribute), target, processor, -1, ctypes.c_ulong(_CLOSE_ON_EXEC))
        if self._tells_lost:
            attribute.read_format = _FORMAT_LOST
            try:
                return _call(_OPEN_EVENT[platform.machine()], *arguments)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
            self._tells_lost, attribute.read_format = False, 0
        return _call(_OPEN_EVENT[platform.machine()], *arguments)

    def _ring_of(self, fd: int) -> Ring:
        """Return a ring of the wished size, or as large as may be locked in memory (perf_event_mlock_kb)."""
        while True:
            try:
                return Ring(fd, self._ring_bytes)
            except OSError as error:  # noqa: PERF203 - a few turns
                if error.errno not in (*_DENIED, errno.ENOMEM) or self._ring_bytes <= _SMALLEST_RING:
                    raise
                self._ring_bytes //= 2

    def wake_at_opens(self, *, wanted: bool) -> None:
        """Have the descriptor become readable when a file is opened to be written, or not."""
        for fd in self._waking:
            fcntl.ioctl(fd, _ENABLE if wanted else _DISABLE, 0)

    def count_lost(self) -> int:
        """Return how many events found no room; before 6.0 those of the end are told only when there is room again."""
        if not self._tells_lost:
            return self._told_lost
        return sum(int.from_bytes(os.read(fd, 16)[8:16], "little") for fd in self._fds)

    def wake_after(self, pause_ns: int) -> None:
        """Have it become readable after a pause; 0: not for the time being."""
        seconds, nanoseconds = divmod(pause_ns, 1_000_000_000)
        _LIBC.timerfd_settime(self._timer, 0, (ctypes.c_long * 4)(0, 0, seconds, nanoseconds), None)

    def fileno(self) -> int:
        """Return a descriptor that is readable when a ring is half full or a file is opened to be written."""
        return self._poll.fileno()

    def drain(self, limit: int) -> tuple[list[Event], int]:
        """Return at most about `limit` events, in the order of time of each processor, and until when all are there."""
        events: list[Event] = []
        at, until_ns = 0, 1 << 63
        for ring in sorted(self._rings, key=Ring.waiting):
            share = (limit - len(events)) // (len(self._rings) - at)
            at, count = at + 1, len(events)
            lost, whole = ring.drain(events, max(64, share))
            self._told_lost += lost
            if not whole and len(events) > count:
                until_ns = min(until_ns, events[-1][2])
        return events, until_ns

    def close(self) -> None:
        """Give everything back; a second call does nothing."""
        for ring in self._rings:
            ring.close()
        for fd in (*self._waking, *self._fds):
            os.close(fd)
        self._rings, self._fds, self._waking = [], [], []
        self._poll.close()
        if self._timer >= 0:
            os.close(self._timer)
            self._timer = -1


def _timer() -> int:
    """Return a timer's descriptor (timerfd_create(2)); raises UnavailableError."""
    timer = int(_LIBC.timerfd_create(_CLOCK_MONOTONIC, os.O_CLOEXEC | os.O_NONBLOCK))
    if timer < 0:
        raise _unavailable("perf events: no timer", OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno())))
    return timer


def _online(fs: KernelFs) -> Iterable[int]:
    """Return the processors that are online, as in "0-3,8"."""
    try:
        text = (fs.sys / "devices/system/cpu/online").read_text()
        ranges = [part.partition("-") for part in text.strip().split(",")]
        return [number for low, _, high in ranges for number in range(int(low), int(high or low) + 1)]
    except (OSError, ValueError):
        return range(os.cpu_count() or 1)


def ring_bytes_for(wished: int, processors: int, at_most: int) -> int:
    """Return a power of two so that the rings of all processors together stay below a bound."""
    wished = max(_SMALLEST_RING, min(wished, at_most // max(1, processors)))
    return 1 << (wished.bit_length() - 1)
