"""The state behind /metrics: fed with frames, checkpoints and the recorder's own health, rendered on each scrape.

Series are bounded whatever the machine does: 64 disks, 64 interfaces, 64 RDMA ports, 24 frameworks, 32 collectors.
No label ever holds a path, a pid or a job.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import ckptprof
from ckptprof.export import families
from ckptprof.export.checkpoints import FRAMEWORKS_CAP, UNKNOWN, CheckpointFamilies
from ckptprof.export.exposition import MILLIONTHS, Labelled, Names, render_scalars
from ckptprof.export.families import RecorderHealth
from ckptprof.export.tables import About, Table
from ckptprof.model import Checkpoint
from ckptprof_collectors.samples import (
    CollectorFault,
    DeviceInfo,
    DiskSample,
    Frame,
    MemorySample,
    NicInfo,
    NicSample,
    RdmaInfo,
    RdmaSample,
    SamplerHealth,
    TraceHealth,
    Unavailable,
)

ENTITIES_CAP = 64  # per kind of entity
COLLECTORS_CAP = 32
_HIDDEN_KINDS = frozenset({"partition", "ram"})  # their bytes are the disk's, or no storage's

__all__ = ["FRAMEWORKS_CAP", "Metrics", "RecorderHealth"]


class Metrics:
    """What a scrape shows; every method may be called from any thread."""

    def __init__(self, *, version: str = ckptprof.__version__) -> None:
        """Start with nothing seen but the counters of saves and restores at zero."""
        self._lock = threading.Lock()
        self._disks = _disk_table()
        self._nics = _nic_table()
        self._rdma = _rdma_table()
        self._checkpoints = CheckpointFamilies()
        self._collectors = _CollectorFamilies()
        self._memory: MemorySample | None = None
        self._sampler: SamplerHealth | None = None
        self._trace: TraceHealth | None = None
        self._recorder = RecorderHealth()
        self._build = Labelled("build_info", "The version that runs; always 1.", ("version",), kind="gauge")
        self._build.set(1, version)
        self._active = Labelled(
            "trace_active", "1 while every read and write is traced, 0 while polled.", (), kind="gauge"
        )
        self._dropped = Labelled(
            "series_dropped_total", "Names over the cap of their kind, shown as `other`.", ("kind",), kind="counter"
        )
        self._cpu = Labelled(
            "cpu_seconds_total", "CPU time of ckptprof itself.", ("process",), kind="counter", form=MILLIONTHS
        )
        self._resident = Labelled("resident_memory_bytes", "Memory of ckptprof itself.", ("process",), kind="gauge")
        self._handlers: dict[type, Callable[..., None]] = {
            DiskSample: self._disk,
            NicSample: self._nic,
            RdmaSample: lambda sample, at_ns: self._rdma.update(sample.port, sample, at_ns),
            MemorySample: self._set_memory,
            DeviceInfo: self._device_info,
            NicInfo: self._nic_info,
            RdmaInfo: self._rdma_info,
            SamplerHealth: self._set_sampler,
            TraceHealth: self._set_trace,
            CollectorFault: lambda fault, _: self._collectors.fault(fault.collector),
            Unavailable: lambda missing, _: self._collectors.unavailable(missing.collector),
        }

    def observe(self, frame: Frame) -> None:
        """Take the newest values out of a frame."""
        with self._lock:
            self._collectors.read(frame.read)
            for sample in frame.samples:
                handle = self._handlers.get(type(sample))
                if handle is not None:
                    handle(sample, frame.at_ns)

    def level(self, level: str) -> None:
        """Take note that a sampler has begun, and at which level; its counters begin at zero."""
        with self._lock:
            self._trace = None
            self._active.set(int(level == "trace"))

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        """Count a checkpoint; of one that is told again (the same uid) only what is new."""
        with self._lock:
            self._checkpoints.add(checkpoint)

    def recorder(self, health: RecorderHealth) -> None:
        """Take the recorder's newest account of itself."""
        with self._lock:
            self._recorder = health

    def render(self) -> bytes:
        """Return everything in the text format 0.0.4."""
        out: list[bytes] = []
        with self._lock:
            self._own_cost()
            self._build.render(out)
            self._checkpoints.render(out)
            self._disks.render(out)
            self._nics.render(out)
            self._rdma.render(out)
            if self._memory is not None:
                render_scalars(families.MEMORY, self._memory, out)
            if self._sampler is not None:
                render_scalars(families.SAMPLER, self._sampler, out)
            self._active.render(out)
            if self._trace is not None:
                render_scalars(families.TRACE, self._trace, out)
            render_scalars(families.RECORDER, self._recorder, out)
            self._collectors.render(out)
            for family in (self._cpu, self._resident, self._dropped):
                family.render(out)
        return b"".join(out)

    def _own_cost(self) -> None:
        sampler = self._sampler
        for process, cpu_seconds, resident in (
            ("recorder", self._recorder.cpu_seconds, self._recorder.resident_bytes),
            ("sampler", sampler.cpu_ns * 1e-9 if sampler else None, sampler.rss_bytes if sampler else None),
        ):
            if cpu_seconds is not None:
                self._cpu.set(cpu_seconds, process)
            if resident is not None:
                self._resident.set(resident, process)
        for kind, dropped in (
            ("disk", self._disks.dropped),
            ("network", self._nics.dropped),
            ("infiniband", self._rdma.dropped),
            ("framework", self._checkpoints.frameworks.refused),
            ("collector", self._collectors.names.refused),
        ):
            self._dropped.set(dropped, kind)

    def _disk(self, sample: DiskSample, at_ns: int) -> None:
        # What never moved a byte is an empty loop or ram device: a hundred series of zeros on many hosts.
        if sample.read_sectors or sample.write_sectors:
            self._disks.update(sample.device, sample, at_ns)

    def _nic(self, sample: NicSample, at_ns: int) -> None:
        self._nics.update(sample.interface, sample, at_ns)

    def _set_memory(self, sample: MemorySample, _: int) -> None:
        self._memory = sample

    def _set_sampler(self, sample: SamplerHealth, _: int) -> None:
        self._sampler = sample
        self._collectors.durations(sample.read_ns)

    def _set_trace(self, sample: TraceHealth, _: int) -> None:
        self._trace = sample
        self._active.set(int(bool(sample.programs)))  # one that has failed says so by having none

    def _device_info(self, info: DeviceInfo, _: int) -> None:
        rank = 2 if info.countable else 0 if info.kind in _HIDDEN_KINDS else 1
        labels = (("kind", info.kind), ("transport", info.transport or UNKNOWN), ("countable", _word(info.countable)))
        self._disks.describe(info.device, About(rank, labels))

    def _nic_info(self, info: NicInfo, _: int) -> None:
        speed = info.speed_bits_per_second
        labels = (("countable", _word(info.countable)),)
        about = About(2 if info.countable else 1, labels, None if speed is None else speed // 8)
        self._nics.describe(info.interface, about)

    def _rdma_info(self, info: RdmaInfo, _: int) -> None:
        rate = info.rate_bits_per_second
        labels = (("link_layer", info.link_layer or UNKNOWN),)
        self._rdma.describe(info.port, About(2, labels, None if rate is None else rate // 8))


def _word(value: object) -> str:
    return "true" if value else "false"


def _device_label(name: str) -> tuple[tuple[str, str], ...]:
    return (("device", name),)


def _port_labels(name: str) -> tuple[tuple[str, str], ...]:
    device, _, port = name.rpartition("/")
    return (("device", device), ("port", port))


def _disk_table() -> Table[DiskSample]:
    return Table(
        families.DISK,
        cap=ENTITIES_CAP,
        labels=_device_label,
        info=("disk_info", "What the device is; countable devices add up without counting a byte twice."),
    )


def _nic_table() -> Table[NicSample]:
    return Table(
        families.NIC,
        cap=ENTITIES_CAP,
        labels=_device_label,
        info=("network_info", "What the interface is; countable ones add up without counting a byte twice."),
        speed=("network_speed_bytes", "Speed of the link in bytes per second."),
    )


def _rdma_table() -> Table[RdmaSample]:
    return Table(
        families.RDMA,
        cap=ENTITIES_CAP,
        labels=_port_labels,
        info=("infiniband_info", "What the port is."),
        speed=("infiniband_rate_bytes_per_second", "Rate of the port in bytes per second."),
    )


class _CollectorFamilies:
    """How each collector fares."""

    def __init__(self) -> None:
        self.names = Names(COLLECTORS_CAP)
        label = ("collector",)
        self._success = Labelled("collector_success", "1 if the last read went well.", label, kind="gauge")
        self._faults = Labelled("collector_faults_total", "Reads that failed.", label, kind="counter")
        self._seconds = Labelled(
            "collector_duration_seconds_total", "Time spent in reading.", label, kind="counter", form=MILLIONTHS
        )
        self._missing = Labelled("collector_unavailable", "1 if it cannot work on this host.", label, kind="gauge")

    def read(self, collectors: tuple[str, ...]) -> None:
        for collector in collectors:
            name = self.names.admit(collector)
            self._success.set(1, name)
            self._faults.add(0, name)

    def fault(self, collector: str) -> None:
        name = self.names.admit(collector)
        self._success.set(0, name)
        self._faults.add(1, name)

    def unavailable(self, collector: str) -> None:
        self._missing.set(1, self.names.admit(collector))

    def durations(self, read_ns: dict[str, int]) -> None:
        for collector, nanoseconds in read_ns.items():
            self._seconds.set(nanoseconds * 1e-9, self.names.admit(collector))

    def render(self, out: list[bytes]) -> None:
        for family in (self._success, self._faults, self._seconds, self._missing):
            family.render(out)
