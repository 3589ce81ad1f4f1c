"""Processes: list, counters (/proc/PID/{stat,statm,io}) and descriptions.

psutil reads command line, environment and user of a new process; the loop reads raw files.

A descriptor on /proc/PID/io stays bound to the process it was opened for: once that process is gone a read gives ESRCH,
so that a reused pid is never mistaken for its predecessor, and the hot loop is reads only. Where too few descriptors
may be open, files are opened for each read, and the start time of the process is compared.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from ckptprof_collectors.blocking_processes import BLOCKING_PROCESSES
from ckptprof_collectors.kernelfs import PAGE_BYTES, KernelFs, read_once, read_start_ticks
from ckptprof_collectors.process_facts import ProcessFacts
from ckptprof_collectors.processes.programs import job_owner_variables, known_variables, name_program
from ckptprof_collectors.samples import ProcessExit, ProcessInfo, ProcessIo, ProcessStat, text

_PF_KTHREAD = 0x00200000  # include/linux/sched.h, as is the next
_PF_FORKNOEXEC = 0x00000040  # forked, and no exec since (cleared by fs/exec.c, begin_new_exec)
# mapped by training processes: part of the path in /proc/PID/maps -> runtime
RUNTIME_MARKS: tuple[tuple[bytes, str], ...] = (
    (b"/libtorch", "torch"),
    (b"/jaxlib/", "jax"),
    (b"/libtensorflow", "tensorflow"),
    (b"/_pywrap_tensorflow", "tensorflow"),
    (b"/libpaddle", "paddle"),
    (b"/mindspore/", "mindspore"),
    (b"/libmxnet", "mxnet"),
    (b"/_multiarray_umath", "numpy"),
    (b"/_safetensors_rust", "safetensors"),
    (b"/libcuda.so", "cuda"),
    (b"/libamdhip64", "hip"),
    (b"/libnccl", "nccl"),
)
_INTERPRETERS = (b"python", b"pypy", b"torchrun", b"accelerate", b"deepspeed")
_MAX_ANCESTORS = 8
_INIT = 1


class ProcessGone(Exception):  # noqa: N818 - a fact, not a fault
    """The process ended."""


class KernelThread(ProcessGone):
    """A thread of the kernel is no process."""


class Process:
    """One live process; every read raises ProcessGone once it has ended."""

    __slots__ = ("_io_fd", "_previous_io", "_previous_stat", "_stat_fd", "_statm_fd", "folder", "group", "io",
                 "keeps_open", "parent_pid", "pid", "run", "sizes", "start_ticks", "stat", "uid")  # fmt: skip

    def __init__(self, fs: KernelFs, pid: int, *, keeps_open: bool = True) -> None:
        """Open it; raises ProcessGone, KernelThread, or PermissionError where its counters may not be read."""
        self.pid = pid
        self.keeps_open = keeps_open
        self.folder = os.fsencode(fs.proc) + b"/%d" % pid
        self.run = fs.run
        self._io_fd = self._stat_fd = self._statm_fd = -1
        self._previous_io = self._previous_stat = b""
        self.io: ProcessIo | None = None
        self.stat: ProcessStat | None = None
        self.sizes: tuple[bytes, ...] = ()  # of its memory, in pages: total, and resident pages of files
        try:
            self._stat_fd = os.open(self.folder + b"/stat", os.O_RDONLY | os.O_CLOEXEC)
            fields = _process_fields(os.pread(self._stat_fd, 1024, 0))
            self.parent_pid, self.group = int(fields[1]), int(fields[2])
            self.start_ticks = int(fields[19])
            self.uid = os.stat(self.folder).st_uid  # effective; that of a file would be root's where it is not dumpable
            self._io_fd = os.open(self.folder + b"/io", os.O_RDONLY | os.O_CLOEXEC)
            os.pread(self._io_fd, 16, 0)
            os.pread(self._stat_fd, 1, 0)  # last: if this process still exists, the other descriptor is its own
        except (FileNotFoundError, ProcessLookupError, IndexError, ValueError) as error:
            self.close()
            raise ProcessGone from error
        except BaseException:
            self.close()
            raise
        if not keeps_open:
            self.close()

    def read_io(self) -> bool:
        """Read the counters into `io`; return True if they changed."""
        try:
            raw = os.pread(self._io_fd, 512, 0) if self.keeps_open else self._read_unkept(b"/io", 512)
        except ProcessLookupError as error:
            raise ProcessGone from error
        if raw == self._previous_io:
            return False
        self._previous_io = raw
        self.io = parse_io(self.pid, self.start_ticks, raw)
        return self.io is not None

    def read_stat(self, page_bytes: int) -> bool:
        """Read the counters of scheduler and memory into `stat`; return True if they changed."""
        try:
            raw = os.pread(self._stat_fd, 1024, 0) if self.keeps_open else self._read_unkept(b"/stat", 1024)
            if self.keeps_open and self._statm_fd < 0:
                self._statm_fd = os.open(self.folder + b"/statm", os.O_RDONLY | os.O_CLOEXEC)
            memory = os.pread(self._statm_fd, 128, 0) if self.keeps_open else self._read_unkept(b"/statm", 128)
        except (ProcessLookupError, FileNotFoundError) as error:
            raise ProcessGone from error
        joined = raw + memory
        if joined == self._previous_stat:
            return False
        self._previous_stat = joined
        self.sizes = tuple(memory.split(None, 3)[:3:2])
        self.stat = parse_stat(self.pid, self.start_ticks, raw, memory, page_bytes)
        return self.stat is not None

    def check_alive(self) -> None:
        """Raise ProcessGone if it has ended: files just opened by its pid may be another process's."""
        try:
            if self.keeps_open:  # statm, once it is open: stat adds up all threads, 0.3 ms of 5,000
                os.pread(self._stat_fd if self._statm_fd < 0 else self._statm_fd, 1, 0)
            else:
                self._read_unkept(b"/statm", 128)
        except ProcessLookupError as error:
            raise ProcessGone from error

    def _read_unkept(self, name: bytes, size: int) -> bytes:
        """Open and read a file; raises ProcessGone if the pid was reused."""
        try:
            raw = read_once(self.folder + name, size)
            started = read_start_ticks(self.folder)  # after the read: then the file was this process's, too
        except (FileNotFoundError, ProcessLookupError) as error:
            raise ProcessGone from error
        if started != self.start_ticks:
            raise ProcessGone
        return raw

    def close_statm(self) -> None:
        """Close the descriptor that only a watched process needs; it is reopened when needed."""
        if self._statm_fd >= 0:
            os.close(self._statm_fd)
            self._statm_fd = -1

    def close(self) -> None:
        for name in ("_io_fd", "_stat_fd", "_statm_fd"):
            if (fd := getattr(self, name)) >= 0:
                os.close(fd)
                setattr(self, name, -1)

    def make_exit(self) -> ProcessExit:
        return ProcessExit(self.pid, self.start_ticks)


