"""statx(2) through libc: the only call with a file's birth time, and with a flag to not query a server."""

from __future__ import annotations

import ctypes
import functools
import os
import struct
from typing import Any, NamedTuple

_AT_FDCWD = -100
_AT_STATX_DONT_SYNC = 0x4000  # answer from cache: a hung file server must not hang us
AT_SYMLINK_NOFOLLOW = 0x100
_AT_NO_AUTOMOUNT = 0x800
_AT_EMPTY_PATH = 0x1000
_STATX_BASIC_STATS = 0x7FF
_STATX_BTIME = 0x800
# include/uapi/linux/stat.h: mask, mode, ino, size, four timestamps, device
_LAYOUT = struct.Struct("=I4xQIIIHxxQQQQqI4xqI4xqI4xqI4xIIII")


class FileStatus(NamedTuple):
    """Result of statx; times are wall clock nanoseconds, `birth_ns` None where the file system has none."""

    mode: int
    device: int
    inode: int
    size: int
    birth_ns: int | None
    modified_ns: int
    changed_ns: int
    accessed_ns: int
    uid: int
    gid: int


@functools.cache
def _libc_statx() -> Any:  # loaded at the first use, so that importing this module costs nothing
    function = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)  # glibc >= 2.28
    if function is not None:
        function.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_char_p)
    return function


def _from_stat(path: bytes, dir_fd: int, flags: int) -> FileStatus:
    if flags & _AT_EMPTY_PATH:
        status = os.fstat(dir_fd)
    else:
        start = None if dir_fd == _AT_FDCWD else dir_fd
        status = os.stat(path, dir_fd=start, follow_symlinks=not flags & AT_SYMLINK_NOFOLLOW)
    return FileStatus(
        status.st_mode, status.st_dev, status.st_ino, status.st_size, None,
        status.st_mtime_ns, status.st_ctime_ns, status.st_atime_ns, status.st_uid, status.st_gid,
    )  # fmt: skip


def statx(path: bytes, *, dir_fd: int = _AT_FDCWD, flags: int = 0) -> FileStatus:
    """Status of `path` (relative to `dir_fd`) without querying a file server; raises OSError."""
    function = _libc_statx()
    if function is None:
        return _from_stat(path, dir_fd, flags)
    buffer = ctypes.create_string_buffer(256)
    flags |= _AT_STATX_DONT_SYNC | _AT_NO_AUTOMOUNT
    if function(dir_fd, path, flags, _STATX_BASIC_STATS | _STATX_BTIME, buffer) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    (mask, _attributes, _links, uid, gid, mode, inode, size, _blocks, _supported, a_s, a_n, b_s, b_n, c_s, c_n,
     m_s, m_n, _rmajor, _rminor, major, minor) = _LAYOUT.unpack_from(buffer)  # fmt: skip
    return FileStatus(
        mode=mode,
        device=os.makedev(major, minor),
        inode=inode,
        size=size,
        birth_ns=b_s * 1_000_000_000 + b_n if mask & _STATX_BTIME else None,
        modified_ns=m_s * 1_000_000_000 + m_n,
        changed_ns=c_s * 1_000_000_000 + c_n,
        accessed_ns=a_s * 1_000_000_000 + a_n,
        uid=uid,
        gid=gid,
    )


def status_of_descriptor(fd: int) -> FileStatus:
    """Status of the file of a descriptor without querying a file server; raises OSError."""
    return statx(b"", dir_fd=fd, flags=_AT_EMPTY_PATH)
