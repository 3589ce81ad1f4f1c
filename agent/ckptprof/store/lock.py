"""One writer per database: an advisory lock on a file beside it, which names the process that holds it.

SQLite before 3.51.3 could damage a WAL that two connections wrote and reset at once, so a second writer is refused.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from ckptprof.errors import StoreError
from ckptprof.store.location import shown


class StoreBusyError(StoreError):
    """Another process is the database's writer at the moment."""


def lock_path(path: Path) -> Path:
    """Return the lock's file."""
    return path.with_name(path.name + ".lock")


class WriterLock:
    """Held from its making to `close`; the kernel gives it back if the process dies."""

    def __init__(self, path: Path, mode: int) -> None:
        """Take it; raises StoreBusyError naming the process that has it, and OSError."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(lock_path(path), flags, mode)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._fd, 20, 0).decode("ascii", "replace").strip()
            os.close(self._fd)
            who = f" (pid {holder})" if holder.isdigit() else ""
            raise StoreBusyError(
                f"{shown(path)} is being written by another ckptprof{who}",
                hint="stop that one, or give another path with --db",
            ) from None
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, b"%d\n" % os.getpid(), 0)
        except OSError:
            pass  # a full disk: the lock holds without a name in it

    def close(self) -> None:
        """Give it back; the file stays, because removing it would race with the next writer."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def writer_is_alive(path: Path) -> bool:
    """Return whether a writer holds the database; True also where that cannot be found out."""
    try:
        fd = os.open(lock_path(path), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False
