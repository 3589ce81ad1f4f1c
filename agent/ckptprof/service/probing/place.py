"""Where the probe works: a directory of its own, which is gone when it ends, and the ones that were left by kill -9.

All files are reached by the directory's descriptor, so that nobody who may rename it can lead us elsewhere.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterator

PREFIX = ".ckptprof-ceiling-"
_LOCK = "lock"
_TRIES = 8
_PAUSES = (0.0, 0.1, 0.3, 1.0, 3.0)
# btrfs takes space to remove a name, and gives back that of our files when it commits; FUSE closes files late
_PASSING = frozenset((errno.EDQUOT, errno.ENOSPC, errno.ENOTEMPTY, errno.EBUSY))
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# What file systems without O_TMPFILE answer: EOPNOTSUPP, or the errors that kernels before 3.11 gave for a directory
_NO_TMPFILE = frozenset((errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL, errno.ENOSYS, errno.EPERM))


class Place:
    """A directory of mode 0700 below the one that is probed, with a lock that tells others that its owner lives."""

    def __init__(self, directory: str | bytes) -> None:
        """Make it, after removing what earlier probes of this user left; raises OSError."""
        self._parent = os.open(directory, _OPEN_DIRECTORY & ~os.O_NOFOLLOW)
        self._files: dict[int, str | None] = {}  # and their names, if they have any
        self._count = 0
        self._nameless = True
        try:
            remove_stale(self._parent)
            self.name, self.fd, self._lock = _make(self._parent)
        except OSError:
            os.close(self._parent)
            raise

    @property
    def parent_fd(self) -> int:
        """Return the descriptor of the directory that is probed."""
        return self._parent

    def open(self, *, direct: bool) -> int:
        """Return a new empty file, without a name where the file system has such; raises OSError."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_DIRECT if direct else 0)
        if self._nameless:
            try:
                return self._kept(os.open(".", flags | os.O_TMPFILE, 0o600, dir_fd=self.fd), None)
            except OSError as error:
                if error.errno not in _NO_TMPFILE:
                    raise
                self._nameless = direct and error.errno == errno.EINVAL  # which may be said of O_DIRECT, too
        self._count += 1
        name = f"data-{self._count}"
        try:
            fd = os.open(name, flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=self.fd)
        except OSError:
            with contextlib.suppress(OSError):  # where O_DIRECT is refused the name may have been made by then
                os.unlink(name, dir_fd=self.fd)
            raise
        return self._kept(fd, name)

    def _kept(self, fd: int, name: str | None) -> int:
        self._files[fd] = name
        return fd

    def drop(self, fd: int) -> None:
        """Give a file's descriptor and space back."""
        name = self._files.pop(fd, None)
        with contextlib.suppress(OSError):  # the network went away: close all the same
            os.ftruncate(fd, 0)
        with contextlib.suppress(OSError):
            os.close(fd)
        if name is not None:  # only now: NFS and FUSE give another name to what is removed while it is open
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=self.fd)

    def close(self) -> None:
        """Remove the directory and all in it; a second call does nothing. What cannot be is left to the next probe."""
        if self._parent < 0:
            return
        for fd in tuple(self._files):
            self.drop(fd)
        os.close(self._lock)
        _remove(self._parent, self.name, self.fd)
        os.close(self.fd)
        os.close(self._parent)
        self._parent = -1


@contextlib.contextmanager
def working(directory: str | bytes) -> Iterator[Place]:
    """Make a place and remove it in the end, whatever happens; raises OSError."""
    place = Place(directory)
    try:
        yield place
    finally:
        place.close()


def _make(parent: int) -> tuple[str, int, int]:
    """Make the directory with its lock; another probe that takes it for a stale one meanwhile makes us try again."""
    for _ in range(_TRIES):
        name = PREFIX + secrets.token_hex(4)
        os.mkdir(name, 0o700, dir_fd=parent)
        try:
            fd = os.open(name, _OPEN_DIRECTORY, dir_fd=parent)
        except FileNotFoundError:
            continue
        try:
            return name, fd, _locked(fd, os.O_CREAT | os.O_EXCL)
        except (FileNotFoundError, BlockingIOError):
            os.close(fd)
        except OSError:
            os.close(fd)
            with contextlib.suppress(OSError):
                os.rmdir(name, dir_fd=parent)
            raise
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))


def _locked(fd: int, flags: int = 0) -> int:
    """Return the lock's descriptor, held; raises BlockingIOError if another process has it, and OSError."""
    lock = os.open(_LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | flags, 0o600, dir_fd=fd)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError as error:  # a file system without locks: then nothing is ever taken for stale
            if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK, errno.EINVAL):
                raise
            if not flags:
                raise BlockingIOError(error.errno, error.strerror) from error
        if flags:
            os.pwrite(lock, os.fsencode(os.uname().nodename), 0)
        elif os.pread(lock, 256, 0) not in (b"", os.fsencode(os.uname().nodename)):
            raise BlockingIOError(errno.EAGAIN, "made on another host")  # whose locks are not seen with every mount
    except OSError:
        os.close(lock)
        raise
    return lock


def remove_stale(parent: int) -> list[str]:
    """Remove the directories that probes of this user left when they were killed, and return their names.

    One whose lock is held is at work; one of another user, or of another host, is not ours to judge.
    """
    try:
        names = [name for name in os.listdir(parent) if name.startswith(PREFIX)]
    except OSError:  # one may write into it but not list it
        return []
    return [name for name in names if _removed(parent, name)]


def _removed(parent: int, name: str) -> bool:
    try:
        fd = os.open(name, _OPEN_DIRECTORY, dir_fd=parent)
    except OSError:
        return False
    try:
        if os.fstat(fd).st_uid != os.geteuid() or stat.S_IMODE(os.fstat(fd).st_mode) != 0o700:
            return False
        try:
            os.close(_locked(fd))
        except FileNotFoundError:  # killed before it made one: then the directory is empty
            os.rmdir(name, dir_fd=parent)
            return True
        return _remove(parent, name, fd)
    except OSError:
        return False
    finally:
        os.close(fd)


def _remove(parent: int, name: str, fd: int) -> bool:
    """Remove a directory of ours whose files are all closed; returns whether it is gone."""
    for pause_seconds in _PAUSES:
        try:
            _empty(fd)
            os.rmdir(name, dir_fd=parent)
        except FileNotFoundError:  # noqa: PERF203 # a handful of turns
            return True  # another probe took it for a stale one, which it was
        except OSError as error:
            if error.errno not in _PASSING:
                return False
            _sync_file_system(fd)
            time.sleep(pause_seconds)
        else:
            return True
    return False


def _sync_file_system(fd: int) -> None:
    ctypes.CDLL(None).syncfs(ctypes.c_int(fd))


def _empty(fd: int) -> None:
    """Remove the files in a directory, the lock last; raises OSError if there is a directory, which is none of ours."""
    again = os.open(".", _OPEN_DIRECTORY, dir_fd=fd)  # since 6.5 btrfs lists what was there when it was opened
    try:
        names = os.listdir(again)  # noqa: PTH208 # a descriptor
    finally:
        os.close(again)
    for name in sorted(names, key=lambda name: name == _LOCK):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=fd)
