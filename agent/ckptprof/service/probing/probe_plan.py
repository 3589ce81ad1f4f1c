"""The plan of a probe (how much it may write, and on which device), and its files.

The files have no name, or one that the next probe recognises. All are reached by the directory's descriptor, so that a
rename of the directory cannot redirect us. A named file is locked while its probe lives: an unlocked one is stale.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ckptprof.errors import CkptprofError, PermissionDeniedError, UsageError
from ckptprof_collectors.devices.block_devices import parse_line
from ckptprof_collectors.kernelfs import KernelFile, KernelFs
from ckptprof_collectors.mounts import mountinfo
from ckptprof_collectors.mounts.remote_servers import parse_server
from ckptprof_collectors.samples import text

MIN_BYTES = 32 << 20  # fewer do not measure large writes
FREE_SHARE = 10  # a probe uses at most 1/10 of the free space,
_RESERVE_BYTES, _RESERVE_SHARE = 1 << 30, 20  # and leaves 1 GiB or 1/20 of the whole, whichever is less
_MIN_FOOTPRINT = 4 << 20
_SAMPLE_SECONDS = 0.25
_MS_WRAP = 1 << 32
PREFIX = ".ckptprof-ceiling-"  # followed by the host (other hosts may not see its locks) and a number
# Errors of file systems without O_TMPFILE: EOPNOTSUPP, or those of kernels before 3.11 for a directory
_NO_TMPFILE = frozenset((errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL, errno.ENOSYS, errno.EPERM))


class ProbePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Target and limits of a probe."""

    path: str
    directory: bytes  # the path as bytes, as the kernel has it
    mount_point: str
    fs_type: str
    source: str
    device: str | None
    server: str | None
    size_bytes: int  # written in total, at most
    footprint_bytes: int  # used at any time, at most
    phase_seconds: float
    busy: float | None  # share of a short sample in which the device was busy


def plan_probe(directory: str | Path, *, size_bytes: int, phase_seconds: float, fs: KernelFs) -> ProbePlan:
    """Plan a probe; raises UsageError, PermissionDeniedError, and CkptprofError without enough free space."""
    path = _check_directory(directory)
    footprint = min(usable_bytes(path), size_bytes)
    if footprint < _MIN_FOOTPRINT:
        raise CkptprofError(
            f"{text(path)} has too little free space to probe: only {footprint} bytes could be used",
            hint=f"a probe uses at most 1/{FREE_SHARE} of the free space and leaves 1.07 GB or 1/{_RESERVE_SHARE} free",
        )
    try:
        mountinfo_file = KernelFile(fs.proc / "self" / "mountinfo")
        raw = mountinfo.parse(mountinfo_file.read())
        mountinfo_file.close()
    except OSError as error:
        raise CkptprofError(f"/proc/self/mountinfo: {error.strerror}") from error
    mount = mountinfo.find_mount(raw, path)
    if mount is None:
        raise CkptprofError(f"{text(path)} is on no mount that /proc/self/mountinfo lists")
    device = mountinfo.find_device(fs, mount, raw)
    fs_type, source = text(mount.fs_type), text(mount.source)
    return ProbePlan(
        path=text(path),
        directory=path,
        mount_point=text(mount.mount_point),
        fs_type=fs_type,
        source=source,
        device=device,
        server=parse_server(fs_type, source, text(mount.options)),
        size_bytes=size_bytes,
        footprint_bytes=footprint,
        phase_seconds=phase_seconds,
        busy=None if device is None else busy_share(fs, device),
    )


def _check_directory(directory: str | Path) -> bytes:
    path = os.path.realpath(os.fsencode(directory))
    if not os.path.isdir(path):  # noqa: PTH112 # bytes: a name may be no text
        raise UsageError(f"{text(path)} is not a directory", hint="give a directory on the file system to probe")
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        raise CkptprofError(f"{text(path)} is on a read-only file system")
    if not os.access(path, os.W_OK | os.X_OK, effective_ids=True):
        raise PermissionDeniedError(f"{text(path)} is not writable by this user", hint="give a directory of yours")
    return path


