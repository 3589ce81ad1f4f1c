"""Runs one job beside a sampler of each level, and keeps of what they saw what is of the job and of nobody else."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from ckptprof.recording import FileWriter, Frame, Header, Unpacker
from ckptprof.service.options import SamplerOptions, Wish
from ckptprof_collectors.samples import (
    BlockActivity,
    DeviceInfo,
    DiskSample,
    FileActivity,
    FileFact,
    FileScan,
    FuseDaemon,
    FuseSample,
    Gone,
    MemorySample,
    MountInfo,
    NicInfo,
    NicSample,
    ProcessInfo,
    ProcessIo,
    ProcessStat,
    QdiscSample,
    Sample,
    SamplerHealth,
    TcpSample,
    ThreadLook,
    ThreadTime,
    ThrottleInfo,
    TraceHealth,
    Unavailable,
)

LEVELS: tuple[Wish, ...] = ("poll", "trace")
PLACES = ("/var/tmp/corpus-", "/dev/shm/everyday.", "/mnt/ckptprof-")  # where jobs work
OURS = (SamplerHealth, Unavailable)  # of the sampler, not of the job
DISKS = (DeviceInfo, DiskSample, MountInfo, BlockActivity, ThrottleInfo, MemorySample)
LINKS = (NicInfo, NicSample, QdiscSample, FuseSample, Gone)
SELDOM_NS: dict[type, int] = {
    **dict.fromkeys((ThreadTime, ProcessStat, ProcessIo), 10**9),
    **dict.fromkeys((MemorySample, DiskSample, BlockActivity, TraceHealth), 2 * 10**9),
}
TERSE_LOOK_NS = 200_000_000
ROOT = Path(__file__).resolve().parents[2]


class Sampler:
    """A sampler process, and what it has sent so far."""

    def __init__(self, level: Wish) -> None:
        """Start it, and wait until it looks."""
        options = SamplerOptions(
            uid="corpus", level=level, only_family=True, monitor_pids=(os.getpid(),), note="corpus"
        )
        command = [sys.executable, "-m", "ckptprof.service.sampler.process", msgspec.json.encode(options).decode()]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self._pieces = [os.read(self._process.stdout.fileno(), 1 << 16)]  # the header: from now on it looks
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        while piece := self._process.stdout.read1(1 << 20):  # type: ignore[attr-defined]
            self._pieces.append(piece)

    def look_at(self, root_pid: int) -> None:
        """Name the root of the processes that are watched."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"root_pid": root_pid}).encode() + b"\n")
        self._process.stdin.flush()

    def end(self) -> tuple[Header, list[Frame]]:
        """Let it look a last time; return all that it saw."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._reader.join()
        assert self._process.wait() == 0
        header, *frames = Unpacker().feed(b"".join(self._pieces))
        assert isinstance(header, Header)
        return header, [frame for frame in frames if isinstance(frame, Frame)]


@dataclass(frozen=True)
class Watched:
    """What one level saw of a job, and of all else."""

    level: Wish
    root_pid: int
    header: Header
    frames: list[Frame]


def watch(command: str, levels: Iterable[Wish], environment: Mapping[str, str]) -> tuple[int, list[Watched]]:
    """Return the exit code of a command for the shell, and what each level saw of it."""
    samplers = {level: Sampler(level) for level in sorted(levels)}  # the trace last: no other sampler is its family
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    job = subprocess.Popen(["sh", "-c", command], env=environment, **quiet)  # type: ignore[call-overload]
    for sampler in samplers.values():
        sampler.look_at(job.pid)
    code = job.wait()
    seen = [Watched(level, job.pid, *sampler.end()) for level, sampler in samplers.items()]
    for one in seen:
        assert one.header.level == one.level, f"recorded at {one.header.level} level: {one.header.level_reason}"
    return code, seen


@dataclass
class Scrubber:
    """Leaves out of frames what is not of a job: `host` tells what it needs to know of the host."""

    pids: frozenset[int]
    host: str = ""  # "": nothing; disks: devices, mounts and memory; links: these, and networks
    devices: set[str] = field(default_factory=set)
    numbers: set[tuple[int, int]] = field(default_factory=set)
    servers: set[int] = field(default_factory=set)  # pids of those who serve the mount

    def frame(self, frame: Frame) -> Frame:
        """Return what is kept of a frame."""
        samples = [kept for sample in frame.samples if (kept := self._kept(sample)) is not None]
        read = frame.read if self.host else tuple(name for name in frame.read if name in {"processes", "tcp"})
        return Frame(frame.at_ns, frame.wall_ns, read, tuple(samples))

    def know(self, frames: Iterable[Frame], places: tuple[str, ...]) -> None:
        """Learn which devices are under these places."""
        samples = [sample for frame in frames for sample in frame.samples]
        infos = {one.device: one for one in samples if isinstance(one, DeviceInfo)}
        mounts = [one for one in samples if isinstance(one, MountInfo)]
        for place in places:
            above = [one for one in mounts if f"{place}/".startswith(f"{one.mount_point.rstrip('/')}/")]
            if above:
                mount = max(above, key=lambda one: len(one.mount_point))
                self.numbers.add((mount.major, mount.minor))
                self._take(mount.device, infos)
        daemons = (one for one in samples if isinstance(one, FuseDaemon) and (one.major, one.minor) in self.numbers)
        self.servers |= {pid for one in daemons for pid, _ in one.processes}

    def _take(self, device: str | None, infos: Mapping[str, DeviceInfo]) -> None:
        info = infos.get(device or "")
        if info is not None and info.device not in self.devices:
            self.devices.add(info.device)
            self.numbers.add((info.major, info.minor))
            for below in info.below:
                self._take(below, infos)

    def _kept(self, sample: Sample) -> Sample | None:
        if isinstance(sample, TcpSample) and sample.pid in self.servers and self.host == "links":
            return sample
        if isinstance(sample, OURS) or (getattr(sample, "pid", None) or next(iter(self.pids))) not in self.pids:
            return None
        if isinstance(sample, DISKS):
            return self._of_host(sample)
        if isinstance(sample, LINKS):
            return sample if self.host == "links" else None
        if isinstance(sample, TcpSample):  # `pid` is one of them
            return msgspec.structs.replace(sample, interfaces=()) if sample.pid is not None else None
        if isinstance(sample, ProcessInfo):
            return msgspec.structs.replace(sample, cgroup=None)
        if isinstance(sample, FileScan):
            files = tuple(file for file in sample.files if file.path.startswith(PLACES))
            mapped = sample.mapped and tuple(file for file in sample.mapped if file.path.startswith(PLACES))
            return msgspec.structs.replace(sample, files=files, mapped=mapped)
        path = getattr(sample, "path", None)
        return sample if path is None or path.startswith(PLACES) else None

    def _of_host(self, sample: Any) -> Sample | None:
        if not self.host:
            return None
        if isinstance(sample, DeviceInfo):
            return msgspec.structs.replace(sample, serial=None) if sample.device in self.devices else None
        if isinstance(sample, (MountInfo, BlockActivity)):
            return sample if (sample.major, sample.minor) in self.numbers else None  # type: ignore[return-value]
        if isinstance(sample, ThrottleInfo):
            return msgspec.structs.replace(sample, cgroup="/") if sample.name in self.devices else None
        return sample if isinstance(sample, MemorySample) or sample.device in self.devices else None  # type: ignore[no-any-return]


@dataclass
class Thinner:
    """Leaves out samples: where nothing happened looks at threads, and most counters.

    `terse` also leaves out of events most looks at a thread, and facts of a file that tell nothing new.
    """

    spans: tuple[tuple[int, int], ...]  # wall clock
    margin_ns: int
    terse: bool = False
    _last_ns: dict[object, int] = field(default_factory=dict)
    _facts: dict[object, FileFact] = field(default_factory=dict)

    def frame(self, frame: Frame) -> Frame:
        """Return what is kept of a frame."""
        eventful = any(a - self.margin_ns <= frame.wall_ns <= b + self.margin_ns for a, b in self.spans)
        kept = [sample for sample in frame.samples if self._is_kept(sample, frame.at_ns, eventful=eventful)]
        return Frame(frame.at_ns, frame.wall_ns, frame.read, tuple(kept))

    def _is_kept(self, sample: Sample, at_ns: int, *, eventful: bool) -> bool:
        if self.terse and isinstance(sample, FileFact):
            key = (sample.pid, sample.device, sample.inode, sample.path)
            before, self._facts[key] = self._facts.get(key), sample
            return before is None or before != msgspec.structs.replace(sample, accessed_ns=before.accessed_ns)
        if isinstance(sample, ThreadLook):
            period_ns = (TERSE_LOOK_NS if self.terse else 0) if eventful else None
        else:
            period_ns = 0 if eventful else SELDOM_NS.get(type(sample), 0)
        one = (type(sample), *(getattr(sample, name, None) for name in ("pid", "tid", "device", "major", "minor")))
        if period_ns is None or at_ns - self._last_ns.get(one, 0) < period_ns:
            return False
        self._last_ns[one] = at_ns
        return True


def family(frames: Iterable[Frame], root_pid: int) -> frozenset[int]:
    """Return the pids of a process and its descendants."""
    known = {root_pid}
    for frame in frames:  # parents come before their children do anything
        for sample in frame.samples:
            if isinstance(sample, (ProcessInfo, FileActivity)) and sample.parent_pid in known:
                known.add(sample.pid)
    return frozenset(known)


def write(path: Path, header: Header, frames: Iterable[Frame]) -> None:
    """Write a recording as well compressed as gzip can, with the folders of this machine under other names."""
    plain = io.BytesIO()
    writer = FileWriter(plain, msgspec.structs.replace(header, host="recorded", boot_id="", monitor_pids=()))
    for frame in frames:
        writer.write(frame)
    writer.close()
    text = gzip.decompress(plain.getvalue())
    for place, name in ((str(ROOT), "/src"), (sys.prefix, "/venv"), (str(Path.home()), "/home/user")):
        text = text.replace(place.encode(), name.encode())
    path.write_bytes(gzip.compress(text, compresslevel=9, mtime=0))
