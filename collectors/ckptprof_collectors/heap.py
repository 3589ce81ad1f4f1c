"""Limits of glibc's heap: memory of a burst is returned to the system when it is freed.

By default glibc raises its own limits with each large block that is freed (M_MMAP_THRESHOLD in mallopt(3)): after one
buffer of 8 MB up to 16 MB of free memory are never returned. A limit that is set is not raised. With another libc
(musl) nothing is done.
"""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # malloc.h
_TRIM_BYTES = 256 << 10  # of free memory at the end of the heap
_LARGE_BYTES = 128 << 10  # a block of this size is a separate mapping, which is returned when it is freed


def limit_heap() -> bool:
    """Set the limits, and one heap for all threads; return False if not possible. Call it before any thread starts."""
    option = getattr(ctypes.CDLL(None), "mallopt", None)
    limits = ((_ARENA_MAX, 1), (_MMAP_THRESHOLD, _LARGE_BYTES), (_TRIM_THRESHOLD, _TRIM_BYTES))
    return option is not None and [option(*limit) for limit in limits] == [1] * len(limits)


def release_free() -> None:
    """Return all free memory to the system."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
