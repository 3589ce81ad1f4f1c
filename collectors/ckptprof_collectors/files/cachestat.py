"""cachestat(2), Linux 6.5: how much of a file is in the page cache only, not yet written to its device.

It needs no I/O and changes nothing: it counts the marks of the file's pages. Since Linux 6.14 only the owner of the
file, its writers, and processes with CAP_FOWNER get an answer (mm/filemap.c: can_do_cachestat).
"""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any

from ckptprof_collectors.kernelfs import PAGE_BYTES

_NUMBER = 451  # include/uapi/asm-generic/unistd.h; all of x86-64, arm64 and riscv have the same
_ARCHITECTURES = frozenset(("x86_64", "aarch64", "riscv64"))
# statfs(2): file systems that mark a page dirty or under writeback until their device has it. Left out are those that
# have no device (tmpfs), whose files are cached under another inode (overlayfs) or elsewhere (ZFS), and servers, which
# may keep in memory what they have acknowledged (NFS, Lustre).
_SUPPORTED_FILE_SYSTEMS = frozenset((
    0xEF53,  # ext2, ext3, ext4
    0x58465342,  # xfs
    0x9123683E,  # btrfs
    0xF2F52010,  # f2fs
    0xCA451A4E,  # bcachefs
    0x3153464A,  # jfs
    0x4D44,  # vfat
    0x2011BAB0,  # exfat
))  # fmt: skip
_STATFS_BYTES = 256  # struct statfs begins with f_type, a long on all of these


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Counts(ctypes.Structure):
    _fields_ = (
        ("cached", ctypes.c_uint64),
        ("dirty", ctypes.c_uint64),
        ("writeback", ctypes.c_uint64),
        ("evicted", ctypes.c_uint64),
        ("recently_evicted", ctypes.c_uint64),
    )


@functools.cache
def _libc() -> Any:  # loaded at the first use, so that importing this module costs nothing
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    libc.fstatfs.argtypes = (ctypes.c_int, ctypes.c_char_p)
    return libc


def count_unwritten_bytes(fd: int) -> int | None:
    """Bytes of an open file that are dirty or being written back, in whole pages; None: not available."""
    libc, system = _libc(), ctypes.create_string_buffer(_STATFS_BYTES)
    if os.uname().machine not in _ARCHITECTURES or libc.fstatfs(fd, system) != 0:
        return None
    if ctypes.c_long.from_buffer(system).value & 0xFFFFFFFF not in _SUPPORTED_FILE_SYSTEMS:
        return None
    entire_file, counts = _Range(0, 0), _Counts()  # a length of 0 means to the end of the file
    done = libc.syscall(
        ctypes.c_long(_NUMBER), ctypes.c_uint(fd), ctypes.byref(entire_file), ctypes.byref(counts), ctypes.c_uint(0)
    )
    if done != 0:
        return None  # older than 6.5 (ENOSYS), filtered or not permitted (EPERM), hugetlbfs (EOPNOTSUPP)
    return int(counts.dirty + counts.writeback) * PAGE_BYTES