def usable_bytes(directory: bytes | int) -> int:
    """Bytes that a probe may use now: a part of the space free for this user, leaving a reserve."""
    state = os.statvfs(directory)
    free = state.f_bavail * state.f_frsize
    reserve = min(_RESERVE_BYTES, state.f_blocks * state.f_frsize // _RESERVE_SHARE)
    return max(0, min(free // FREE_SHARE, free - reserve))


def busy_share(fs: KernelFs, device: str, seconds: float = _SAMPLE_SECONDS) -> float | None:
    """Share of the next `seconds` in which the device is busy, None if unknown; blocks for that time."""
    before, began = _io_ms(fs, device), time.monotonic()
    time.sleep(seconds)
    after, spent = _io_ms(fs, device), time.monotonic() - began
    if before is None or after is None:
        return None
    return min(1.0, (after - before) % _MS_WRAP / 1000 / spent)


def _io_ms(fs: KernelFs, device: str) -> int | None:
    try:
        diskstats = KernelFile(fs.proc / "diskstats")
        lines = diskstats.read().splitlines()
        diskstats.close()
    except OSError:
        return None
    samples = (parse_line(line) for line in lines)
    return next((sample.io_ms for sample in samples if sample is not None and sample.device == device), None)


class ProbeFiles:
    """The files of one probe below a directory, readable by their owner only."""

    def __init__(self, directory: str | bytes) -> None:
        """Open it, and remove stale files of earlier probes of this user; raises OSError."""
        self.parent_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._files: dict[int, str | None] = {}  # and their names, if they have any
        self._supports_tmpfile = True
        remove_stale(self.parent_fd)

    def open(self, *, direct: bool) -> int:
        """Return a new empty file, without a name where the file system has such; raises OSError."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_DIRECT if direct else 0)
        if self._supports_tmpfile:
            try:
                return self._remember(os.open(".", flags | os.O_TMPFILE, 0o600, dir_fd=self.parent_fd), None)
            except OSError as error:
                if error.errno not in _NO_TMPFILE:
                    raise
                self._supports_tmpfile = direct and error.errno == errno.EINVAL  # which may concern O_DIRECT
        name = _prefix() + secrets.token_hex(4)
        try:
            fd = os.open(name, flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=self.parent_fd)
        except OSError:
            with contextlib.suppress(OSError):  # where O_DIRECT is refused, the name may exist by then
                os.unlink(name, dir_fd=self.parent_fd)
            raise
        with contextlib.suppress(OSError):  # a file system without locks: then no file counts as stale
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return self._remember(fd, name)

    def _remember(self, fd: int, name: str | None) -> int:
        self._files[fd] = name
        return fd

    def remove(self, fd: int) -> None:
        """Close and remove a file."""
        name = self._files.pop(fd, None)
        with contextlib.suppress(OSError):  # network failure: close anyway
            os.ftruncate(fd, 0)
        with contextlib.suppress(OSError):
            os.close(fd)
        if name is not None:  # after close: NFS and FUSE rename a file that is removed while open
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=self.parent_fd)

    def close(self) -> None:
        """Remove all files; a second call does nothing. The next probe removes what cannot be removed now."""
        if self.parent_fd >= 0:
            for fd in tuple(self._files):
                self.remove(fd)
            os.close(self.parent_fd)
            self.parent_fd = -1


@contextlib.contextmanager
def probe_files(directory: str | bytes) -> Iterator[ProbeFiles]:
    """Open a place, and always remove its files at the end; raises OSError."""
    place = ProbeFiles(directory)
    try:
        yield place
    finally:
        place.close()


def _prefix() -> str:
    return f"{PREFIX}{os.uname().nodename}-"


def remove_stale(parent: int) -> None:
    """Remove files of killed probes of this user and host: they are not locked."""
    try:
        names = [name for name in os.listdir(parent) if name.startswith(_prefix())]
    except OSError:  # writable, but not readable
        return
    for name in names:
        with contextlib.suppress(OSError):
            _remove_stale_file(parent, name)


def _remove_stale_file(parent: int, name: str) -> None:
    fd = os.open(name, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent)
    try:
        state = os.fstat(fd)
        if stat.S_ISREG(state.st_mode) and state.st_uid == os.geteuid():
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(name, dir_fd=parent)
    finally:
        os.close(fd)
