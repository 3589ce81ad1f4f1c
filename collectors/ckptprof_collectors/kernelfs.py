"""Paths of the kernel's files, through which every collector reads them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")  # the unit of /proc/vmstat
_FIRST_PID_NAMESPACE = 0xEFFFFFFC
_MAX_COUNTER = 1 << 63
_MAX_READ_BYTES = 64 << 10  # of a file that should have a few lines
DEBUGFS_LIMITATION = (  # why the counters of some clients are missing
    "the counters of its client: reading /sys/kernel/debug needs CAP_DAC_READ_SEARCH and a kernel without lockdown"
)


class UnavailableError(Exception):
    """A collector cannot work on this host; its text is the reason, for users."""

    permission = False  # only privileges are missing


@dataclass(frozen=True, slots=True)
class KernelFs:
    """Roots of /proc, /sys, /dev and /run; tests use their own trees."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    dev: Path = Path("/dev")
    run: Path = Path("/run")

    @property
    def is_live(self) -> bool:
        """Test for the machine's own files, for which udev and ioctls may be used, too."""
        return self.proc == Path("/proc") and self.sys == Path("/sys")


def has_host_pids(fs: KernelFs) -> bool | None:
    """Test whether pids here are those of the host; None where there is no /proc.

    The inode of the first namespace of pids is fixed: PROC_PID_INIT_INO in include/linux/proc_ns.h.
    """
    try:
        return os.stat(fs.proc / "self/ns/pid").st_ino == _FIRST_PID_NAMESPACE
    except OSError:
        return None


def read_start_ticks(folder: bytes) -> int | None:
    """Start of a process of /proc, in clock ticks; None if it is not shown. Raises OSError.

    Read from its main thread, since /proc/PID/stat sums up all threads (measured with 5,000: 314 us instead of 11).
    """
    fields = read_once(folder + b"/task/" + os.path.basename(folder) + b"/stat", 1024).rpartition(b")")[2].split()
    return int(fields[19]) if len(fields) > 19 and fields[19].isdigit() else None


class KernelFile:
    """A /proc or /sys file that is opened once and read many times.

    Seq files return at most one page per read(2), so reading goes on until it is empty
    (measured: one pread of /proc/diskstats with 100 devices gave 4,042 of 5,582 bytes).
    """

    __slots__ = ("_chunk", "fd", "path")

    def __init__(self, path: Path | str, *, chunk: int = 16384) -> None:
        """Open `path`; raises OSError."""
        self.path = path
        self._chunk = chunk
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self) -> bytes:
        """Read the whole file; raises OSError (ESRCH once its process has ended)."""
        first = os.pread(self.fd, self._chunk, 0)
        if not first:
            return first
        offset = len(first)
        more = os.pread(self.fd, self._chunk, offset)
        if not more:
            return first
        parts = [first]
        while more:
            parts.append(more)
            offset += len(more)
            more = os.pread(self.fd, self._chunk, offset)
        return b"".join(parts)

    def close(self) -> None:
        """Close it; a second call does nothing."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def read_once(path: bytes, size: int) -> bytes:
    """Read a file with one read(2); raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(fd, size, 0)
    finally:
        os.close(fd)


def read_limited(path: str | bytes | os.PathLike[str]) -> bytes:
    """Read a file up to a limit; a truncated last line is dropped. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts, offset = [], 0
        while offset < _MAX_READ_BYTES and (part := os.pread(fd, _MAX_READ_BYTES - offset, offset)):
            parts.append(part)
            offset += len(part)
    finally:
        os.close(fd)
    data = b"".join(parts)
    return data if offset < _MAX_READ_BYTES else data[: data.rfind(b"\n") + 1]


def parse_counter(word: bytes) -> int | None:
    """Parse a counter; None if it is negative, impossible or no number."""
    if not word.isdigit() or len(word) > 19:
        return None
    return valid_counter(int(word))


def valid_counter(value: int) -> int | None:
    """Check a number or a sum; None where no kernel counter can be that large."""
    return value if value < _MAX_COUNTER else None


def number_after(data: bytes, key: bytes, unit: int) -> int | None:
    """Parse the number after a key, times its unit; None if missing. A find costs far less than splitting."""
    at = data.find(key)
    if at < 0:
        return None
    at += len(key)
    end = data.find(b"\n", at)
    number = data[at : end if end >= 0 else None].removesuffix(b" kB")
    try:
        return int(number) * unit
    except ValueError:
        return None


def list_names(folder: Path) -> list[str]:
    """Names in a folder, sorted; none if it does not exist."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def read_text(path: Path) -> str | None:
    """Read a small sysfs attribute without its newline; None if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="backslashreplace").strip()
    except OSError:
        return None


def read_int(path: Path) -> int | None:
    """Read a small sysfs attribute as a number; None if it cannot be read or is none."""
    value = read_text(path)
    try:
        return None if value is None else int(value)
    except ValueError:
        return None
