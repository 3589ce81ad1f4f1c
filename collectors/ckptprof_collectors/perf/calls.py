"""The calls of the system that move data, or change what a descriptor means; and what is to be learnt of each."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from enum import IntEnum

from ckptprof_collectors.samples import OperationKind


class Role(IntEnum):
    """What a call does."""

    READ = 1
    WRITE = 2
    PREAD = 3
    PWRITE = 4
    SENDFILE = 5
    SPLICE = 6
    COPY_RANGE = 7
    SEEK = 8
    SYNC = 9
    OPEN = 10
    DUP = 11
    CLOSE = 12
    CLOSE_RANGE = 13
    EXECUTE = 14
    END = 15


_ROLES = {
    Role.READ: ("read", "readv"),
    Role.WRITE: ("write", "writev"),
    Role.PREAD: ("pread64", "preadv", "preadv2"),
    Role.PWRITE: ("pwrite64", "pwritev", "pwritev2"),
    Role.SENDFILE: ("sendfile",),
    Role.SPLICE: ("splice",),
    Role.COPY_RANGE: ("copy_file_range",),
    Role.SEEK: ("lseek",),
    Role.SYNC: ("fsync", "fdatasync"),
    Role.OPEN: ("open", "creat", "openat", "openat2"),
    Role.DUP: ("dup", "dup2", "dup3", "fcntl"),
    Role.CLOSE: ("close",),
    Role.CLOSE_RANGE: ("close_range",),
    Role.EXECUTE: ("execve", "execveat"),
    Role.END: ("exit_group",),
}
_X86_64 = {
    "read": 0, "write": 1, "open": 2, "close": 3, "lseek": 8, "pread64": 17, "pwrite64": 18, "readv": 19, "writev": 20,
    "dup": 32, "dup2": 33, "sendfile": 40, "execve": 59, "fcntl": 72, "fsync": 74, "fdatasync": 75, "creat": 85,
    "exit_group": 231, "openat": 257, "splice": 275, "dup3": 292, "preadv": 295, "pwritev": 296, "execveat": 322,
    "copy_file_range": 326, "preadv2": 327, "pwritev2": 328, "close_range": 436, "openat2": 437,
}  # fmt: skip
_GENERIC = {
    "dup": 23, "dup3": 24, "fcntl": 25, "openat": 56, "close": 57, "lseek": 62, "read": 63, "write": 64, "readv": 65,
    "writev": 66, "pread64": 67, "pwrite64": 68, "preadv": 69, "pwritev": 70, "sendfile": 71, "splice": 76, "fsync": 82,
    "fdatasync": 83, "exit_group": 94, "execve": 221, "execveat": 281, "copy_file_range": 285, "preadv2": 286,
    "pwritev2": 287, "close_range": 436, "openat2": 437,
}  # fmt: skip
_NUMBERS = _X86_64 if platform.machine() == "x86_64" else _GENERIC
ROLES = {_NUMBERS[name]: role for role, names in _ROLES.items() for name in names if name in _NUMBERS}
OPENAT, DUP3, FCNTL = _NUMBERS["openat"], _NUMBERS["dup3"], _NUMBERS["fcntl"]
OPEN, CREAT = _NUMBERS.get("open", -1), _NUMBERS.get("creat", -1)
KINDS = {
    Role.READ: int(OperationKind.READ_WRITE),
    Role.WRITE: int(OperationKind.READ_WRITE),
    Role.PREAD: int(OperationKind.POSITIONED),
    Role.PWRITE: int(OperationKind.POSITIONED),
    Role.SENDFILE: int(OperationKind.SENDFILE),
    Role.SPLICE: int(OperationKind.SPLICE),
    Role.COPY_RANGE: int(OperationKind.COPY_RANGE),
}
_NOT_AWAITED = (Role.CLOSE, Role.CLOSE_RANGE, Role.END)  # these count when they begin


def filters(ignore: Iterable[int]) -> tuple[str, str]:
    """Return which calls are told when they begin, and when they end; not those of the main threads of `ignore`."""
    others = "".join(f"common_pid!={pid}&&" for pid in ignore)
    entered = "||".join(f"id=={number}" for number in sorted(ROLES))
    left = "||".join(f"id=={number}" for number, role in sorted(ROLES.items()) if role not in _NOT_AWAITED)
    return f"{others}({entered})", f"{others}({left})"
