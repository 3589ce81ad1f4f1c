"""What a probe of a directory may write, and on what it would write it; nothing is written here."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

from ckptprof.errors import CkptprofError, PermissionDeniedError, UsageError
from ckptprof_collectors.devices.blockdevices import parse_line
from ckptprof_collectors.kernelfs import KeptFile, KernelFs
from ckptprof_collectors.mounts import mountinfo
from ckptprof_collectors.mounts.remotefs import server_of
from ckptprof_collectors.samples import text

LEAST_BYTES = 32 << 20  # less says nothing about large writes
FREE_SHARE = 10  # one part in so many of the free space is taken at most,
_RESERVE_BYTES, _RESERVE_SHARE = 1 << 30, 20  # and so much stays free: a part of the whole, or 1 GiB if that is less
_LEAST_FOOTPRINT = 4 << 20
_LOOK_SECONDS = 0.25
_MS_WRAP = 1 << 32


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What would be done."""

    path: str
    directory: bytes  # the path as the kernel takes it
    mount_point: str
    fs_type: str
    source: str
    device: str | None
    server: str | None
    size_bytes: int  # written in all, at most
    footprint_bytes: int  # taken at any time, at most
    phase_seconds: float
    busy: float | None  # share of the last moments in which the device had work


def plan(directory: str | Path, *, size_bytes: int, phase_seconds: float, fs: KernelFs) -> Plan:
    """Return what a probe would do; raises UsageError, PermissionDeniedError, and CkptprofError if there is no room."""
    path = _checked(directory)
    footprint = min(room_bytes(path), size_bytes)
    if footprint < _LEAST_FOOTPRINT:
        raise CkptprofError(
            f"{text(path)} has too little free space to probe: {footprint} bytes could be used",
            hint=f"at most a {FREE_SHARE}th of the free space is taken, and 1.07 GB or a {_RESERVE_SHARE}th stays free",
        )
    try:
        kept = KeptFile(fs.proc / "self" / "mountinfo")
        raw = mountinfo.parse(kept.read())
        kept.close()
    except OSError as error:
        raise CkptprofError(f"/proc/self/mountinfo: {error.strerror}") from error
    mount = mountinfo.mount_of(raw, path)
    if mount is None:
        raise CkptprofError(f"{text(path)} is on no mount that /proc/self/mountinfo lists")
    device = mountinfo.device_of(fs, mount, raw)
    fs_type, source = text(mount.fs_type), text(mount.source)
    return Plan(
        path=text(path),
        directory=path,
        mount_point=text(mount.mount_point),
        fs_type=fs_type,
        source=source,
        device=device,
        server=server_of(fs_type, source, text(mount.options)),
        size_bytes=size_bytes,
        footprint_bytes=footprint,
        phase_seconds=phase_seconds,
        busy=None if device is None else busy_share(fs, device),
    )


def _checked(directory: str | Path) -> bytes:
    path = os.path.realpath(os.fsencode(directory))
    if not os.path.isdir(path):  # noqa: PTH112 # bytes: a name may be no text
        raise UsageError(f"{text(path)} is no directory", hint="give a directory on the file system to probe")
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        raise CkptprofError(f"{text(path)} is on a file system that is mounted read-only")
    if not os.access(path, os.W_OK | os.X_OK, effective_ids=True):
        raise PermissionDeniedError(f"{text(path)} may not be written by this user", hint="give a directory of yours")
    return path


def room_bytes(directory: bytes | int) -> int:
    """Return how much a probe may take now: a part of what is free for this user, leaving a reserve."""
    state = os.statvfs(directory)
    free = state.f_bavail * state.f_frsize
    reserve = min(_RESERVE_BYTES, state.f_blocks * state.f_frsize // _RESERVE_SHARE)
    return max(0, min(free // FREE_SHARE, free - reserve))


def busy_share(fs: KernelFs, device: str, seconds: float = _LOOK_SECONDS) -> float | None:
    """Return the share of the next moments in which the device had work to do, None if it cannot be seen."""
    before, began = _io_ms(fs, device), time.monotonic()
    time.sleep(seconds)
    after, spent = _io_ms(fs, device), time.monotonic() - began
    if before is None or after is None:
        return None
    return min(1.0, (after - before) % _MS_WRAP / 1000 / spent)


def _io_ms(fs: KernelFs, device: str) -> int | None:
    try:
        kept = KeptFile(fs.proc / "diskstats")
        lines = kept.read().splitlines()
        kept.close()
    except OSError:
        return None
    samples = (parse_line(line) for line in lines)
    return next((sample.io_ms for sample in samples if sample is not None and sample.device == device), None)
