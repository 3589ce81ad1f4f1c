"""What is kept in mind of files that were looked at: what was told of them, and what was found inside."""

from __future__ import annotations

import mmap
import struct
import time
from dataclasses import dataclass, field

from ckptprof_collectors.files.statx import FileStatus

MAX_KEPT = 20_000  # 100 to 200 bytes each
TOLD_PLACES = 1 << 18  # of 8 bytes: of 40,000 files one in seven has to share its place
SETTLED_NS = 2_000_000_000  # stamps are of a timer tick, or of whole seconds: one that is as old does not change unseen
MAX_COUNTED = 4096
COUNTED_NS = 1_000_000_000  # what is followed is asked for as often
_MAX_ALIKE = 1024
_VERSION = struct.Struct("=6Q")
_WORD = (1 << 64) - 1  # a stamp may lie before 1970


class Lately:
    """What was kept or asked for last, in two halves: when one is full, the one before it goes.

    Threads of several domains use it: each step is one of a dict, and what two of them put away is asked for anew.
    """

    def __init__(self) -> None:
        self._fresh: dict[bytes, Inside] = {}
        self._before: dict[bytes, Inside] = {}

    def __len__(self) -> int:
        return len(self._fresh) + len(self._before)

    def get(self, key: bytes) -> Inside | None:
        """Find a value and keep it in the cache; None if it is not there."""
        found = self._fresh.get(key)
        if found is None and (found := self._before.pop(key, None)) is not None:
            self._fresh[key] = found
        return found

    def keep(self, key: bytes, value: Inside) -> None:
        if len(self._fresh) >= MAX_KEPT // 2:
            self._before, self._fresh = self._fresh, {}
        self._fresh[key] = value


@dataclass(frozen=True, slots=True)
class Inside:
    """What only an open file tells."""

    magic: bytes | None = None
    whole: bool | None = None
    unwritten_bytes: int | None = None
    free_bytes: int | None = None


class Told:
    """What was told to whom: of tens of thousands of files only what is new since is told again.

    Each has its place by its number, and takes it from whoever had it. So of more files than there is room for, gone
    over in turn, most are known; were the latest kept, each would go before its turn comes again.
    """

    def __init__(self) -> None:
        self._places = memoryview(mmap.mmap(-1, 8 * TOLD_PLACES)).cast("q")

    def is_new(self, asker: tuple[int, int], path: bytes, status: FileStatus) -> bool:
        """Record that a file is reported to this process as it is now; False if it was already."""
        key = hash((asker, path, status.changed_ns, status.size))
        if self._places[key % TOLD_PLACES] == key:
            return False
        self._places[key % TOLD_PLACES] = key
        return True


class Contents:
    """What was read of files that have not changed since: a server is not asked for the same bytes again and again."""

    def __init__(self) -> None:
        self._known = Lately()
        self._alike: dict[Inside, Inside] = {}  # few differ: one of each is kept

    def of(self, status: FileStatus) -> Inside | None:
        """Contents of a file as it is now; None if they are not known."""
        return self._known.get(_version(status))

    def keep(self, status: FileStatus, inside: Inside) -> None:
        """Keep what was found, if the file had not been changed for a while by then."""
        if time.time_ns() - status.changed_ns >= SETTLED_NS:
            if len(self._alike) >= _MAX_ALIKE:
                self._alike.clear()
            self._known.keep(_version(status), self._alike.setdefault(inside, inside))


class Counted:
    """Whose pages were counted a moment ago, whoever asked for it: a folder that many write to is gone over by each."""

    def __init__(self) -> None:
        self._fresh: dict[tuple[int, int, int], int] = {}
        self._before: dict[tuple[int, int, int], int] = {}  # what was fresh until a second ago, or was too much
        self._began_ns = 0

    def is_due(self, status: FileStatus) -> bool:
        """Test whether the pages of a file as it is now were not counted within the last second."""
        key = status.device, status.inode, status.changed_ns
        at_ns = self._fresh.get(key) or self._before.get(key)
        return at_ns is None or time.monotonic_ns() - at_ns >= COUNTED_NS

    def note(self, status: FileStatus) -> None:
        now_ns = time.monotonic_ns()
        if now_ns - self._began_ns >= COUNTED_NS or len(self._fresh) >= MAX_COUNTED:
            self._before, self._fresh, self._began_ns = self._fresh, {}, now_ns
        self._fresh[status.device, status.inode, status.changed_ns] = now_ns


@dataclass(frozen=True)
class Memory:
    """All of it."""

    told: Told = field(default_factory=Told)
    contents: Contents = field(default_factory=Contents)
    counted: Counted = field(default_factory=Counted)


def _version(status: FileStatus) -> bytes:
    """Key of a file as it is now, in a third of the memory of six numbers."""
    times = status.modified_ns, status.changed_ns, status.birth_ns or 0
    return _VERSION.pack(*(number & _WORD for number in (status.device, status.inode, status.size, *times)))
