"""cachestat(2), Linux 6.5: how much of a file is in the page cache only, not yet written to its device.

It asks nothing of the device and changes nothing: it counts the marks of the file's pages. Since Linux 6.14 it answers
only who owns the file, may write it, or has CAP_FOWNER (mm/filemap.c: can_do_cachestat).
"""

from __future__ import annotations

import ctypes
import os

_NUMBER = 451  # include/uapi/asm-generic/unistd.h; all of x86-64, arm64 and riscv have the same
_ARCHITECTURES = frozenset(("x86_64", "aarch64", "riscv64"))
# statfs(2): file systems that mark a page dirty or under writeback until their device has it. Left out are those that
# have no device (tmpfs), whose files are cached under another inode (overlayfs) or elsewhere (ZFS), and servers, which
# may keep in memory what they have acknowledged (NFS, Lustre).
_TRUSTED = frozenset((
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


class _Calls:
    """The libc functions, looked up at the first use so that importing this module costs nothing."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._syscall = libc.syscall
        self._syscall.restype = ctypes.c_long
        self._fstatfs = libc.fstatfs
        self._fstatfs.argtypes = (ctypes.c_int, ctypes.c_char_p)
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        self.works = os.uname().machine in _ARCHITECTURES

    def trusted(self, fd: int) -> bool:
        buffer = ctypes.create_string_buffer(_STATFS_BYTES)
        if self._fstatfs(fd, buffer) != 0:
            return False
        kind = ctypes.cast(buffer, ctypes.POINTER(ctypes.c_long)).contents.value
        return kind & 0xFFFFFFFF in _TRUSTED

    def unwritten(self, fd: int) -> int | None:
        whole, counts = _Range(0, 0), _Counts()  # a length of 0 means to the end of the file
        done = self._syscall(
            ctypes.c_long(_NUMBER), ctypes.c_uint(fd), ctypes.byref(whole), ctypes.byref(counts), ctypes.c_uint(0)
        )
        if done != 0:
            return None  # older than 6.5 (ENOSYS), filtered or not permitted (EPERM), hugetlbfs (EOPNOTSUPP)
        return int(counts.dirty + counts.writeback) * self._page_bytes


_calls: _Calls | None = None


def unwritten_bytes(fd: int) -> int | None:
    """Return how much of an open file is dirty or being written back, in whole pages; None: it cannot be told."""
    global _calls  # noqa: PLW0603 - loaded once, at the first use, for the import's sake
    if _calls is None:
        _calls = _Calls()
    if not _calls.works or not _calls.trusted(fd):
        return None
    return _calls.unwritten(fd)
