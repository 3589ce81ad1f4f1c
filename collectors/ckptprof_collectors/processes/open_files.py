"""Data files that a process has open or mapped, and its positions in them (/proc/PID/{fd,fdinfo,maps}).

No read here takes a lock that a page fault of the process would wait for: smaps is never read, maps only on request.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from itertools import islice

from ckptprof_collectors.files.statx import statx
from ckptprof_collectors.processes.process import Process, ProcessGone
from ckptprof_collectors.samples import FileScan, MappedFile, OpenFile, text

MAX_FILES = 256
_DEPTH_FACTOR = 4  # growth of the listing while the latest descriptors are no files
_FIRST_FD_POSITION = 2  # fs/proc/fd.c: the directory offset of a descriptor is its number plus 2
MAX_AGE_NS = 1_000_000_000
_MIN_MAPPED_BYTES = 1 << 20
_GPUDIRECT = b"/dev/nvidia-fs"  # of GPUDirect Storage: its users have one of these open
NVIDIA_FS = "driver/nvidia-fs"  # in /proc, where its driver is loaded
_PSEUDO = (b"/dev/", b"/proc/", b"/sys/", b"/memfd:", b"/SYSV", b"/anon_hugepage")
_CODE = (b".so", b".py", b".pyc", b".mo", b".ttf", b".gconv", b"/locale-archive", b"ld.so.cache", b".jar")
# a line of /proc/PID/maps: start, end, permissions, then device, inode and path; no code
_PIECE = re.compile(
    rb"^([0-9a-f]+)-([0-9a-f]+) [r-]([w-]-[ps]) [0-9a-f]+ ([0-9a-f]+:[0-9a-f]+ [0-9]+ +/.*)$", re.MULTILINE
)
# shm_open(3) has no folders; Python's tempfile may create a file there, if $TMPDIR is there
_IN_MEMORY = re.compile(rb"/dev/shm/(?:[^/]+/.|tmp[0-9a-z_]{8}$)")


def is_data_path(path: bytes) -> bool:
    """Test whether `path` may be a data file: no pseudo file, no code, no locale.

    Memory that processes share by name (/dev/shm/NAME) is none; a folder there may have checkpoints.
    """
    if not path.startswith(b"/") or (path.startswith(_PSEUDO) and not _IN_MEMORY.match(path)):
        return False
    return not path.endswith(_CODE) and b".so." not in path


class OpenFileScanner:
    """The descriptors of one process; its two folders stay open, so that a reused pid cannot be mistaken for it."""

    __slots__ = ("_fd_folder", "_info_folder", "gpudirect", "highest", "process", "raw_paths")

    def __init__(self, process: Process, highest: int = 0) -> None:
        """Open the folders; `highest`: that of the last scan. Raises ProcessGone or PermissionError."""
        self.process = process
        self.raw_paths: dict[tuple[int, int], bytes] = {}  # of the last scan: (device, inode) to the path as it is
        self._fd_folder = self._info_folder = -1
        self.gpudirect = False  # the driver of GPUDirect Storage was open at a scan: a process keeps it open
        self.highest = highest  # descriptor of the last listing
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        try:
            self._fd_folder = os.open(process.folder + b"/fd", flags)
        except FileNotFoundError as error:
            raise ProcessGone from error
        try:
            self._info_folder = os.open(process.folder + b"/fdinfo", flags)
            process.check_alive()  # the pid in the path was still this process's when both were open
        except FileNotFoundError as error:
            self.close()
            raise ProcessGone from error
        except (OSError, ProcessGone):
            self.close()
            raise

    def scan(self, mappings: MappingReader | None = None) -> FileScan:
        """Scan all open data files, and the mapped ones; raises ProcessGone, PermissionError."""
        self.raw_paths = {}
        files = tuple(islice(filter(None, map(self._read_descriptor, self._newest_descriptors())), MAX_FILES))
        mapped = None
        if mappings is not None:
            mapped = mappings.read()
            self.raw_paths.update(mappings.raw_paths)
        return FileScan(self.process.pid, self.process.start_ticks, files, mapped, self.gpudirect)

    def _newest_descriptors(self) -> Iterator[int]:
        """Yield the descriptors from the highest down; of tens of thousands only a few more are listed than used."""
        depth = 2 * MAX_FILES  # some are no files
        first, above = self.highest - depth, None
        while True:
            found = sorted((fd for fd in self._list(first) if above is None or fd < above), reverse=True)
            if above is None:
                self.highest = found[0] if found else 0
            yield from found
            if first <= 0:
                return
            depth *= _DEPTH_FACTOR
            first, above = first - depth, first

    def _list(self, first: int) -> list[int]:
        """List the open descriptors from a number on; raises ProcessGone, PermissionError."""
        try:
            os.lseek(self._fd_folder, first + _FIRST_FD_POSITION if first > 0 else 0, os.SEEK_SET)
            return [int(name) for name in os.listdir(self._fd_folder) if name.isdecimal()]
        except (FileNotFoundError, ProcessLookupError) as error:
            raise ProcessGone from error

    def _read_descriptor(self, number: int) -> OpenFile | None:
        name = b"%d" % number
        try:
            path = os.readlink(name, dir_fd=self._fd_folder)
            if not is_data_path(path):
                self.gpudirect = self.gpudirect or path.startswith(_GPUDIRECT)
                return None
            status = statx(name, dir_fd=self._fd_folder)
            if not stat.S_ISREG(status.mode):
                return None
            fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._info_folder)
            try:
                info = os.read(fd, 4096)
            finally:
                os.close(fd)
            if _has_other_inode(info, status.inode) and os.readlink(name, dir_fd=self._fd_folder) != path:
                return None  # closed and reopened in between
        except OSError:
            return None  # closed in between
        position, flags = parse_fdinfo(info)
        if position is None or flags is None:
            return None
        self.raw_paths[status.device, status.inode] = path
        return OpenFile(
            fd=number,
            device=status.device,
            inode=status.inode,
            position=position,
            flags=flags,
            size=status.size,
            modified_ns=status.modified_ns,
            path=text(path),
        )

    def close(self) -> None:
        for name in ("_fd_folder", "_info_folder"):
            fd = getattr(self, name)
            if fd >= 0:
                os.close(fd)
                setattr(self, name, -1)


class MappingReader:
    """The data files that a process has mapped; read again when its memory sizes changed, or after a second.

    Mapping or unmapping a file changes the mapped size, touching it the resident size; a rename, or a replacement by a
    file of the same size, changes neither.
    """

    __slots__ = ("_mapped", "_read_ns", "_sizes", "process", "raw_paths", "spent_ns")

    def __init__(self, process: Process) -> None:
        self.process = process
        self.raw_paths: dict[tuple[int, int], bytes] = {}  # (device, inode) to the path as it is
        self._mapped: tuple[MappedFile, ...] | None = None
        self._sizes: tuple[bytes, ...] = ()
        self._read_ns = 0
        self.spent_ns = 0  # CPU time of all reads so far

    def read(self) -> tuple[MappedFile, ...] | None:
        """Read the mapped files if the sizes of `Process.sizes` changed; None: not allowed. Raises ProcessGone."""
        sizes, now_ns = self.process.sizes, time.monotonic_ns()
        if not sizes or sizes != self._sizes or now_ns - self._read_ns >= MAX_AGE_NS:
            start_cpu_ns = time.thread_time_ns()
            found = read_mappings(self.process)
            self.spent_ns += time.thread_time_ns() - start_cpu_ns
            self.process.check_alive()
            self._sizes = () if found is None else sizes
            self._read_ns = now_ns
            self._mapped = None if found is None else tuple(found.values())
            self.raw_paths = {(file.device, file.inode): path for path, file in (found or {}).items()}
        return self._mapped


def parse_fdinfo(info: bytes) -> tuple[int | None, int | None]:
    """Parse (position, flags) of /proc/PID/fdinfo/FD; the flags are octal there."""
    fields = info.split(None, 4)
    if len(fields) < 4 or fields[0] != b"pos:" or fields[2] != b"flags:":
        return None, None
    try:
        return int(fields[1]), int(fields[3], 8)
    except ValueError:
        return None, None


def _has_other_inode(info: bytes, inode: int) -> bool:
    """Test whether fdinfo names another inode (Linux 5.14); on an overlay the number may differ for the same file."""
    _, found, rest = info.partition(b"\nino:")
    return bool(found) and rest.split(None, 1)[:1] != [b"%d" % inode]


def read_mappings(process: Process) -> dict[bytes, MappedFile] | None:
    """Read the mapped data files by path, each with the bytes of all its mappings; None: not allowed."""
    try:
        with open(process.folder + b"/maps", "rb", buffering=1 << 16) as stream:
            return parse_maps(stream.read(16 << 20))
    except OSError:
        return None


def parse_maps(raw: bytes) -> dict[bytes, MappedFile]:
    """Parse the data files of /proc/PID/maps by path; a newline in a name is an octal escape there.

    A file may be mapped in tens of thousands of pieces: only their lengths are summed up.
    """
    sizes: dict[bytes, int] = {}
    access: dict[bytes, bytes] = {}
    for low, high, mode, file in _PIECE.findall(raw):
        sizes[file] = sizes.get(file, 0) + int(high, 16) - int(low, 16)
        access[file] = mode
    found: dict[bytes, MappedFile] = {}
    for file, length in sizes.items():
        device, number, shown = file.split(None, 2)
        if not is_data_path(shown):
            continue
        try:
            major, _, minor = device.partition(b":")
            of = os.makedev(int(major, 16), int(minor, 16))
            inode = int(number)
        except (ValueError, OverflowError):
            continue
        path = shown.replace(b"\\012", b"\n")
        earlier = found.get(path)
        found[path] = MappedFile(
            device=of,
            inode=inode,
            mapped_bytes=length + (earlier.mapped_bytes if earlier else 0),
            writable=access[file] == b"w-s",
            path=text(path),
        )
    return {path: file for path, file in found.items() if file.mapped_bytes >= _MIN_MAPPED_BYTES}
