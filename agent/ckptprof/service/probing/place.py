"""Where the probe writes: files without a name in the directory, or with one that the next probe knows.

All are reached by the directory's descriptor, so that nobody who may rename it can lead us elsewhere. A file that has a
name is locked by its owner as long as that lives: what a killed probe left is not.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Iterator

PREFIX = ".ckptprof-ceiling-"  # the host, whose locks others may not see, and a number follow
# What file systems without O_TMPFILE answer: EOPNOTSUPP, or the errors that kernels before 3.11 gave for a directory
_NO_TMPFILE = frozenset((errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL, errno.ENOSYS, errno.EPERM))


class Place:
    """The files of one probe below a directory, readable by their owner only."""

    def __init__(self, directory: str | bytes) -> None:
        """Open it, and remove what earlier probes of this user left; raises OSError."""
        self.parent_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._files: dict[int, str | None] = {}  # and their names, if they have any
        self._nameless = True
        remove_stale(self.parent_fd)

    def open(self, *, direct: bool) -> int:
        """Return a new empty file, without a name where the file system has such; raises OSError."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_DIRECT if direct else 0)
        if self._nameless:
            try:
                return self._kept(os.open(".", flags | os.O_TMPFILE, 0o600, dir_fd=self.parent_fd), None)
            except OSError as error:
                if error.errno not in _NO_TMPFILE:
                    raise
                self._nameless = direct and error.errno == errno.EINVAL  # which may be said of O_DIRECT, too
        name = _prefix() + secrets.token_hex(4)
        try:
            fd = os.open(name, flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=self.parent_fd)
        except OSError:
            with contextlib.suppress(OSError):  # where O_DIRECT is refused the name may have been made by then
                os.unlink(name, dir_fd=self.parent_fd)
            raise
        with contextlib.suppress(OSError):  # a file system without locks: then nothing is ever taken for stale
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
                os.unlink(name, dir_fd=self.parent_fd)

    def close(self) -> None:
        """Remove all files; a second call does nothing. What cannot be removed is left to the next probe."""
        if self.parent_fd >= 0:
            for fd in tuple(self._files):
                self.drop(fd)
            os.close(self.parent_fd)
            self.parent_fd = -1


@contextlib.contextmanager
def working(directory: str | bytes) -> Iterator[Place]:
    """Open a place and remove its files in the end, whatever happens; raises OSError."""
    place = Place(directory)
    try:
        yield place
    finally:
        place.close()


def _prefix() -> str:
    return f"{PREFIX}{os.uname().nodename}-"


def remove_stale(parent: int) -> None:
    """Remove the files that killed probes of this user and this host left: nobody holds their locks."""
    try:
        names = [name for name in os.listdir(parent) if name.startswith(_prefix())]
    except OSError:  # one may write into it but not list it
        return
    for name in names:
        with contextlib.suppress(OSError):
            _remove(parent, name)


def _remove(parent: int, name: str) -> None:
    fd = os.open(name, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent)
    try:
        state = os.fstat(fd)
        if stat.S_ISREG(state.st_mode) and state.st_uid == os.geteuid():
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(name, dir_fd=parent)
    finally:
        os.close(fd)
