"""Everything observed of the host and still retained: one object that all later rooms query."""

from __future__ import annotations

from collections.abc import Iterable

from ckptprof.detect.tolerances import MAX_SAMPLES
from ckptprof.detect.world.file_calls import FileCalls
from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.detect.world.host.devices import Devices
from ckptprof.detect.world.host.fuse_mounts import FuseMounts
from ckptprof.detect.world.host.gpu_traffic import GpuDirectUsers, GpuTraffic
from ckptprof.detect.world.host.host_memory import HostMemoryHistory
from ckptprof.detect.world.host.known_folders import KnownFolders
from ckptprof.detect.world.jobs import Jobs
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.process_counters import ProcessHistories, ProcessHistory
from ckptprof.detect.world.process_usage import ProcessUsage
from ckptprof.detect.world.processes import key_of
from ckptprof.detect.world.recording_clock import RecordingClock
from ckptprof.detect.world.starvation import Starvation
from ckptprof.detect.world.thread_histories import ThreadHistories
from ckptprof.detect.world.trace_health import TraceHealthHistory
from ckptprof.detect.world.training_threads import TrainingThreads
from ckptprof.frameworks.program_names import GPU_RUNTIMES, NUMERIC_RUNTIMES, TRAINING_RUNTIMES
from ckptprof.recording import Header
from ckptprof_collectors.samples import (
    CgroupMemory,
    ClockSample,
    DirtyPause,
    FileActivity,
    FileFact,
    FileLifeEvent,
    Frame,
    FuseSample,
    MemorySample,
    ProcessExit,
    ProcessInfo,
    ProcessIo,
    ProcessStat,
    SamplerHealth,
    ThreadSample,
    TraceHealth,
)

MAX_HISTORIES = 4096  # more than a sampler observes at once
_ZOMBIE = "Z"  # state of a process that has exited


