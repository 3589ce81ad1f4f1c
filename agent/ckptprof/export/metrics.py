"""The state behind /metrics: fed with frames, checkpoints and the recorder's own health, rendered on each scrape.

Series are bounded whatever the machine does: 64 disks, 64 interfaces, 64 RDMA ports, 24 frameworks, 32 collectors.
No label ever holds a path, a pid or a job, unless the names of jobs are asked for: then of 16 jobs and 16 runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Gauge, disable_created_metrics, values
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.exposition import ALLOWUTF8, generate_latest

import ckptprof
from ckptprof.export import families
from ckptprof.export.checkpoints import DURATION_BOUNDS_SECONDS, FRAMEWORKS_CAP, CheckpointFamilies
from ckptprof.export.columns import Column, Labels, collect, unlabelled
from ckptprof.export.health import CollectorHealth, ProcessHealth, RecorderHealth
from ckptprof.export.jobs import JobNames
from ckptprof.export.labels import UNKNOWN, Names
from ckptprof.export.newest import Runs
from ckptprof.export.page import Encode, Page, Part
from ckptprof.export.tables import About, Table
from ckptprof.model import Checkpoint
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

S = TypeVar("S")

__all__ = ["FRAMEWORKS_CAP", "Metrics", "RecorderHealth"]

disable_created_metrics()  # type: ignore[no-untyped-call]
values.ValueClass = values.MutexValue  # never files, also where the environment of a job names PROMETHEUS_MULTIPROC_DIR


class Metrics:
    """What a scrape shows; every method may be called from any thread."""

    def __init__(self, *, version: str = ckptprof.__version__, job_names: bool = False, minimal: bool = False) -> None:
        """Start with nothing seen but the counters of saves and restores at zero; `minimal`: only what families say."""
        self._lock = threading.Lock()
        self._registry = CollectorRegistry()
        build = Gauge("ckptprof_build_info", "The version that runs; always 1.", ["version"], registry=self._registry)
        build.labels(version).set(1)
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
        self._told = 0  # how often a checkpoint was
        self._pages: dict[str, Page] = {}  # by type of content
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
            self._told += 1
            is_first = self._checkpoints.add(checkpoint)
            if self._jobs is not None:
                self._jobs.add(checkpoint)
            if self._runs is not None:
                self._runs.add(checkpoint, is_first=is_first)

    def recorder(self, health: RecorderHealth) -> None:
        """Take the recorder's newest account of itself."""
        with self._lock:
            self._recorder = health

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return everything and its content type: OpenMetrics 1.0.0 where `accept` names it, else text 0.0.4."""
        # Without their parameters: a version or a way of escaping that a client invents is none of ours.
        encode, content_type = choose_encoder(",".join(each.partition(";")[0] for each in accept.split(",")))
        with self._lock:
            page = self._pages.get(content_type)
            if page is None:
                page = self._pages[content_type] = _page(encode, content_type)
            return page.render(self._few() if self._minimal else self._parts()), content_type

    def _few(self) -> Iterator[Part]:
        """Yield what a page of the fewest series is made of; `render` holds the lock."""
        processes = self._processes()
        for part in (
            Part(self._told, self._registry.collect),
            _off(self._sampler, families.SAMPLER),
            _off(self._tracing, families.ACTIVE),
            _off(self._trace, families.TRACE),
            _off(self._recorder, families.RECORDER),
            Part(processes, partial(collect, families.PROCESS, processes)),
        ):
            yield Part(part.state, partial(_minimal, part.collect))
        yield from self._named()

    def _named(self) -> Iterator[Part]:
        """Yield what tells of jobs, if that is asked for."""
        for told in (self._jobs, self._runs):
            if told is not None:
                yield Part(self._told, told.collect)

    def _parts(self) -> Iterator[Part]:
        """Yield what the page is made of; `render` holds the lock."""
        yield Part(self._told, self._registry.collect)
        for table in self._tables.values():
            yield Part(table.changes, table.collect)
        for kind, columns in self._hosts.items():
            yield _off(self._newest.get(kind), columns)
        yield _off(self._sampler, families.SAMPLER)
        yield _off(self._tracing, families.ACTIVE)
        yield _off(self._trace, families.TRACE)
        yield _off(self._recorder, families.RECORDER)
        yield Part(self._collectors.changes, self._collectors.collect)
        yield from self._named()
        processes, drops = self._processes(), self._drops()
        yield Part(processes, partial(collect, families.PROCESS, processes))
        yield Part(drops, partial(collect, families.DROPPED, drops))

    def _processes(self) -> list[tuple[Labels, ProcessHealth]]:
        recorder, sampler = self._recorder, self._sampler
        rows = [({"process": "recorder"}, ProcessHealth(recorder.cpu_seconds, recorder.resident_bytes))]
        if sampler is not None:
            rows.append(({"process": "sampler"}, ProcessHealth(sampler.cpu_ns / 1e9, sampler.rss_bytes)))
        return rows

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


def _page(encode: Encode, content_type: str) -> Page:
    if not content_type.startswith("application/openmetrics-text"):
        return Page(encode)
    # Our names are plain, so that no way of escaping changes one; looking at each letter takes half the time.
    return Page(partial(generate_latest, escaping=ALLOWUTF8), end="# EOF\n")


def _off(sample: S | None, columns: Sequence[Column[S]]) -> Part:
    """Return the families without labels that are read off a sample."""
    return Part(sample, partial(collect, columns, unlabelled(sample)))


def _minimal(collect_all: Callable[[], Iterable[Metric]]) -> Iterator[Metric]:
    return (family for family in collect_all() if family.name in families.MINIMAL)


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
    """How each collector fares."""

    def __init__(self) -> None:
        self.names = Names(COLLECTORS_CAP)
        self.changes = 0
        self._health: dict[str, CollectorHealth] = {}

    def _of(self, collector: str) -> CollectorHealth:
        """Return what is to be changed."""
        self.changes += 1
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