def parse_io(pid: int, start_ticks: int, raw: bytes) -> ProcessIo | None:
    """Parse the seven counters of /proc/PID/io; None if it is incomplete."""
    values = raw.split()[1::2]
    if len(values) < 7:
        return None
    try:
        read_chars, write_chars, reads, writes, read_bytes, write_bytes, cancelled = map(int, values[:7])
    except ValueError:
        return None
    return ProcessIo(pid, start_ticks, read_chars, write_chars, reads, writes, read_bytes, write_bytes, cancelled)


def parse_stat(pid: int, start_ticks: int, raw: bytes, memory: bytes, page_bytes: int) -> ProcessStat | None:
    """Parse the used fields of /proc/PID/stat and statm; None if they are incomplete."""
    fields = _stat_fields(raw)
    pages = memory.split()
    try:
        return ProcessStat(
            pid=pid,
            start_ticks=start_ticks,
            state=fields[0].decode("ascii", "replace"),
            user_ticks=int(fields[11]),
            system_ticks=int(fields[12]),
            minor_faults=int(fields[7]),
            major_faults=int(fields[9]),
            threads=int(fields[17]),
            rss_bytes=int(pages[1]) * page_bytes if len(pages) > 2 else None,
            rss_file_bytes=int(pages[2]) * page_bytes if len(pages) > 2 else None,
            child_minor_faults=int(fields[8]),
        )
    except (IndexError, ValueError):
        return None


def _stat_fields(raw: bytes) -> list[bytes]:
    """Fields from `state` on: the command before them may contain spaces and brackets."""
    return raw[raw.rindex(b")") + 1 :].split() if b")" in raw else []


def _process_fields(raw: bytes) -> list[bytes]:
    fields = _stat_fields(raw)
    if int(fields[6]) & _PF_KTHREAD:
        raise KernelThread
    return fields


def _number(fields: list[bytes], at: int) -> int | None:
    return int(fields[at]) if len(fields) > at and fields[at].lstrip(b"-").isdigit() else None


def list_pids(fs: KernelFs) -> list[int]:
    """List all pids; raises OSError."""
    return [int(name) for name in os.listdir(fs.proc) if name.isdecimal()]


def read_parent(fs: KernelFs, pid: int) -> int | None:
    """Pid of the parent; None if the process has ended."""
    return _number(_stat_fields(_read(os.fsencode(fs.proc) + b"/%d/stat" % pid, 1024) or b""), 1)