class World:
    """Processes, threads, jobs, devices and counters. Frames come in order; times are CLOCK_MONOTONIC."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.clock = RecordingClock(header.at_ns, header.wall_ns)
        self.jobs = Jobs(header.monitor_pids)
        self.histories = ProcessHistories()
        self.ended: dict[ProcessKey, int] = {}  # exit times
        self.health = TraceHealthHistory()
        self.starvation = Starvation()
        self.trainers = TrainingThreads(self.jobs)
        self.calls = FileCalls()
        self.threads = ThreadHistories(header.ticks_per_second)
        self.usage = ProcessUsage(header.ticks_per_second, header.page_size)
        self.devices = Devices()
        self.folders = KnownFolders()
        self.gpudirect = GpuDirectUsers()
        self.gpu_traffic = GpuTraffic()
        self.memory = HostMemoryHistory()
        self.fuse = FuseMounts(header.ticks_per_second)
        self.recording_end_ns: int | None = None  # when the recording ended
        self._read_ns = {"processes": header.at_ns}  # when each collector was read last

    @property
    def counted_ns(self) -> int:
        """Time of the last frame in which the counters of processes were read."""
        return self._read_ns["processes"]

    def ingest(self, frame: Frame) -> FrameSamples:
        """Ingest a frame and return its samples; then files use theirs, and `ingest_exits` follows."""
        self.clock.update(frame.at_ns, frame.wall_ns)
        samples = FrameSamples(frame, self._read_ns)
        samples.replace_samples(FileFact, self.clock.unset_stamps)
        for kernel_clock in samples.by_kind(ClockSample):
            self.clock.record_kernel_state(frame.at_ns, kernel_clock)
        self.devices.ingest(samples)
        self.gpudirect.ingest(samples)
        self.gpu_traffic.ingest(samples)
        for info in samples.by_kind(ProcessInfo):
            self.jobs.observe(info)
        for exited in samples.by_kind(ProcessExit):
            self._add_to_parent((exited.pid, exited.start_ticks), frame.at_ns)
        self._ingest_counters(samples, were_read="processes" in frame.read)
        for pause in samples.by_kind(DirtyPause):
            self.usage.record_pause(frame.at_ns, samples.unchanged_ns("trace"), pause)
        for activity in samples.by_kind(FileActivity):
            self.jobs.record_traced((activity.pid, activity.start_ticks), activity.comm, activity.parent_pid)
        for event in samples.by_kind(FileLifeEvent):
            self.calls.observe(event)
        for memory in samples.by_kind(MemorySample):
            self.memory.observe(frame.at_ns, memory)
        self.fuse.ingest_daemons(samples)
        for waiting in samples.by_kind(FuseSample):
            self.fuse.observe(frame.at_ns, waiting)
        for thread_sample in samples.by_kind(ThreadSample):
            self.threads.observe(frame.at_ns, thread_sample)
        self._ingest_health(samples)
        self._read_ns = self._read_ns | dict.fromkeys(frame.read, frame.at_ns)
        return samples

    def _ingest_health(self, samples: FrameSamples) -> None:
        for trace in samples.by_kind(TraceHealth):
            self.health.observe(samples.at_ns, trace)
        for sampler in samples.by_kind(SamplerHealth):
            self.starvation.observe(samples.at_ns, sampler)

    def _ingest_counters(self, samples: FrameSamples, *, were_read: bool) -> None:
        at_ns = samples.at_ns
        ios = {(io.pid, io.start_ticks): io for io in samples.by_kind(ProcessIo)}
        stats = {(stat.pid, stat.start_ticks): stat for stat in samples.by_kind(ProcessStat)}
        for cgroup in samples.by_kind(CgroupMemory):
            self.usage.record_limit(at_ns, cgroup)
        for process, stat in stats.items():
            self.usage.observe(at_ns, samples.counted_before_ns(process), stat)
            if stat.state == _ZOMBIE and stat.threads <= 1:  # its parent may never wait for it
                self.ended.setdefault(process, at_ns)
        for process in ios.keys() | stats.keys() if were_read else ():
            history = self.histories.get(process)
            if history is None:
                born_ns = self.born_ns(process)
                is_new = self.header.at_ns <= born_ns < at_ns
                history = self.histories[process] = ProcessHistory(born_ns=born_ns if is_new else None)
            unchanged_ns = samples.counted_before_ns(process)
            history.observe(at_ns, unchanged_ns, ios.get(process), stats.get(process), self.header.ticks_per_second)

    def ingest_exits(self, samples: FrameSamples) -> None:
        """Ingest the exits in a frame, and the samples of training threads."""
        for exited in samples.by_kind(ProcessExit):
            process = (exited.pid, exited.start_ticks)
            self.jobs.record_exit(process)
            self.ended.setdefault(process, samples.at_ns)
            self.devices.disks.record_exit(exited.pid, samples.at_ns)
        self.trainers.ingest(samples)

    def _add_to_parent(self, process: ProcessKey, at_ns: int) -> None:
        """Add the counters of an exited child to its parent, as the kernel does when the parent waits for it."""
        parent = self.jobs.parent(process)
        counters = self.histories[process].last_io
        if counters is not None and parent is not None and parent in self.histories:
            self.histories[parent].add_child_counters(at_ns, counters)

    def runtimes(self, processes: list[ProcessKey]) -> frozenset[str] | None:
        """Names of the libraries loaded by some processes, or by the parents of short-lived forks; None: unknown."""
        infos = [info for process in processes if (info := self.jobs.own_or_forker_info(process)) is not None]
        return frozenset(name for info in infos for name in info.runtimes) if infos else None

    def trains(self, processes: list[ProcessKey]) -> bool:
        """Whether one of them has a training library loaded, uses a GPU, or has a rank."""
        loaded = self.runtimes(processes) or frozenset()
        return bool(loaded & (TRAINING_RUNTIMES | GPU_RUNTIMES)) or any(
            self.jobs.rank(process) is not None for process in processes
        )

    def has_no_ml_library(self, processes: list[ProcessKey]) -> bool:
        """Whether they were described, and none has any machine-learning library loaded."""
        loaded = self.runtimes(processes)
        return loaded is not None and not loaded & (TRAINING_RUNTIMES | GPU_RUNTIMES | NUMERIC_RUNTIMES)

    def may_save(self, process: ProcessKey) -> bool:
        """Whether it has a library to save with or trains, and did not start the ranks that do."""
        has_means = bool(self.runtimes([process])) or self.trains([process])
        return has_means and not self.jobs.starts_ranks(process)

    def may_restore(self, process: ProcessKey) -> bool:
        """Whether it has a library that can load a checkpoint, and is no tool."""
        loaded = self.runtimes([process])
        return bool(loaded and loaded & (TRAINING_RUNTIMES | GPU_RUNTIMES | NUMERIC_RUNTIMES)) and not (
            self.jobs.is_tool(process)
        )

    def starters(self, process: ProcessKey) -> list[ProcessKey]:
        """List the processes that started it, the nearest first, without tools."""
        info = self.jobs.info(process)
        above = map(key_of, self.jobs.ancestors(info)[1:] if info is not None else ())
        return [one for one in above if not self.jobs.is_tool(one)]

    def programs(self, processes: list[ProcessKey]) -> frozenset[str]:
        """Programs that they run, as far as described."""
        infos = (self.jobs.info(process) for process in processes)
        return frozenset(info.program for info in infos if info is not None)

    def job_processes(self, process: ProcessKey) -> list[ProcessKey]:
        """List the observed processes of its job, without tools."""
        job = self.jobs.job_of(process)
        same = (other for other in self.histories if self.jobs.job_of(other) == job)
        return [other for other in same if not self.jobs.is_tool(other)]

    def born_ns(self, process: ProcessKey) -> int:
        """Start of a process by the boot clock, which goes on while a host is suspended."""
        return process[1] * 1_000_000_000 // max(1, self.header.ticks_per_second)

    def died_ns(self, process: ProcessKey) -> int | None:
        """Exit of a process, unless it only served its parent, which goes on; None: alive."""
        ended_ns = self.ended.get(process)
        parent = self.jobs.parent(process)
        if ended_ns is None or parent is None or parent in self.ended:
            return ended_ns
        info = self.jobs.info(parent)
        trains = info is not None and bool(info.runtimes)
        return None if trains and self.jobs.rank(parent) == self.jobs.rank(process) else ended_ns

    @property
    def interval_count(self) -> int:
        """Number of retained intervals of all processes."""
        return sum(len(history.ends_ns) for history in self.histories.values())

    def drop_stalest(self) -> list[ProcessKey]:
        """Drop the half of too many processes that was read longest ago; return them. Their exits are not reported."""
        if len(self.histories) <= MAX_HISTORIES:
            return []
        by_age = sorted(self.histories, key=lambda key: self.histories[key].last_ns)
        dropped = by_age[: MAX_HISTORIES // 2]
        for process in dropped:
            del self.histories[process]
            self.ended.pop(process, None)
        return dropped

    def forget_before(self, at_ns: int, open_since: Iterable[tuple[ProcessKey, int]]) -> int:
        """Drop older intervals, except of processes in `open_since`, from the first observation of their open file on.

        Return the time from which intervals are retained. Logs and data sets are open for days: if too many intervals
        are retained for these, they are dropped, too.
        """
        dropped = [process for process, ended_ns in self.ended.items() if ended_ns < at_ns]
        for process in dropped:
            del self.ended[process]
            self.histories.pop(process, None)
        since_ns: dict[ProcessKey, int] = {}
        for process, first_ns in open_since:
            since_ns[process] = min(since_ns.get(process, at_ns), first_ns)
        if self.interval_count > MAX_SAMPLES:
            since_ns = {}
        for process, history in self.histories.items():
            history.forget_before(since_ns.get(process, at_ns))
        self.jobs.forget(dropped)
        self.trainers.forget_before(at_ns)
        self.calls.forget_before(at_ns)
        self.threads.forget_before(at_ns)
        self.usage.forget_before(at_ns)
        self.devices.disks.forget_before(at_ns)
        self.starvation.forget_before(at_ns)
        return min(since_ns.values(), default=at_ns)
