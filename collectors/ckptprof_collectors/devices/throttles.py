"""Limits of a process by its cgroups, of v2 and v1, up to the root: I/O on block devices, and memory.

A device that is throttled so shows no busy time: requests wait before its queue. A process whose cgroup reaches its
limit of memory is killed although the host has some. From Documentation/admin-guide/cgroup-v2.rst and
cgroup-v1/blkio-controller.rst and memory.rst.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from ckptprof_collectors.kernelfs import KernelFs, number_after, read_limited
from ckptprof_collectors.mounts.mountinfo import RawMount, parse
from ckptprof_collectors.samples import ThrottleInfo, text

_MAX_DEPTH = 32
_UNLIMITED = 1 << 62  # bytes: v1 has a number near the maximum for no limit
MAX_LIMITS = 64  # of one process
_V1 = (
    (b"blkio.throttle.read_bps_device", "read_bytes_per_second"),
    (b"blkio.throttle.write_bps_device", "write_bytes_per_second"),
    (b"blkio.throttle.read_iops_device", "read_operations_per_second"),
    (b"blkio.throttle.write_iops_device", "write_operations_per_second"),
)
_V2 = {
    b"rbps": "read_bytes_per_second",
    b"wbps": "write_bytes_per_second",
    b"riops": "read_operations_per_second",
    b"wiops": "write_operations_per_second",
}
DeviceLimits = dict[bytes, dict[str, int]]  # by device, "major:minor"


class ThrottleReader:
    """Reports the limits of a process when they are new or changed."""

    def __init__(self, fs: KernelFs) -> None:
        self._fs = fs
        self._reported: dict[int, dict[tuple[str, str], ThrottleInfo]] = {}

    def read_changes(self, pid: int) -> list[ThrottleInfo]:
        """Read the limits of a process that changed since the last call; none if the process has ended."""
        reported = self._reported.get(pid, {})
        found = {(info.device, info.cgroup): info for info in read_limits(self._fs, pid)}
        lifted = [
            ThrottleInfo(device, cgroup, None, None, None, None, info.name, pid)
            for (device, cgroup), info in reported.items()
            if (device, cgroup) not in found
        ]
        fresh = [info for key, info in found.items() if info != reported.get(key)]
        if found:
            self._reported[pid] = found
        else:
            self._reported.pop(pid, None)
        return [*lifted, *fresh]

    def forget(self, pid: int) -> None:
        self._reported.pop(pid, None)


def read_limits(fs: KernelFs, pid: int) -> list[ThrottleInfo]:
    """Read the limits of all cgroups of a process, innermost first."""
    return [
        _info(fs, pid, device, inside, values)
        for v2, inside, folder in cgroups_above(fs, pid, b"blkio")
        for device, values in (_read_v2(folder) if v2 else _read_v1(folder)).items()
    ][:MAX_LIMITS]


def cgroups_above(fs: KernelFs, pid: int, controller: bytes) -> Iterator[tuple[bool, bytes, bytes]]:
    """Yield the cgroups of a process, of v1 those with a controller: whether it is of v2, its own name, its folder."""
    mounts = parse(_read(os.fsencode(fs.proc) + b"/self/mountinfo"))
    for line in _read(os.fsencode(fs.proc) + b"/%d/cgroup" % pid).split(b"\n"):
        _, _, rest = line.partition(b":")
        controllers, colon, path = rest.partition(b":")
        if not colon or (controllers and controller not in controllers.split(b",")):
            continue
        for inside, folder in _folders(mounts, path, controller if controllers else None):
            yield not controllers, inside, folder


def _info(fs: KernelFs, pid: int, device: bytes, cgroup: bytes, values: dict[str, int]) -> ThrottleInfo:
    try:
        name: str | None = text(os.fsencode(os.readlink(fs.sys / "dev" / "block" / os.fsdecode(device))))
    except (OSError, ValueError):
        name = None
    return ThrottleInfo(
        device=text(device),
        cgroup=text(cgroup),
        **{field: values.get(field) for field in _V2.values()},
        name=None if name is None else name.rpartition("/")[2].replace("!", "/"),
        pid=pid,
    )


def _folders(mounts: list[RawMount], path: bytes, v1: bytes | None) -> Iterator[tuple[bytes, bytes]]:
    """Yield each cgroup from this one up: its name in the process's line, and its folder here; `v1`: its controller."""
    for mount in mounts:
        fits = mount.fs_type == (b"cgroup" if v1 else b"cgroup2") and (not v1 or v1 in mount.options.split(b","))
        root = mount.root.rstrip(b"/")
        if not fits or not (path == root or path.startswith(root + b"/")) or b"/.." in path:
            continue
        inside = path[len(root) :].rstrip(b"/")
        for _ in range(_MAX_DEPTH):
            yield root + inside or b"/", mount.mount_point + inside
            if not inside:
                return
            inside = inside.rpartition(b"/")[0]
        return


def _read_v1(folder: bytes) -> DeviceLimits:
    limits: DeviceLimits = {}
    for name, field in _V1:
        for line in _read(folder + b"/" + name).split(b"\n"):
            device, _, value = line.partition(b" ")
            if _is_device(device) and value.strip().isdigit():
                limits.setdefault(device, {})[field] = int(value)
    return limits


def _read_v2(folder: bytes) -> DeviceLimits:
    limits: DeviceLimits = {}
    for line in _read(folder + b"/io.max").split(b"\n"):
        device, *pairs = line.split()[:8] or [b""]
        for pair in pairs:
            key, _, value = pair.partition(b"=")
            if _is_device(device) and key in _V2 and value.isdigit():  # "max" is no limit
                limits.setdefault(device, {})[_V2[key]] = int(value)
    return limits


def _is_device(word: bytes) -> bool:
    major, _, minor = word.partition(b":")
    return major.isdigit() and minor.isdigit()


class LimitedCgroup(NamedTuple):
    """A cgroup with a limit of memory."""

    folder: bytes
    v2: bool
    limit_bytes: int

    def read_used(self) -> int | None:
        """Read how many bytes of all its processes cannot be reclaimed; None: not readable."""
        name, prefix = (b"/memory.current", b"\n") if self.v2 else (b"/memory.usage_in_bytes", b"\ntotal_")
        usage, stat = number_after(_read(self.folder + name), b"", 1), b"\n" + _read(self.folder + b"/memory.stat")
        active, inactive = (number_after(stat, prefix + kind + b"_file ", 1) for kind in (b"active", b"inactive"))
        return None if usage is None or active is None or inactive is None else max(0, usage - active - inactive)


def find_nearest(fs: KernelFs, pid: int) -> LimitedCgroup | None:
    """Find the cgroup that has least left now; None: no limit is known."""
    found = []
    for v2, _, folder in cgroups_above(fs, pid, b"memory"):
        limit = number_after(_read(folder + (b"/memory.max" if v2 else b"/memory.limit_in_bytes")), b"", 1)
        if limit is not None and limit < _UNLIMITED:
            found.append(LimitedCgroup(folder, v2, limit))
    return min(found, key=lambda one: one.limit_bytes - (one.read_used() or 0), default=None)


def _read(path: bytes) -> bytes:
    try:
        return read_limited(path)
    except OSError:
        return b""
