"""Cache of inspected files: which facts were reported, and what was read from the files."""

from __future__ import annotations

import mmap
import struct
import time
from dataclasses import dataclass, field

from ckptprof_collectors.files.statx import FileStatus

MAX_CACHED = 20_000  # 100 to 200 bytes each
REPORTED_SLOTS = 1 << 18  # of 4 bytes: with 40,000 files one in seven shares its slot
SETTLED_NS = 2_000_000_000  # older stamps change with each write: their unit is a timer tick or a second
MAX_COUNTED = 4096
COUNTED_NS = 1_000_000_000  # between counts of a file's dirty pages
_MAX_SHARED_CONTENTS = 1024
_VERSION = struct.Struct("=6Q")
_WORD = (1 << 64) - 1  # a stamp may lie before 1970


class TwoGenerationCache:
    """The most recent entries, in two generations: when one is full, the older one is dropped.

    Threads of several domains use it: each step is one dict operation, and a lost entry is only read again.
    """

    def __init__(self) -> None:
        self._current: dict[bytes, FileContents] = {}
        self._previous: dict[bytes, FileContents] = {}

    def __len__(self) -> int:
        return len(self._current) + len(self._previous)

    def get(self, key: bytes) -> FileContents | None:
        """Find a value and keep it in the cache; None if it is not there."""
        found = self._current.get(key)
        if found is None and (found := self._previous.pop(key, None)) is not None:
            self._current[key] = found
        return found

    def put(self, key: bytes, value: FileContents) -> None:
        if len(self._current) >= MAX_CACHED // 2:
            self._previous, self._current = self._current, {}
        self._current[key] = value


@dataclass(frozen=True, slots=True)
class FileContents:
    """Facts that need the file open."""

    magic: bytes | None = None
    is_complete: bool | None = None
    unwritten_bytes: int | None = None
    free_bytes: int | None = None


class ReportedFiles:
    """Facts already reported to each process: of tens of thousands of files only changed ones are reported again.

    A hash gives each file its slot, from which it evicts another one. So of more files than slots, inspected in turn,
    most are known; with the latest retained, each would be dropped before its next turn.
    """

    def __init__(self) -> None:
        self._slots = memoryview(mmap.mmap(-1, 4 * REPORTED_SLOTS)).cast("I")

    def is_new(self, asker: tuple[int, int], path: bytes, status: FileStatus) -> bool:
        """Record that a file is reported to this process as it is now; False if it was already."""
        key = hash((asker, path, status.changed_ns, status.size)) % (REPORTED_SLOTS << 32)
        mark, slot = divmod(key, REPORTED_SLOTS)
        is_known, self._slots[slot] = self._slots[slot] == mark, mark
        return not is_known


class ContentsCache:
    """Contents of files that have not changed since: the same bytes are not read again from a server."""

    def __init__(self) -> None:
        self._cache = TwoGenerationCache()
        self._shared: dict[FileContents, FileContents] = {}  # few differ: one object for each

    def get(self, status: FileStatus) -> FileContents | None:
        """Contents of a file as it is now; None if they are not known."""
        return self._cache.get(_version_key(status))

    def put(self, status: FileStatus, inside: FileContents) -> None:
        """Store contents, if the file's last change is old enough."""
        if time.time_ns() - status.changed_ns >= SETTLED_NS:
            if len(self._shared) >= _MAX_SHARED_CONTENTS:
                self._shared.clear()
            self._cache.put(_version_key(status), self._shared.setdefault(inside, inside))


class PageCountTimes:
    """Files whose pages were counted recently, for any process: each writer of a folder queries all its files."""

    def __init__(self) -> None:
        self._current: dict[tuple[int, int, int], int] = {}
        self._previous: dict[tuple[int, int, int], int] = {}  # the older generation
        self._start_ns = 0

    def is_due(self, status: FileStatus) -> bool:
        """Test whether the pages of a file as it is now were not counted within the last second."""
        key = status.device, status.inode, status.changed_ns
        at_ns = self._current.get(key) or self._previous.get(key)
        return at_ns is None or time.monotonic_ns() - at_ns >= COUNTED_NS

    def record(self, status: FileStatus) -> None:
        now_ns = time.monotonic_ns()
        if now_ns - self._start_ns >= COUNTED_NS or len(self._current) >= MAX_COUNTED:
            self._previous, self._current, self._start_ns = self._current, {}, now_ns
        self._current[status.device, status.inode, status.changed_ns] = now_ns


@dataclass(frozen=True)
class FactCache:
    """The caches of all queries."""

    reported: ReportedFiles = field(default_factory=ReportedFiles)
    contents: ContentsCache = field(default_factory=ContentsCache)
    page_counts: PageCountTimes = field(default_factory=PageCountTimes)


def _version_key(status: FileStatus) -> bytes:
    """Key of a file as it is now, in a third of the memory of six numbers."""
    times = status.modified_ns, status.changed_ns, status.birth_ns or 0
    return _VERSION.pack(*(number & _WORD for number in (status.device, status.inode, status.size, *times)))