def describe(process: Process, previous: ProcessInfo | None = None) -> ProcessInfo:
    """Describe a process; raises ProcessGone.

    `previous`: the last description, which is retained when the process is exiting and has lost its memory. It costs a
    read of its maps (1 to 3 ms for a large one), so it is called rarely.
    """
    info = _describe_folder(process.folder, process.run, process.start_ticks, process.parent_pid)
    maps = _read(process.folder + b"/maps", 16 << 20)  # last: while it has maps, the values before are its own
    process.check_alive()
    if maps == b"" and previous is not None:
        return previous
    runtimes = dict.fromkeys(name for mark, name in RUNTIME_MARKS if mark in (maps or b""))
    if maps and (b"/dev/nvidia" in maps or b"/dev/kfd" in maps):
        runtimes["gpu"] = None
    return msgspec.structs.replace(info, runtimes=tuple(runtimes))


def _describe_folder(folder: bytes, run: Path, start_ticks: int, parent_pid: int) -> ProcessInfo:
    facts = ProcessFacts(folder)
    comm = (_read(folder + b"/comm", 64) or b"").rstrip(b"\n")
    variables = facts.environment()
    notebook = os.fsencode(variables.get("JPY_SESSION_NAME", ""))  # Jupyter's server sets it for a kernel
    environment, cgroup, uid = known_variables(variables), _cgroup(folder), facts.uid()
    flags = _number(facts.stat, 6)
    return ProcessInfo(
        pid=facts.pid,
        start_ticks=start_ticks,
        parent_pid=parent_pid,
        uid=uid,
        comm=text(comm),
        program=text(name_program(facts.arguments(), comm, notebook)),
        runtimes=(),
        environment=environment | job_owner_variables(run, cgroup, environment, uid),
        cgroup=cgroup,
        is_fork=None if flags is None else bool(flags & _PF_FORKNOEXEC),
        in_other_network=_in_other_network(folder),
    )


def _in_other_network(folder: bytes) -> bool | None:
    """Test whether its connections are in another network namespace, and so not monitored; None: unknown."""
    try:
        return os.readlink(folder + b"/ns/net") != os.readlink(os.path.dirname(folder) + b"/self/ns/net")
    except OSError:
        return None


def describe_launchers(process: Process) -> list[ProcessInfo]:
    """Describe the shells and launchers above a process, up to the next interpreter, which are not watched.

    Their mappings are not read; the list ends at a process of another user, or one that has ended.
    """
    proc = os.path.dirname(process.folder)
    found: list[ProcessInfo] = []
    pid = process.parent_pid
    while pid > _INIT and len(found) < _MAX_ANCESTORS and pid not in BLOCKING_PROCESSES:
        BLOCKING_PROCESSES.reading = pid
        folder = proc + b"/%d" % pid
        fields = _stat_fields(_read(folder + b"/stat", 1024) or b"")
        started, above = _number(fields, 19), _number(fields, 1)
        if started is None or above is None or runs_interpreter(folder):
            break
        found.append(_describe_folder(folder, process.run, started, above))
        pid = found[-1].parent_pid
    BLOCKING_PROCESSES.reading = process.pid
    return found


def runs_interpreter(folder: bytes) -> bool:
    """Test whether the process of this folder runs one of the programs that run training scripts."""
    executable = os.path.basename((_read(folder + b"/cmdline", 4096) or b"").split(b"\0")[0])
    return executable.lstrip(b"-").startswith(_INTERPRETERS)


def candidate_folders(process: Process, limit: int = 16) -> list[bytes]:
    """Folders that may contain its files: those in its arguments, then the working directory. No cache."""
    found: list[bytes] = []
    for argument in (_read(process.folder + b"/cmdline", 16384) or b"").split(b"\0")[1:]:
        value = argument.partition(b"=")[2] or argument
        if value.startswith((b"/", b"./", b"../")) and len(found) < limit:
            found.append(value)
    try:
        working = os.readlink(process.folder + b"/cwd")
    except OSError:
        return [path for path in found if path.startswith(b"/")]
    return [os.path.normpath(os.path.join(working, path)) for path in found] + [working]


def _cgroup(folder: bytes) -> str | None:
    lines = (_read(folder + b"/cgroup", 8192) or b"").split(b"\n")
    paths = [line.split(b":", 2)[2] for line in lines if line.count(b":") >= 2]
    deepest = max(paths, key=len, default=b"/")
    return text(deepest) if deepest != b"/" else None


def _read(path: bytes, limit: int) -> bytes | None:
    """Read a file; what fits into a page in three system calls instead of seven: hosts start many processes."""
    try:
        if limit <= PAGE_BYTES:
            return read_once(path, limit)
        with open(path, "rb") as file:
            return file.read(limit)
    except OSError:
        return None


def descendants(parents: dict[int, int], roots: Iterable[int]) -> set[int]:
    """Pids in `parents` (pid to parent pid) that descend from `roots`, including the roots."""
    inside = set(roots)
    for pid in parents:
        chain = []
        current = pid
        while current not in inside and current in parents and current not in chain:
            chain.append(current)
            current = parents[current]
        if current in inside:
            inside.update(chain)
    return inside
