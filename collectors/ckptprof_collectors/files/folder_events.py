"""Openings, closings, deletions of files in watched folders (inotify(7)): what polling would miss between two ticks.

Needs no privilege but read access to the folder. Costs the watched job about a microsecond for each open, close and
deletion in these folders, nothing for reads and writes. Reports file and time, not the process: the caller finds that.
"""

from __future__ import annotations

import ctypes
import os
import struct
import time
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

# include/uapi/linux/inotify.h
IN_CLOSE_WRITE = 0x8
IN_CLOSE_NOWRITE = 0x10
IN_OPEN = 0x20
IN_MOVED_TO = 0x80
IN_CREATE = 0x100
IN_DELETE = 0x200
_IN_Q_OVERFLOW = 0x4000
_IN_IGNORED = 0x8000
_IN_ONLYDIR = 0x01000000
IN_ISDIR = 0x40000000
_MASK = IN_CLOSE_WRITE | IN_CLOSE_NOWRITE | IN_OPEN | IN_MOVED_TO | IN_CREATE | IN_DELETE | _IN_ONLYDIR
_HEADER = struct.Struct("iIII")  # struct inotify_event: wd, mask, cookie, len

MAX_FOLDERS = 256
MAX_EARLY = 64
MAX_EVENTS_PER_SECOND = 200  # of one folder: more is a data set or a log, no checkpoint
_READ_BYTES = 1 << 16
_EARLY_NS = 500_000_000
_OWN_NS = 1_000_000_000  # events of our own opens arrive within this time


class FolderEvent(NamedTuple):
    """One event; `at_ns` is when it was read, at most one wake-up later."""

    at_ns: int  # CLOCK_MONOTONIC
    path: bytes
    mask: int


class FolderEvents:
    """Watches a bounded number of folders; the one without events for longest is replaced."""

    def __init__(self) -> None:
        """Open inotify; raises OSError where it is not available."""
        libc = ctypes.CDLL(None, use_errno=True)
        self._add = libc.inotify_add_watch
        self._add.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)
        self._remove = libc.inotify_rm_watch
        self.fd: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        self._folders: dict[int, bytes] = {}  # watch descriptor -> folder, as its process names it
        self._watches: dict[bytes, int] = {}
        self._counts: dict[int, int] = {}
        self._counted_ns = 0
        self._own: deque[tuple[int, bytes]] = deque(maxlen=1024)  # by worker threads: (time, path) of our own opens
        self._expected: dict[
            tuple[bytes, int], list[int]
        ] = {}  # (path, mask) -> number of our own events, and since when
        self._noisy: set[bytes] = set()
        self._early: deque[tuple[int, int, int, bytes]] = deque(maxlen=MAX_EARLY)  # of watches before `record_added`

    def is_watched(self, folder: bytes) -> bool:
        """Test whether a folder is watched; that also keeps it watched."""
        if folder not in self._watches:
            return False
        self._watches[folder] = self._watches.pop(folder)
        return True

    def add(self, fd: int) -> int:
        """Watch the folder of a descriptor, from any thread, as it may hang; pass the result to `record_added`.

        The path given to inotify is that of the descriptor: no part of it can be swapped.
        """
        descriptor: int = self._add(self.fd, b"/proc/self/fd/%d" % fd, _MASK)
        return descriptor

    def record_added(self, folder: bytes, descriptor: int) -> bool:
        """Record the result of `add`; return True if the folder is watched."""
        if descriptor < 0:
            return False
        if folder in self._noisy:
            self._remove(self.fd, descriptor)
            return False
        previous_name = self._folders.get(descriptor)
        if previous_name is not None:
            self._watches.pop(previous_name, None)  # the same folder under another name
        while len(self._watches) >= MAX_FOLDERS:
            self._forget(next(iter(self._watches)))
        self._folders[descriptor] = folder
        self._watches[folder] = descriptor
        return True

    def _forget(self, folder: bytes) -> None:
        descriptor = self._watches.pop(folder)
        self._folders.pop(descriptor, None)
        self._counts.pop(descriptor, None)
        self._remove(self.fd, descriptor)

    def expect_own(self, path: bytes) -> None:
        """Record that ckptprof opens this file now: one of the following opens and closes is its own."""
        self._own.append((time.monotonic_ns(), path))

    @property
    def has_early_events(self) -> bool:
        """Events wait for `record_added`."""
        return bool(self._early)

    def read(self) -> list[FolderEvent]:
        """Consume the events; never waits."""
        try:
            raw = os.read(self.fd, _READ_BYTES)
        except BlockingIOError:
            raw = b""
        if not raw and not self._early:
            return []
        at_ns = time.monotonic_ns()
        self._drop_noisy(at_ns)
        self._expect(at_ns)
        early = [self._early.popleft() for _ in range(len(self._early))]
        return [event for one in (*early, *self._parse(at_ns, raw)) if (event := self._event(*one)) is not None]

    def _parse(self, at_ns: int, raw: bytes) -> Iterator[tuple[int, int, int, bytes]]:
        offset = 0
        while offset + _HEADER.size <= len(raw):
            descriptor, mask, _, length = _HEADER.unpack_from(raw, offset)
            offset += _HEADER.size
            yield at_ns, descriptor, mask, raw[offset : offset + length].rstrip(b"\0")
            offset += length

    def _event(self, at_ns: int, descriptor: int, mask: int, name: bytes) -> FolderEvent | None:
        if mask & _IN_Q_OVERFLOW:
            return None
        folder = self._folders.get(descriptor)
        if folder is None:
            if time.monotonic_ns() - at_ns < _EARLY_NS and not mask & _IN_IGNORED:
                self._early.append((at_ns, descriptor, mask, name))  # a worker thread may have added it just now
            return None
        if mask & _IN_IGNORED:
            self._folders.pop(descriptor, None)
            self._watches.pop(folder, None)
            return None
        if not mask & IN_DELETE:  # as many as there are files: an old checkpoint of a thousand
            self._counts[descriptor] = self._counts.get(descriptor, 0) + 1
        path = folder.rstrip(b"/") + b"/" + name if name else folder
        return FolderEvent(at_ns, path, mask) if name and not self._is_own(path, mask) else None

    def _expect(self, at_ns: int) -> None:
        for key in [key for key, (_, since_ns) in self._expected.items() if at_ns - since_ns > _OWN_NS]:
            del self._expected[key]
        while self._own:
            since_ns, path = self._own.popleft()
            for mask in (IN_OPEN, IN_CLOSE_NOWRITE):
                count = self._expected.get((path, mask), (0, 0))[0]
                self._expected[path, mask] = [count + 1, since_ns]

    def _is_own(self, path: bytes, mask: int) -> bool:
        """Test whether ckptprof itself caused the event; another process that opens the file just then is reported."""
        expected = self._expected.get((path, mask))
        if expected is None:
            return False
        expected[0] -= 1
        if expected[0] <= 0:
            del self._expected[path, mask]
        return True

    def _drop_noisy(self, at_ns: int) -> None:
        if at_ns - self._counted_ns < 1_000_000_000:
            return
        self._counted_ns = at_ns
        for descriptor, count in self._counts.items():
            folder = self._folders.get(descriptor)
            if count > MAX_EVENTS_PER_SECOND and folder is not None:
                self._noisy.add(folder)
        self._counts.clear()
        for folder in self._noisy & self._watches.keys():
            self._forget(folder)

    def close(self) -> None:
        """Close inotify with all watches."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
