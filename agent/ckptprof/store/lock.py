"""One writer per database: an advisory lock on a file beside it, which only its owner may open.

SQLite before 3.51.3 could damage a WAL that two connections wrote and reset at once, so a second writer is refused.
Who holds the lock is asked of the kernel. A file that others may open, as older versions left it, is replaced.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import NamedTuple

from ckptprof.store.connection import belong
from ckptprof.store.location import SERVICE_DATABASE, service_runs, shown
from ckptprof.store.problems import StoreBusyError
from ckptprof_collectors.privileges import RAISED

_PRIVATE = 0o600
_OTHERS = 0o077
_INODE = 5  # the field of a line of /proc/locks: 1: POSIX ADVISORY READ 1234 fe:00:5678 123 123
_READ_BYTES = range(123, 128)  # of the index of a log: https://www.sqlite.org/walformat.html, section 2.3


class Holder(NamedTuple):
    """A process that has a lock on a file."""

    pid: int
    name: str
    uid: int

    def __str__(self) -> str:
        return f"pid {self.pid}, {self.name}"


def log_readers(path: Path) -> str:
    """Describe the processes that read the log of a database and so keep it from being reset."""
    found = holders(path.with_name(path.name + "-shm"), _READ_BYTES)
    return "; ".join(map(str, found)) if found else "a process that is not visible from here"


def holders(path: Path, of: range = range(1 << 62)) -> list[Holder] | None:
    """List the living processes with a lock on bytes of a file; None: the kernel lists no lock.

    That is so for locks of other pid namespaces, and for btrfs, whose files have another device number there.
    """
    try:
        state = path.stat()
        listed = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    inode = f"{os.major(state.st_dev):02x}:{os.minor(state.st_dev):02x}:{state.st_ino}"
    fields = [line.split() for line in listed if "->" not in line]
    found = [each for each in fields if each[_INODE] == inode and int(each[6]) < of.stop]
    pids = sorted({int(each[4]) for each in found if each[7] == "EOF" or int(each[7]) >= of.start})
    return [one for one in map(_holder, pids) if one is not None] if pids else None


def _holder(pid: int) -> Holder | None:
    try:
        with RAISED:  # ProtectProc= hides the processes of others, root's among them
            status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:  # it ended; a child of it has the descriptor still
        return None
    found = dict(line.partition(":\t")[::2] for line in status.splitlines())
    return Holder(pid, found["Name"], int(found["Uid"].split()[0]))


def lock_path(path: Path) -> Path:
    """Path of the lock file."""
    return path.with_name(path.name + ".lock")


class WriterLock:
    """Held from its making to `close`; the kernel gives it back if the process dies."""

    def __init__(self, path: Path) -> None:
        """Take it; raises StoreBusyError naming the process that has it, and OSError."""
        self._fd = _taken(path)

    def close(self) -> None:
        """Give it back; the file stays, because removing it would race with the next writer."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _taken(path: Path) -> int:
    """Lock the lock file; no other user ever had the file open."""
    while True:
        fd = _open(path, lock_path(path))
        state = os.fstat(fd)
        try:
            if _flock(fd):
                if not _is_at(state, lock_path(path)):
                    continue
                if not state.st_mode & _OTHERS:
                    held, fd = fd, -1
                    return held
            elif not _is_foreign(path, state.st_uid):
                raise _busy(path)
            fresh = _fresh(path, state)
            if fresh is not None:
                return fresh
        finally:
            if fd >= 0:
                os.close(fd)


def _open(path: Path, file: Path) -> int:
    fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _PRIVATE)
    with contextlib.suppress(FileNotFoundError):
        belong(fd, path.stat())
    return fd


def _flock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(state: os.stat_result, file: Path) -> bool:
    try:
        return os.path.samestat(state, file.stat(follow_symlinks=False))
    except FileNotFoundError:
        return False


def _is_foreign(path: Path, owner: int) -> bool:
    """Test whether the lock's process is dead, or belongs to a user who may not write."""
    found = holders(lock_path(path))
    return found is not None and not {holder.uid for holder in found} & {0, os.geteuid(), owner}


def _fresh(path: Path, judged: os.stat_result) -> int | None:
    """Put a new file, locked, in the place of the one that was judged; None: that had gone already.

    Of several that begin at once only the one that holds the new file under its first name goes on.
    """
    new = lock_path(path).with_name(lock_path(path).name + ".new")
    fd = _open(path, new)
    try:
        if not _flock(fd):
            raise _busy(path)
        if _is_at(os.fstat(fd), new) and _is_at(judged, lock_path(path)):
            new.replace(lock_path(path))
            held, fd = fd, -1
            return held
        return None
    finally:
        if fd >= 0:
            os.close(fd)


def _busy(path: Path) -> StoreBusyError:
    found = holders(lock_path(path))
    who = f" ({'; '.join(map(str, found))})" if found else ", which is not visible from here"
    hint = "stop that one, or give another path with --db"
    return StoreBusyError(f"{shown(path)} is being written by another ckptprof{who}", hint=hint)


def writer_is_alive(path: Path) -> bool | None:
    """Test whether a writer has the database locked; None if that cannot be determined."""
    try:
        fd = os.open(lock_path(path), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:  # it is its owner's alone
        return True if path == SERVICE_DATABASE and service_runs() else None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False
