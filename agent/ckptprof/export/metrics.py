"""The state behind /metrics: fed with frames, checkpoints and the recorder's own health, collected for each rendering.

Series are bounded whatever the machine does: 64 disks, 64 interfaces, 64 RDMA ports, 24 frameworks, 32 collectors.
No label ever holds a path, a pid or a job, unless the names of jobs are asked for: then of 16 jobs and 16 runs.
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
from ckptprof.export.columns import Column, Labels, collect, unlabelled
from ckptprof.export.health import CollectorHealth, RecorderHealth
from ckptprof.export.labels import UNKNOWN, Names, clean
from ckptprof.export.newest import Runs
from ckptprof.export.tables import About, Table
from ckptprof.model import Checkpoint, Kind
from ckptprof_collectors.counted import Counted
from ckptprof_collectors.samples import (
    COUNTED,
    CollectorFault,
    DeviceInfo,
    DiskSample,
    Frame,
    Gone,
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

# What a machine's sample shows is declared beside it; what its other samples say of an entity (`describe`) is here.
SHOWN = tuple(kind for kind in COUNTED if any(column.metric for column in kind.counted.columns))
_ABOUT: dict[type, dict[str, tuple[str, str]]] = {
    DiskSample: {
        "info": ("disk_info", "What the device is; countable devices add up without counting a byte twice."),
    },
    NicSample: {
        "info": ("network_info", "What the interface is; countable ones add up without counting a byte twice."),
        "speed": ("network_speed_bytes", "Speed of the link in bytes per second."),
    },
    RdmaSample: {
        "info": ("infiniband_info", "What the port is."),
        "speed": ("infiniband_rate_bytes_per_second", "Rate of the port in bytes per second."),
    },
}

__all__ = ["FRAMEWORKS_CAP", "Metrics", "RecorderHealth"]

disable_created_metrics()  # type: ignore[no-untyped-call]
values.ValueClass = values.MutexValue  # never files, also where the environment of a job names PROMETHEUS_MULTIPROC_DIR

JOBS_CAP = 16
_INFO = Column[Labels](
    "training_job_info", "The jobs whose checkpoints were told last; always 1.", lambda _: 1, kind="gauge"
)


class JobNames:
    """The last JOBS_CAP jobs; `dropped` counts how often one gave its place to another."""

    def __init__(self) -> None:
        self.dropped = 0
        self._jobs: dict[str, Labels] = {}  # the one told longest ago first

    def add(self, checkpoint: Checkpoint) -> None:
        """Take the job of a save or restore; what this one does not tell of it stays as it was."""
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
        """Yield the family, if there is a job."""
        return collect([_INFO], [(labels, labels) for labels in self._jobs.values()])


class Metrics(Collector):
    """What a scrape shows; every method may be called from any thread."""

    def __init__(self, *, job_names: bool = False, minimal: bool = False) -> None:
        """Start with nothing seen but the counters of saves and restores at zero; `minimal`: only what families say."""
        self._lock = threading.Lock()
        self._registry = CollectorRegistry()
        build = Gauge("ckptprof_build_info", "The version that runs; always 1.", ["version"], registry=self._registry)
        build.labels(ckptprof.__version__).set(1)
        self._tables = {kind: _table(kind) for kind in SHOWN if kind.counted.name}
        self._leaving = {kind.counted.gone: table for kind, table in self._tables.items()}
        self._hosts = {kind: families.declared(kind.counted) for kind in SHOWN if not kind.counted.name}
        self._newest: dict[type, Any] = {}  # of the host
        self._minimal = minimal
        bounds = families.MINIMAL_BOUNDS_SECONDS if minimal else DURATION_BOUNDS_SECONDS
        self._checkpoints = CheckpointFamilies(self._registry, bounds)
        self._jobs = JobNames() if job_names else None
        self._runs = Runs() if job_names else None
        self._collectors = _Collectors()
        self._sampler: SamplerHealth | None = None
        self._trace: TraceHealth | None = None
        self._tracing: bool | None = None  # None: no sampler has begun
        self._recorder = RecorderHealth()
        self._handlers: dict[type, Callable[..., None]] = {
            **{
                kind: partial(self._update, table, attrgetter(kind.counted.name[0]))
                for kind, table in self._tables.items()
            },
            **dict.fromkeys(self._hosts, self._keep),
            DiskSample: self._disk,
            DeviceInfo: self._device_info,
            NicInfo: self._nic_info,
            RdmaInfo: self._rdma_info,
            Gone: self._gone,
            SamplerHealth: self._set_sampler,
            TraceHealth: self._set_trace,
            CollectorFault: lambda fault: self._collectors.fault(fault.collector),
            Unavailable: lambda missing: self._collectors.unavailable(missing.collector),
        }

    def observe(self, frame: Frame) -> None:
        """Take the newest values out of a frame."""
        with self._lock:
            self._collectors.read(frame.read)
            for sample in frame.samples:
                handle = self._handlers.get(type(sample))
                if handle is not None:
                    handle(sample)
            for kind, table in self._tables.items():
                if kind.counted.collector in frame.read:
                    table.complete()

    def level(self, level: str) -> None:
        """Take note that a sampler has begun, and at which level; its counters begin at zero."""
        with self._lock:
            self._trace = None
            self._tracing = level == "trace"
            for table in self._tables.values():
                table.begin()

    def sight(self) -> tuple[bool | None, tuple[str, ...]]:
        """Return whether each call is traced now (None: no sampler has begun), and what it last said it cannot see."""
        with self._lock:
            return self._tracing, self._trace.degraded if self._trace is not None else ()

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        """Count a checkpoint; of one that is told again (the same uid) only what is new."""
        with self._lock:
            is_first = self._checkpoints.add(checkpoint)
            if self._jobs is not None:
                self._jobs.add(checkpoint)
            if self._runs is not None:
                self._runs.add(checkpoint, is_first=is_first)

    def recorder(self, health: RecorderHealth) -> None:
        """Take the recorder's newest account of itself."""
        with self._lock:
            self._recorder = health

    def collect(self) -> list[Metric]:
        """Return all families; their objects are the same in each call, so one thread at a time renders them."""
        with self._lock:
            found = [one for one in self._families() if not self._minimal or one.name in families.MINIMAL]
            return found + [one for named in (self._jobs, self._runs) if named is not None for one in named.collect()]

    def _families(self) -> Iterator[Metric]:
        yield from self._registry.collect()
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
            "collector": self._collectors.names.refused,
        }
        if self._jobs is not None:
            dropped["job"] = self._jobs.dropped
        if self._runs is not None:
            dropped["run"] = self._runs.dropped
        return [({"kind": kind}, count) for kind, count in dropped.items()]

    def _update(self, table: Table[Any], name: Callable[[Any], str], sample: Any) -> None:
        table.update(name(sample), sample)

    def _gone(self, gone: Gone) -> None:
        table = self._leaving.get(gone.entity)
        if table is not None:
            table.remove(gone.name)

    def _keep(self, sample: Any) -> None:
        self._newest[type(sample)] = sample

    def _disk(self, sample: DiskSample) -> None:
        # What never moved a byte is an empty loop or ram device: a hundred series of zeros on many hosts.
        if sample.read_sectors or sample.write_sectors:
            self._tables[DiskSample].update(sample.device, sample)

    def _set_sampler(self, sample: SamplerHealth) -> None:
        self._sampler = sample
        self._collectors.durations(sample.read_ns)

    def _set_trace(self, sample: TraceHealth) -> None:
        self._trace = sample
        self._tracing = bool(sample.programs)  # one that has failed says so by having none

    def _device_info(self, info: DeviceInfo) -> None:
        rank = 2 if info.countable else 0 if info.kind in _HIDDEN_KINDS else 1
        labels = {"kind": info.kind, "transport": info.transport or UNKNOWN, "countable": _word(info.countable)}
        self._tables[DiskSample].describe(info.device, About(rank, labels))

    def _nic_info(self, info: NicInfo) -> None:
        speed = info.speed_bits_per_second
        labels = {"countable": _word(info.countable)}
        about = About(2 if info.countable else 1, labels, None if speed is None else speed // 8)
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


def _table(kind: Any) -> Table[Any]:
    counted: Counted = kind.counted
    labels = partial(_labels, counted.labels)
    return Table(families.declared(counted), cap=ENTITIES_CAP, labels=labels, **_ABOUT.get(kind, {}))


class _Collectors:
    def __init__(self) -> None:
        self.names = Names(COLLECTORS_CAP)
        self._health: dict[str, CollectorHealth] = {}

    def _of(self, collector: str) -> CollectorHealth:
        name = self.names.admit(collector)
        health = self._health.get(name)
        if health is None:
            health = self._health[name] = CollectorHealth()
        return health

    def read(self, collectors: tuple[str, ...]) -> None:
        for collector in collectors:
            known = self._health.get(collector)
            if known is None or not known.success:
                health = self._of(collector)
                health.success = 1
                health.faults = health.faults or 0

    def fault(self, collector: str) -> None:
        health = self._of(collector)
        health.success = 0
        health.faults = (health.faults or 0) + 1

    def unavailable(self, collector: str) -> None:
        self._of(collector).unavailable = 1

    def durations(self, read_ns: dict[str, int]) -> None:
        for collector, nanoseconds in read_ns.items():
            self._of(collector).seconds = nanoseconds / 1e9

    def collect(self) -> Iterator[Metric]:
        return collect(families.COLLECTOR, [({"collector": name}, health) for name, health in self._health.items()])
