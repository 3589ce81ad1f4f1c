"""The way to a database, gone one step at a time, so that no link of another user leads its writer elsewhere.

SQLite opens by a path, and whoever owns a folder on the way can swap what is there between any check and that. So the
file is held by a descriptor that is checked, and what SQLite has opened is compared with it before anything is written.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections import deque
from pathlib import Path

from ckptprof.errors import StoreError
from ckptprof.store.location import shown

MAX_LINKS = 40  # include/linux/namei.h: MAXSYMLINKS
_BESIDE = ("-wal", "-shm", "-journal", ".lock")
_STEP = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC  # closing such a descriptor gives no lock of SQLite's back
_ELSEWHERE = "give another path with --db"


def hold(path: Path) -> int:
    """Return a descriptor of a file without access to its contents, to be closed; raises StoreError and OSError.

    What another user put there is refused: a file, or one beside it, that is neither ours, nor root's, nor the folder
    owner's; and a link that is neither ours nor root's. Who is not root may be led to a folder by anybody's link.
    """
    name, passed = _walk(path)
    try:
        folder = passed[-2] if len(passed) > 1 else passed[-1]
        trusted = {os.geteuid(), 0, os.fstat(folder).st_uid}
        _trust(path, os.fstat(passed[-1]), trusted)
        for suffix in _BESIDE:
            with contextlib.suppress(FileNotFoundError):
                _trust(path, os.stat(name + suffix, dir_fd=folder, follow_symlinks=False), trusted)
        return passed.pop()
    finally:
        _close(passed, 0)


def make(path: Path, mode: int) -> None:
    """Make an empty file, whatever the umask says, where no other user's link leads elsewhere; raises as `hold`."""
    _, passed = _walk(path.parent)
    try:
        fd = os.open(path.name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, mode, dir_fd=passed[-1])
        try:
            os.fchmod(fd, mode)
        finally:
            os.close(fd)
    finally:
        _close(passed, 0)


def _walk(path: Path) -> tuple[str, list[int]]:
    """Return the last name on a way, links followed, and descriptors of all that it passes."""
    passed, steps, links, name = [os.open("/", _STEP)], deque(path.parts[1:]), 0, ""
    try:
        while steps:
            name = steps.popleft()
            if name == "..":
                _close(passed, max(1, len(passed) - 1))
                continue
            passed.append(os.open(name, _STEP, dir_fd=passed[-1]))
            state = os.fstat(passed[-1])
            if not stat.S_ISLNK(state.st_mode):
                continue
            if os.geteuid() == 0 or not steps:
                _trust(path, state, {os.geteuid(), 0})
            links += 1
            if links > MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path))  # noqa: TRY301 - as the kernel does
            target = Path(os.readlink("", dir_fd=passed[-1]))
            _close(passed, 1 if target.is_absolute() else len(passed) - 1)
            steps.extendleft(part for part in reversed(target.parts) if part != "/")
    except BaseException:
        _close(passed, 0)
        raise
    return name, passed


def _trust(path: Path, state: os.stat_result, trusted: set[int]) -> None:
    if state.st_uid not in trusted:
        raise StoreError(f"{shown(path)} belongs to another user (uid {state.st_uid})", hint=_ELSEWHERE)


def _close(passed: list[int], keep: int) -> None:
    while len(passed) > keep:
        os.close(passed.pop())


def expect_open(path: Path, held: int) -> None:
    """Raise StoreError unless this process has the very file open that `hold` held, by another descriptor, too."""
    wanted = os.fstat(held)
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # that of the list, or closed meanwhile
            if int(entry.name) != held and os.path.samestat(os.fstat(int(entry.name)), wanted):
                return
    raise StoreError(f"{shown(path)} was swapped while it was opened", hint=_ELSEWHERE)
