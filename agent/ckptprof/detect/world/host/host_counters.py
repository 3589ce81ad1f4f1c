"""The recent past of devices, links, memory, threads, calls and processes of the host, kept as frames come in."""

from __future__ import annotations

from ckptprof.detect.world.file_calls import FileCalls
from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.detect.world.host.devices import Devices
from ckptprof.detect.world.host.host_memory import HostMemory
from ckptprof.detect.world.host.mount_counters import FuseMounts
from ckptprof.detect.world.process_usage import ProcessUsage
from ckptprof.detect.world.threads import ThreadLooks
from ckptprof_collectors.samples import (
    DirtyPause,
    DiskSample,
    Frame,
    FuseSample,
    MemorySample,
    NicSample,
    QdiscSample,
    RdmaSample,
    Sample,
)

_COLLECTORS: dict[type, str] = {
    DiskSample: "disks",
    NicSample: "nics",
    RdmaSample: "rdma",
    QdiscSample: "qdiscs",
    DirtyPause: "trace",
}
_PROCESSES = "processes"


class HostCounters:
    """The recent past of threads, calls, processes, devices, links and memory; each part is bounded."""

    def __init__(self, ticks_per_second: int = 100) -> None:
        """Start with nothing."""
        self.calls = FileCalls()
        self.threads = ThreadLooks(ticks_per_second)
        self.usage = ProcessUsage(ticks_per_second)
        self.devices = Devices()
        self.disks, self.links = self.devices.disks, self.devices.links
        self.memory = HostMemory()
        self.fuse = FuseMounts()
        self._read_ns: dict[str, int] = {}  # when each collector was read last: what it did not tell had not changed

    def __len__(self) -> int:
        """Return how many things are held of processes and threads."""
        return len(self.calls) + len(self.threads) + len(self.usage)

    def observe(self, at_ns: int, sample: Sample) -> None:
        """Take one sample that tells of no process's files."""
        unchanged_ns = self._read_ns.get(_COLLECTORS.get(type(sample), ""), 0)
        self.devices.now_ns = at_ns
        if isinstance(sample, (DiskSample, NicSample)):  # most of them are
            self.devices.observe(at_ns, unchanged_ns, sample)
        elif isinstance(sample, MemorySample):
            self.memory.observe(at_ns, sample)
        elif isinstance(sample, DirtyPause):
            self.usage.pause(at_ns, unchanged_ns, sample)
        elif isinstance(sample, FuseSample):
            self.fuse.observe(at_ns, sample)
        else:
            self.devices.observe(at_ns, unchanged_ns, sample)

    def take(self, frame: Frame, tick: FrameSamples) -> None:
        """Take what a frame tells of processes and threads; its other samples are to be observed before."""
        unchanged_ns = self._read_ns.get(_PROCESSES, 0)
        for stat in tick.stats.values():
            self.usage.observe(frame.at_ns, unchanged_ns, stat)
        for look in tick.looks:
            self.threads.observe(frame.at_ns, look)
        for gone in tick.exits:
            self.disks.end(gone.pid, frame.at_ns)
        for name in frame.read:
            self._read_ns[name] = frame.at_ns

    def forget_before(self, at_ns: int) -> None:
        """Drop what is known of threads and processes of whom nothing was told since."""
        self.calls.forget_before(at_ns)
        self.threads.forget_before(at_ns)
        self.usage.forget_before(at_ns)
        self.disks.forget_before(at_ns)
