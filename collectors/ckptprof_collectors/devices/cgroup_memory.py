"""Memory of the cgroup of a process, or of one above it, of v1 and v2, that has least left below its limit.

A process whose cgroup reaches its limit is killed although the host has memory. Page cache of files is reclaimed
before, so it does not count. From Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst.
"""

from __future__ import annotations

from typing import NamedTuple

from ckptprof_collectors.devices.throttles import cgroups_above
from ckptprof_collectors.kernelfs import KernelFs, number_after, read_limited

_UNLIMITED = 1 << 62  # v1 has a number near the maximum for no limit


class LimitedCgroup(NamedTuple):
    """A cgroup with a limit of memory."""

    folder: bytes
    v2: bool
    limit_bytes: int

    @property
    def used_bytes(self) -> int | None:
        """Memory of all its processes that cannot be reclaimed, read now; None: it cannot be read."""
        usage = _number(self.folder + (b"/memory.current" if self.v2 else b"/memory.usage_in_bytes"))
        stat, prefix = b"\n" + _read(self.folder + b"/memory.stat"), b"\n" if self.v2 else b"\ntotal_"
        active, inactive = (number_after(stat, prefix + name + b"_file ", 1) for name in (b"active", b"inactive"))
        return None if usage is None or active is None or inactive is None else max(0, usage - active - inactive)


def find_nearest(fs: KernelFs, pid: int) -> LimitedCgroup | None:
    """Find the cgroup that has least left now; None: no limit is known."""
    found = []
    for v2, _, folder in cgroups_above(fs, pid, b"memory"):
        limit = _number(folder + (b"/memory.max" if v2 else b"/memory.limit_in_bytes"))
        if limit is not None and limit < _UNLIMITED:
            found.append(LimitedCgroup(folder, v2, limit))
    return min(found, key=lambda one: one.limit_bytes - (one.used_bytes or 0), default=None)


def _number(path: bytes) -> int | None:
    return number_after(_read(path), b"", 1)


def _read(path: bytes) -> bytes:
    try:
        return read_limited(path)
    except OSError:
        return b""
