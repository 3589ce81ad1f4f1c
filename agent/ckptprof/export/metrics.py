"""The state behind /metrics, updated by frames, checkpoints and the recorder's health.

The number of series is bounded: 64 disks, 64 interfaces, 64 RDMA ports, 24 frameworks, 32 collectors. No label contains
a path, a pid or a job, except with --job-names: then 16 jobs and 16 runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, disable_created_metrics, values
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

import ckptprof
from ckptprof.export import families
from ckptprof.export.checkpoints import DURATION_BOUNDS_SECONDS, FRAMEWORKS_CAP, CheckpointFamilies
from ckptprof.export.columns import Labels, MetricColumn, collect, unlabelled
from ckptprof.export.entity_tables import About, EntityTable
from ckptprof.export.labels import UNKNOWN, Names, clean
from ckptprof.export.newest_saves import Runs
from ckptprof.export.recorder_health import CollectorHealth, RecorderHealth
from ckptprof.model import Checkpoint, Kind
from ckptprof_collectors.counters import CounterGroup
from ckptprof_collectors.samples import (
    COUNTED,
    CollectorFault,
    DeviceInfo,
    DiskSample,
    EntityGone,
    Frame,
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
_HIDDEN_KINDS = frozenset({"partition", "ram"})  # their bytes are those of a disk, or not on storage

# Counters are declared with their samples; the info and speed families of entities (`describe`) are here.
SHOWN = tuple(kind for kind in COUNTED if any(column.metric for column in kind.counted.columns))
_ABOUT: dict[type, dict[str, tuple[str, str]]] = {
    DiskSample: {
        "info": ("disk_info", "Properties of the device; bytes of countable devices can be summed."),
    },
    NicSample: {
        "info": ("network_info", "Properties of the interface; bytes of countable interfaces can be summed."),
        "speed": ("network_speed_bytes", "Speed of the link in bytes per second."),
    },
    RdmaSample: {
        "info": ("infiniband_info", "Properties of the port."),
        "speed": ("infiniband_rate_bytes_per_second", "Rate of the port in bytes per second."),
    },
}

__all__ = ["FRAMEWORKS_CAP", "Metrics", "RecorderHealth"]

disable_created_metrics()  # type: ignore[no-untyped-call]
values.ValueClass = values.MutexValue  # never files, even if the environment sets PROMETHEUS_MULTIPROC_DIR

JOBS_CAP = 16
_INFO = MetricColumn[Labels](
    "training_job_info", "The jobs with the latest checkpoints; always 1.", lambda _: 1, kind="gauge"
)


class JobNames:
    """The last JOBS_CAP jobs; `dropped` counts evictions."""

    def __init__(self) -> None:
        self.dropped = 0
        self._jobs: dict[str, Labels] = {}  # least recent first

    def add(self, checkpoint: Checkpoint) -> None:
        """Update the job of a save or restore; unknown values keep the previous ones."""
        if checkpoint.kind is Kind.COPY:
            return
        name = clean(checkpoint.job)
        labels = self._jobs.pop(name, {"training_job": name, "framework": UNKNOWN, "ranks": UNKNOWN}).copy()
        if checkpoint.framework is not None:
            labels["framework"] = clean(checkpoint.framework)
        if checkpoint.ranks is not None:
            labels["ranks"] = str(checkpoint.ranks)
        if len(self._jobs) >= JOBS_CAP:
            del self._jobs[next(iter(self._jobs))]
            self.dropped += 1
        self._jobs[name] = labels

    def collect(self) -> Iterator[Metric]:
        """Yield the family of jobs."""
        return collect([_INFO], [(labels, labels) for labels in self._jobs.values()])


class Metrics(Collector):
    """The collector of a scrape; thread-safe."""

    def __init__(self, *, job_names: bool = False, minimal: bool = False) -> None:
        """`minimal`: export only `families.MINIMAL`."""
        self._lock = threading.Lock()
        self._registry = CollectorRegistry()
        build = Gauge("ckptprof_build_info", "The running version; always 1.", ["version"], registry=self._registry)
        build.labels(ckptprof.__version__).set(1)
        self._tables = {kind: _table(kind) for kind in SHOWN if kind.counted.name}
        self._leaving = {kind.counted.gone_entity: table for kind, table in self._tables.items()}
        self._hosts = {kind: families.declared(kind.counted) for kind in SHOWN if not kind.counted.name}
        self._newest: dict[type, Any] = {}  # of the host
        self._recorded: list[Metric] = []  # families of checkpoints; empty: not collected since the last one
        self._minimal = minimal
        bounds = families.MINIMAL_BOUNDS_SECONDS if minimal else DURATION_BOUNDS_SECONDS
        self._checkpoints = CheckpointFamilies(self._registry, bounds)
        self._jobs = JobNames() if job_names else None
        self._runs = Runs() if job_names else None
        self._collectors = _Collectors()
        self._sampler: SamplerHealth | None = None
        self._trace: TraceHealth | None = None
        self._tracing: bool | None = None  # None: no sampler has started
        self._recorder = RecorderHealth()
        self._handlers: dict[type, Callable[..., None]] = {
            **{
                kind: partial(self._update, table, attrgetter(kind.counted.name[0]))
                for kind, table in self._tables.items()
            },
            **dict.fromkeys(self._hosts, self._set_newest),
            DiskSample: self._disk,
            DeviceInfo: self._device_info,
            NicInfo: self._nic_info,
            RdmaInfo: self._rdma_info,
            EntityGone: self._gone,
            SamplerHealth: self._set_sampler,
            TraceHealth: self._set_trace,
            CollectorFault: lambda fault: self._collectors.fault(fault.collector),
            Unavailable: lambda missing: self._collectors.set_unavailable(missing.collector),
        }

    def observe(self, frame: Frame) -> None:
        """Update the metrics from the samples of a frame."""
        with self._lock:
            self._collectors.record_reads(frame.read)
            for sample in frame.samples:
                handle = self._handlers.get(type(sample))
                if handle is not None:
                    handle(sample)
            for kind, table in self._tables.items():
                if kind.counted.collector in frame.read:
                    table.complete()

    def level(self, level: str) -> None:
        """Record the start of a sampler, at a level; its counters start at zero."""
        with self._lock:
            self._trace = None
            self._tracing = level == "trace"
            for table in self._tables.values():
                table.start()

    def coverage(self) -> tuple[bool | None, tuple[str, ...]]:
        """Return (the trace is attached, its latest limitations); None: no sampler has started."""
        with self._lock:
            return self._tracing, self._trace.degraded if self._trace is not None else ()

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        """Count a checkpoint, or the difference of a revision (same uid)."""
        with self._lock:
            self._recorded = []
            is_first = self._checkpoints.add(checkpoint)
            if self._jobs is not None:
                self._jobs.add(checkpoint)
            if self._runs is not None:
                self._runs.add(checkpoint, is_first=is_first)

    def recorder(self, health: RecorderHealth) -> None:
        """Update the recorder's health."""
        with self._lock:
            self._recorder = health

    def collect(self) -> list[Metric]:
        """Return all families; the objects are reused by the next call, so only one thread may render them."""
        with self._lock:
            found = [one for one in self._families() if not self._minimal or one.name in families.MINIMAL]
            return found + [one for named in (self._jobs, self._runs) if named is not None for one in named.collect()]

    def _families(self) -> Iterator[Metric]:
        self._recorded = self._recorded or list(self._registry.collect())
        yield from self._recorded
        for table in self._tables.values():
            yield from table.collect()
        for kind, columns in self._hosts.items():
            yield from collect(columns, unlabelled(self._newest.get(kind)))
        yield from collect(families.SAMPLER, unlabelled(self._sampler))
        yield from collect(families.ACTIVE, unlabelled(self._tracing))
        yield from collect(families.TRACE, unlabelled(self._trace))
        yield from collect(families.RECORDER, unlabelled(self._recorder))
        yield from self._collectors.collect()
        yield from collect(families.PROCESS, list(self._processes()))
        yield from collect(families.DROPPED, self._drops())

    def _processes(self) -> Iterator[tuple[Labels, tuple[float | None, int | None]]]:
        recorder, sampler = self._recorder, self._sampler
        yield {"process": "recorder"}, (recorder.cpu_seconds, recorder.resident_bytes)
        if sampler is not None:
            yield {"process": "sampler"}, (sampler.cpu_ns / 1e9, sampler.rss_bytes)

    def _drops(self) -> list[tuple[Labels, int]]:
        dropped = {
            **{table.subsystem: table.dropped for table in self._tables.values()},
            "framework": self._checkpoints.frameworks.refused,
            "storage": self._checkpoints.storages.refused,
            "collector": self._collectors.names.refused,
        }
        if self._jobs is not None:
            dropped["job"] = self._jobs.dropped
        if self._runs is not None:
            dropped["run"] = self._runs.dropped
        return [({"kind": kind}, count) for kind, count in dropped.items()]

    def _update(self, table: EntityTable[Any], name: Callable[[Any], str], sample: Any) -> None:
        table.update(name(sample), sample)

    def _gone(self, gone: EntityGone) -> None:
        table = self._leaving.get(gone.entity)
        if table is not None:
            table.remove(gone.name)

    def _set_newest(self, sample: Any) -> None:
        self._newest[type(sample)] = sample

    def _disk(self, sample: DiskSample) -> None:
        # Skip devices without any transfer: loop and ram devices would add a hundred series of zeros on many hosts.
        if sample.read_sectors or sample.write_sectors:
            self._tables[DiskSample].update(sample.device, sample)

    def _set_sampler(self, sample: SamplerHealth) -> None:
        self._sampler = sample
        self._collectors.durations(sample.read_ns)

    def _set_trace(self, sample: TraceHealth) -> None:
        self._trace = sample
        self._tracing = bool(sample.programs)  # a failed trace has no programs

    def _device_info(self, info: DeviceInfo) -> None:
        rank = 2 if info.is_countable else 0 if info.kind in _HIDDEN_KINDS else 1
        labels = {"kind": info.kind, "transport": info.transport or UNKNOWN, "countable": _word(info.is_countable)}
        self._tables[DiskSample].describe(info.device, About(rank, labels))

    def _nic_info(self, info: NicInfo) -> None:
        speed = info.speed_bits_per_second
        labels = {"countable": _word(info.is_countable)}
        about = About(2 if info.is_countable else 1, labels, None if speed is None else speed // 8)
        self._tables[NicSample].describe(info.interface, about)

    def _rdma_info(self, info: RdmaInfo) -> None:
        rate = info.rate_bits_per_second
        labels = {"link_layer": info.link_layer or UNKNOWN}
        self._tables[RdmaSample].describe(info.port, About(2, labels, None if rate is None else rate // 8))


def _word(value: object) -> str:
    return "true" if value else "false"


def _labels(names: tuple[str, ...], name: str) -> Labels:
    """Return the labels of an entity; the port `mlx5_0/1` has two."""
    parts = name.rsplit("/", len(names) - 1)
    return dict(zip(names, ["", *parts] if len(parts) < len(names) else parts, strict=True))


def _table(kind: Any) -> EntityTable[Any]:
    counted: CounterGroup = kind.counted
    labels = partial(_labels, counted.labels)
    return EntityTable(families.declared(counted), cap=ENTITIES_CAP, labels=labels, **_ABOUT.get(kind, {}))


class _Collectors:
    def __init__(self) -> None:
        self.names = Names(COLLECTORS_CAP)
        self._health: dict[str, CollectorHealth] = {}

    def _of(self, collector: str) -> CollectorHealth:
        name = self.names.admit(collector)
        return self._health.get(name) or self._health.setdefault(name, CollectorHealth())

    def record_reads(self, collectors: tuple[str, ...]) -> None:
        for collector in collectors:
            previous = self._health.get(collector)
            if previous is None or not previous.success:
                health = self._of(collector)
                health.success = 1
                health.faults = health.faults or 0

    def fault(self, collector: str) -> None:
        health = self._of(collector)
        health.success = 0
        health.faults = (health.faults or 0) + 1

    def set_unavailable(self, collector: str) -> None:
        self._of(collector).unavailable = 1

    def durations(self, read_ns: dict[str, int]) -> None:
        for collector, nanoseconds in read_ns.items():
            self._of(collector).seconds = nanoseconds / 1e9

    def collect(self) -> Iterator[Metric]:
        return collect(families.COLLECTOR, [({"collector": name}, health) for name, health in self._health.items()])
