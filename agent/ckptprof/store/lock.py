"""One writer per database: an advisory lock on an adjacent file, which only its owner may open.

SQLite before 3.51.3 could damage a WAL that two connections wrote and reset at once, so a second writer is refused.
The kernel is queried for the holder of the lock. A file that others may open, of older versions, is replaced.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import NamedTuple

from ckptprof.store.connection import PRIVATE_MODE, copy_ownership, is_open_to_others
from ckptprof.store.location import SERVICE_DATABASE, is_service_running, printable_path
from ckptprof.store.problems import StoreBusyError
from ckptprof_collectors.privileges import RAISED

_INODE_FIELD = 5  # the field of a line of /proc/locks: 1: POSIX ADVISORY READ 1234 fe:00:5678 123 123
_WAL_READ_LOCKS = range(123, 128)  # of the index of a log: https://www.sqlite.org/walformat.html, section 2.3


class LockHolder(NamedTuple):
    """A process that has a lock on a file."""

    pid: int
    name: str
    uid: int

    def __str__(self) -> str:
        return f"pid {self.pid}, {self.name}"


def describe_log_readers(path: Path) -> str:
    """Describe the processes that read the log of a database and thereby prevent its reset."""
    found = find_holders(path.with_name(path.name + "-shm"), _WAL_READ_LOCKS)
    return "; ".join(map(str, found)) if found else "a process that is not visible from here"


def find_holders(path: Path, byte_range: range = range(1 << 62)) -> list[LockHolder] | None:
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
    locks = [each for each in fields if each[_INODE_FIELD] == inode and int(each[6]) < byte_range.stop]
    pids = sorted({int(each[4]) for each in locks if each[7] == "EOF" or int(each[7]) >= byte_range.start})
    return [one for one in map(_describe_holder, pids) if one is not None] if pids else None


def _describe_holder(pid: int) -> LockHolder | None:
    try:
        with RAISED:  # ProtectProc= hides the processes of others, root's among them
            status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:  # it ended; a child still has the descriptor
        return None
    found = dict(line.partition(":\t")[::2] for line in status.splitlines())
    return LockHolder(pid, found["Name"], int(found["Uid"].split()[0]))


def lock_path(path: Path) -> Path:
    """Path of the lock file."""
    return path.with_name(path.name + ".lock")


class WriterLock:
    """A lock, acquired at creation and released by `close`, or by the kernel if the process dies."""

    def __init__(self, path: Path) -> None:
        """Acquire it; raises StoreBusyError naming its holder, and OSError."""
        self._fd = _acquire(path)

    def close(self) -> None:
        """Release it; the file stays, because removing it would race with the next writer."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _acquire(path: Path) -> int:
    """Lock the lock file; no other user ever had the file open."""
    while True:
        fd = _open_lock_file(path, lock_path(path))
        state = os.fstat(fd)
        try:
            if _try_lock(fd):
                if not _is_same_file(state, lock_path(path)):
                    continue
                if not is_open_to_others(state.st_mode):
                    locked_fd, fd = fd, -1
                    return locked_fd
            elif not _is_stale(path, state.st_uid):
                raise _busy_error(path)
            replaced_fd = _replace_lock(path, state)
            if replaced_fd is not None:
                return replaced_fd
        finally:
            if fd >= 0:
                os.close(fd)


def _open_lock_file(path: Path, file: Path) -> int:
    fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_MODE)
    with contextlib.suppress(FileNotFoundError):
        copy_ownership(fd, path.stat())
    return fd


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_same_file(state: os.stat_result, file: Path) -> bool:
    try:
        return os.path.samestat(state, file.stat(follow_symlinks=False))
    except FileNotFoundError:
        return False


def _is_stale(path: Path, owner: int) -> bool:
    """Test whether the lock's process is dead, or belongs to a user who may not write."""
    found = find_holders(lock_path(path))
    return found is not None and not {holder.uid for holder in found} & {0, os.geteuid(), owner}


def _replace_lock(path: Path, old: os.stat_result) -> int | None:
    """Replace the stale file by a new, locked one; None: it was removed already.

    Of several concurrent processes only the one whose new file got the name continues.
    """
    new = lock_path(path).with_name(lock_path(path).name + ".new")
    fd = _open_lock_file(path, new)
    try:
        if not _try_lock(fd):
            raise _busy_error(path)
        if _is_same_file(os.fstat(fd), new) and _is_same_file(old, lock_path(path)):
            new.replace(lock_path(path))
            locked_fd, fd = fd, -1
            return locked_fd
        return None
    finally:
        if fd >= 0:
            os.close(fd)


def _busy_error(path: Path) -> StoreBusyError:
    found = find_holders(lock_path(path))
    who = f" ({'; '.join(map(str, found))})" if found else ", which is not visible from here"
    hint = "stop that one, or give another path with --db"
    return StoreBusyError(f"{printable_path(path)} is being written by another ckptprof{who}", hint=hint)


def is_writer_alive(path: Path) -> bool | None:
    """Test whether a writer has the database locked; None if that cannot be determined."""
    try:
        fd = os.open(lock_path(path), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:  # it is its owner's alone
        return True if path == SERVICE_DATABASE and is_service_running() else None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False
