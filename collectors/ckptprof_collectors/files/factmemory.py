"""What is kept in mind of files that were looked at: what was told of them, and what was found inside."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import TypeVar

from ckptprof_collectors.files.statx import FileStatus

MAX_KEPT = 40_000  # of each, 100 to 300 bytes
SETTLED_NS = 2_000_000_000  # stamps are of a timer tick, or of whole seconds: one that is as old does not change unseen
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Inside:
    """What only an open file tells."""

    magic: bytes | None = None
    whole: bool | None = None
    unwritten_bytes: int | None = None
    free_bytes: int | None = None


class Told:
    """What was told to whom: of tens of thousands of files only what is new since is told again."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._keys: dict[int, None] = {}

    def is_new(self, asker: tuple[int, int], path: bytes, status: FileStatus) -> bool:
        """Return whether a file has not been told to this process as it is now, and take note that it is."""
        key = hash((asker, path, status.changed_ns, status.size))
        if key in self._keys:
            return False
        self._keys[key] = None
        _bound(self._keys)
        return True


class Contents:
    """What was read of files that have not changed since: a server is not asked for the same bytes again and again."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._known: dict[tuple[int, ...], Inside] = {}

    def of(self, status: FileStatus) -> Inside | None:
        """Return what was found in a file as it is now; None if it is to be looked at."""
        return self._known.get(_version(status))

    def keep(self, status: FileStatus, inside: Inside) -> None:
        """Keep what was found, if the file had not been changed for a while by then."""
        if time.time_ns() - status.changed_ns >= SETTLED_NS:
            self._known[_version(status)] = inside
            _bound(self._known)


@dataclass(frozen=True)
class Memory:
    """Both."""

    told: Told = field(default_factory=Told)
    contents: Contents = field(default_factory=Contents)


def _version(status: FileStatus) -> tuple[int, ...]:
    return status.device, status.inode, status.size, status.modified_ns, status.changed_ns, status.birth_ns or 0


def _bound(kept: dict[_Key, _Value]) -> None:
    if len(kept) > MAX_KEPT:
        with contextlib.suppress(StopIteration, KeyError, RuntimeError):  # another domain's thread was here, too
            del kept[next(iter(kept))]
