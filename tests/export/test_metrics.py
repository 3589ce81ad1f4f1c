"""The metrics page: what it says, what it never says, and that nothing on the machine can break it."""

from __future__ import annotations

import itertools
import math
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import exposition, generate_latest
from prometheus_client.core import Metric
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from ckptprof.assets import asset
from ckptprof.export import metrics as metrics_module
from ckptprof.export import wsgi_pages
from ckptprof.export.checkpoints import REMEMBERED_CHECKPOINTS
from ckptprof.export.entity_tables import REMEMBERED
from ckptprof.export.metrics import Metrics, RecorderHealth
from ckptprof.export.wsgi_pages import Pages
from ckptprof.measures import Measures, MountMeasure
from ckptprof.model import (
    Checkpoint,
    Evidence,
    Kind,
    Level,
    Mode,
    Moments,
    Pattern,
    PatternClass,
    Risk,
    Run,
    Sent,
    Status,
)
from ckptprof.verdicts import Account, Cost, Limit, Verdict
from ckptprof_collectors.samples import (
    COUNTED,
    CollectorFault,
    DeviceInfo,
    DiskSample,
    EntityGone,
    Frame,
    MemorySample,
    NicInfo,
    NicSample,
    RdmaInfo,
    RdmaSample,
    Sample,
    SamplerHealth,
    TraceHealth,
    Unavailable,
)

OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
HOSTILE = [
    'a"b',
    "a\\b",
    "a\nb 1\nevil_metric 7",
    "\x1b]0;PWN\x07",
    "\udcff",
    "\u202egpj",
    "</script>",
    "{le=",
    "x" * 5000,
    "",
    "other",
    "\x00",
    "é漢字",
]


_UIDS = itertools.count()
RUN = Run(key="slurm:alpha/8812.0", scheduler="slurm", job="8812", nodes=64)


def frame(*samples: Sample, at_ns: int = 1, read: tuple[str, ...] = ()) -> Frame:
    """Return a frame of these samples."""
    return Frame(at_ns, at_ns, read, samples)


def disk(name: str, read: int = 1, written: int = 1) -> DiskSample:
    """Return a disk with these sectors."""
    return DiskSample(name, 10, 0, read, 1500, 20, 0, written, 2500, 0, 3250, 4000, 0, 0, 0, 0, 5, 70)


def info(name: str, kind: str = "disk", *, countable: bool = True) -> DeviceInfo:
    """Return what the collector says of a device."""
    return DeviceInfo(
        name,
        8,
        0,
        kind,
        (),
        is_countable=countable,
        transport=kind,
        rotational=None,
        size_bytes=1,
        model=None,
        serial=None,
        backing=None,
    )


def nic(name: str, received: int = 1) -> NicSample:
    """Return an interface with these bytes."""
    return NicSample(name, received, 2, 3, 4, 5, 6, 7, 8)


def checkpoint(
    kind: Kind = Kind.SAVE,
    *,
    seconds: float = 3.0,
    framework: str | None = "torch",
    pattern: PatternClass | None = PatternClass.SEQUENTIAL_LARGE,
    end_ns: int = 1_700_000_000_000_000_000,
    size: int = 1000,
    **fields: Any,
) -> Checkpoint:
    """Return a checkpoint of this kind, duration and end, another one with each call."""
    return Checkpoint(
        uid=fields.pop("uid", None) or f"u-{next(_UIDS)}",
        kind=kind,
        job=fields.pop("job", "j"),
        framework=framework,
        step=fields.pop("step", None),
        ranks=fields.pop("ranks", None),
        start_ns=end_ns - int(seconds * 1e9),
        end_ns=end_ns,
        bytes=size,
        files=1,
        path="/secret/path",
        writers=(),
        pattern=Pattern(class_=pattern),
        level=Level.POLL,
        limitations=(),
        evidence=(),
        confidence=1.0,
        **fields,
    )


def verdict(limit: Limit = Limit.DEVICE, **fields: Any) -> Verdict:
    """Return a verdict of 2 s on the limit and 1 s unexplained."""
    values: dict[str, Any] = {"confidence": 0.9, "seconds": 2.0, "expected_seconds": 1.5, "sentence": "s"} | fields
    accounts = (Account(limit=limit, seconds=2.0, text="a"), Account(limit=None, seconds=1.0, text="b"))
    return Verdict(limit=limit, accounts=accounts, evidence=(), excluded=(), **values)


Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def text(metrics: Metrics) -> str:
    """Return the page as text 0.0.4."""
    return generate_latest(metrics).decode()


def parsed(metrics: Metrics) -> Series:
    """Read the page in both formats with the library's parsers: they agree."""
    page, openmetrics = text(metrics), Pages(metrics, in_clear=True).metrics(OPENMETRICS).body.decode()
    assert page.endswith("\n")
    names = [line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")]
    assert len(names) == len(set(names)), "a family is in two pieces"
    series = series_of(text_string_to_metric_families(page))
    assert series_of(openmetrics_parser.text_string_to_metric_families(openmetrics)) == series
    return series


def series_of(metric_families: Iterable[Metric]) -> Series:
    """Return the value of each series; one that is there twice fails."""
    series: Series = {}
    for family in metric_families:
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in series
            series[key] = sample.value
    return series


_HEALTH: tuple[Any, ...] = (
    10, 1, 1_500_000, 0, 250_000_000, 1 << 20, 3, 40, {"disks": 1_000_000}, {"nics": 1}, 1, 2, 3 * 10**8, 1,
    {"stacks": 2}, 4,
)  # fmt: skip


def full(*, job_names: bool = True, minimal: bool = False) -> Metrics:
    """Return metrics in which every family has a series, that of jobs if their names are asked for."""
    metrics = Metrics(job_names=job_names, minimal=minimal)
    metrics.observe(
        frame(
            info("sda"),
            disk("sda", 2, 4),
            NicInfo("eth0", 25_000_000_000, None, None, is_countable=True),
            nic("eth0"),
            RdmaInfo("mlx5_0/1", 400_000_000_000, "ACTIVE", "InfiniBand", None),
            RdmaSample("mlx5_0/1", 1, 2, 3, 4, 5, tx_discards=6, cnp_handled=7, ack_timeouts=8),
            MemorySample(*range(1, 15)),
            SamplerHealth(*_HEALTH),
            TraceHealth(100, 1, 2, 3, 4, 5, {"calls": "typed"}, ("splice is out of sight",)),
            CollectorFault("nics", "gone"),
            Unavailable("rdma", "no /sys/class/infiniband"),
            read=("disks", "nics"),
        )
    )
    metrics.recorder(
        RecorderHealth(
            frames=9,
            dropped_frames=0,
            late_frames=0,
            behind_seconds=lambda: 0.1,
            detection_faults=0,
            detection_memory_bytes=12_000_000,
            detection_forgotten_bytes=0,
            left_out_events=0,
            store_errors=0,
            damaged_databases=0,
            store_bytes=4096,
            store_log_bytes=512,
            store_queue=0,
            sampler_restarts=0,
            samplers_stuck=0,
            abandoned=0,
            cpu_seconds=1.5,
            resident_bytes=2 << 20,
            hung_saves=0,
            bursts_active=1,
        )
    )
    metrics.checkpoint(
        checkpoint(
            durable_ns=1_700_000_001_000_000_000, verdict=verdict(), cost=Cost(gpu_seconds=8.0), step=100, run=RUN
        )
    )
    metrics.checkpoint(checkpoint(Kind.RESTORE, cache="warm"))
    return metrics


def test_values_are_in_base_units() -> None:
    """Sectors become bytes, milliseconds seconds, bits bytes."""
    series = parsed(full())
    sda = (("device", "sda"),)
    assert series["ckptprof_disk_read_bytes_total", sda] == 1024
    assert series["ckptprof_disk_written_bytes_total", sda] == 2048
    assert series["ckptprof_disk_io_time_seconds_total", sda] == 3.25
    assert series["ckptprof_network_speed_bytes", (("device", "eth0"),)] == 25e9 / 8
    assert series["ckptprof_sampler_lateness_seconds_total", ()] == 0.0015
    assert series["ckptprof_cpu_seconds_total", (("process", "sampler"),)] == 0.25
    assert series["ckptprof_pressure_io_waiting_seconds_total", ()] == 11e-6
    assert series["ckptprof_infiniband_port_data_received_bytes_total", (("device", "mlx5_0"), ("port", "1"))] == 1


def test_old_metric_names_are_exported_beside_the_new_ones() -> None:
    """For one release, so that no alert falls silent."""
    series = parsed(full())
    for old, new in {"recorder_detection_kept_bytes": "recorder_detection_memory_bytes"}.items():
        assert series[f"ckptprof_{old}", ()] == series[f"ckptprof_{new}", ()] == 12_000_000


def test_limits_are_counted_once_and_the_last_one_is_told() -> None:
    """Time by account; another verdict on the same one changes what is last, no counter. No incomplete one is last."""
    metrics = Metrics()
    first = checkpoint(uid="one", stall_ns=1)
    for revision, told in enumerate((None, verdict(), verdict(Limit.NETWORK, confidence=0.7, expected_seconds=None))):
        metrics.checkpoint(msgspec.structs.replace(first, verdict=told, revision=revision))
    metrics.checkpoint(checkpoint(Kind.RESTORE, verdict=verdict(Limit.UNCLEAR, confidence=0.95)))
    metrics.checkpoint(checkpoint(Kind.COPY, verdict=verdict(Limit.FLUSH)))
    metrics.checkpoint(checkpoint(verdict=verdict(Limit.SERVER), end_ns=first.end_ns - 1))
    broken_off = checkpoint(verdict=verdict(Limit.SERVER), end_ns=first.end_ns + 1, status=Status.INCOMPLETE)
    metrics.checkpoint(broken_off)
    series = parsed(metrics)

    def labels(**named: str) -> tuple[tuple[str, str], ...]:
        return tuple(sorted(named.items()))

    seconds = "ckptprof_checkpoint_limit_seconds_total"
    last, expected = "ckptprof_last_checkpoint_limit", "ckptprof_last_checkpoint_expected_seconds"
    path = "ckptprof_last_checkpoint_path_seconds"  # what is expected is told of
    told = {key: value for key, value in series.items() if key[0] in (seconds, last, expected, path)}
    assert told == {
        (seconds, labels(kind="save", limit="device")): 2.0,
        (seconds, labels(kind="save", limit="server")): 4.0,
        (seconds, labels(kind="save", limit="unexplained")): 3.0,
        (seconds, labels(kind="restore", limit="unclear")): 2.0,
        (seconds, labels(kind="restore", limit="unexplained")): 1.0,
        (last, labels(kind="save", limit="network", confidence="probably")): 1,
        (last, labels(kind="restore", limit="unclear", confidence="unclear")): 1,
        (expected, labels(kind="restore")): 1.5,
        (path, labels(kind="restore")): 2.0,
        (path, labels(kind="save")): 2.0,
    }


def test_gpu_time_grows_as_it_becomes_known() -> None:
    """And never shrinks; without GPUs there is no series."""
    metrics = Metrics()
    one = checkpoint(uid="one")
    metrics.checkpoint(one)
    before = parsed(metrics)
    for revision, seconds in enumerate((8.0, 12.0, 10.0, None), start=1):
        metrics.checkpoint(msgspec.structs.replace(one, cost=Cost(gpu_seconds=seconds), revision=revision))

    assert ("ckptprof_checkpoint_gpu_seconds_total", ()) not in before
    assert parsed(metrics)["ckptprof_checkpoint_gpu_seconds_total", ()] == 12.0


def test_collectors_tell_how_they_fare() -> None:
    """A fault shows as success 0 and one more fault; the next good read heals it, the count stays."""
    metrics = full()
    series = parsed(metrics)
    assert series["ckptprof_collector_success", (("collector", "nics"),)] == 0
    assert series["ckptprof_collector_success", (("collector", "disks"),)] == 1
    assert series["ckptprof_collector_unavailable", (("collector", "rdma"),)] == 1
    metrics.observe(frame(read=("nics",)))
    series = parsed(metrics)
    assert series["ckptprof_collector_success", (("collector", "nics"),)] == 1
    assert series["ckptprof_collector_faults_total", (("collector", "nics"),)] == 1


def test_checkpoints_are_counted_by_kind_framework_and_pattern() -> None:
    """Counters, histogram and the gauges of the last one agree with what was handed in."""
    metrics = Metrics()
    zero = parsed(metrics)
    assert zero["ckptprof_checkpoint_duration_seconds_count", (("kind", "restore"),)] == 0
    assert ("ckptprof_last_checkpoint_bytes", (("kind", "save"),)) not in zero
    metrics.checkpoint(checkpoint(seconds=3, size=100, end_ns=2_000_000_000_000))
    metrics.checkpoint(checkpoint(seconds=40_000, size=50, end_ns=1_000_000_000_000))  # ended earlier, told later
    metrics.checkpoint(checkpoint(Kind.RESTORE, seconds=0, framework=None, pattern=None))
    series = parsed(metrics)
    labels = (("framework", "torch"), ("kind", "save"), ("pattern", "sequential-large"))
    assert series["ckptprof_checkpoints_total", labels] == 2
    unknown = (("framework", "unknown"), ("kind", "restore"), ("pattern", "unknown"))
    assert series["ckptprof_checkpoints_total", unknown] == 1
    save = (("kind", "save"),)
    assert series["ckptprof_checkpoint_bytes_total", save] == 150
    assert series["ckptprof_last_checkpoint_bytes", save] == 100
    assert series["ckptprof_last_checkpoint_timestamp_seconds", save] == 2000
    bucket = "ckptprof_checkpoint_duration_seconds_bucket"
    assert series[bucket, (("kind", "save"), ("le", "5.0"))] == 1.0
    assert series[bucket, (("kind", "save"), ("le", "14400.0"))] == 1.0
    assert series[bucket, (("kind", "save"), ("le", "+Inf"))] == 2.0
    assert math.isclose(series["ckptprof_checkpoint_duration_seconds_sum", save], 40_003)


_SAVED = (("kind", "save"),)


def test_how_saves_went_is_added_up() -> None:
    """Stall, risk and amplification, of what was seen of each; what was broken off is no last save."""
    metrics = Metrics()
    end_ns = 1_700_000_000_000_000_000
    went: dict[str, Any] = {"mode": Mode.ASYNC, "stall_ns": 500_000_000, "written_bytes": 300, "unique_bytes": 100}
    metrics.checkpoint(checkpoint(end_ns=end_ns, durable_ns=end_ns + 2_000_000_000, **went))
    metrics.checkpoint(checkpoint(end_ns=end_ns + 1, mode=Mode.SYNC, stall_ns=None, written_bytes=70))
    metrics.checkpoint(checkpoint(end_ns=end_ns + 2, status=Status.INCOMPLETE, size=7))
    metrics.checkpoint(checkpoint(Kind.RESTORE, cache="cold"))
    metrics.checkpoint(checkpoint(Kind.RESTORE, cache="\x1b"))
    series = parsed(metrics)

    assert series["ckptprof_checkpoint_saves_total", (("mode", "async"),)] == 1
    assert series["ckptprof_checkpoint_saves_total", (("mode", "unknown"),)] == 1
    assert series["ckptprof_checkpoint_stall_seconds_total", ()] == 0.5
    assert series["ckptprof_checkpoint_at_risk_seconds_total", ()] == 2
    assert series["ckptprof_last_checkpoint_at_risk_seconds", ()] == 2
    assert series["ckptprof_checkpoint_written_bytes_total", ()] == 300
    assert series["ckptprof_checkpoint_unique_bytes_total", ()] == 100
    assert series["ckptprof_incomplete_checkpoints_total", _SAVED] == 1
    assert series["ckptprof_last_checkpoint_bytes", _SAVED] == 1000
    assert series["ckptprof_checkpoint_restores_total", (("cache", "cold"),)] == 1
    assert series["ckptprof_checkpoint_restores_total", (("cache", "unknown"),)] == 1


def test_a_copy_is_counted_and_is_no_save() -> None:
    """It enters no other series."""
    metrics = Metrics()
    before = parsed(metrics)
    metrics.checkpoint(checkpoint(Kind.COPY, durable_ns=1, written_bytes=9, unique_bytes=9))
    after = parsed(metrics)

    assert {key for key in after if after[key] != before.get(key)} == {("ckptprof_checkpoint_copies_total", ())}


def test_what_is_told_again_counts_once() -> None:
    """Only what is new of it is added, and what is taken back stays: a counter never goes back."""
    metrics = Metrics()
    first = checkpoint(uid="same", stall_ns=1_000_000_000, end_ns=5_000_000_000)
    metrics.checkpoint(first)
    later = msgspec.structs.replace(
        first, revision=1, durable_ns=9_000_000_000, moments=Moments(committed_ns=6 * 10**9)
    )
    for again in (later, later, msgspec.structs.replace(later, revision=2, stall_ns=None)):
        metrics.checkpoint(again)
    series = parsed(metrics)

    assert series["ckptprof_checkpoint_duration_seconds_count", _SAVED] == 1
    assert series["ckptprof_checkpoint_bytes_total", _SAVED] == 1000
    assert series["ckptprof_checkpoint_stall_seconds_total", ()] == 1
    assert series["ckptprof_checkpoint_at_risk_seconds_total", ()] == 3


def test_what_was_counted_long_ago_is_not_counted_again() -> None:
    """The memory of what was counted is bounded; a late account of a forgotten checkpoint adds nothing."""
    metrics = Metrics()
    first = checkpoint(uid="first")
    metrics.checkpoint(first)
    for _ in range(REMEMBERED_CHECKPOINTS):
        metrics.checkpoint(checkpoint())
    metrics.checkpoint(msgspec.structs.replace(first, revision=1, stall_ns=10**9))
    series = parsed(metrics)

    assert series["ckptprof_checkpoint_duration_seconds_count", _SAVED] == REMEMBERED_CHECKPOINTS + 1
    assert series["ckptprof_checkpoint_stall_seconds_total", ()] == 0


def test_a_bucket_holds_its_own_edge() -> None:
    """`le` is less or equal: a save of exactly 5 s is in the bucket of 5 s."""
    metrics = Metrics()
    metrics.checkpoint(checkpoint(seconds=5))
    series = parsed(metrics)
    bucket = "ckptprof_checkpoint_duration_seconds_bucket"
    assert series[bucket, (("kind", "save"), ("le", "5.0"))] == 1
    assert series[bucket, (("kind", "save"), ("le", "2.5"))] == 0


def test_what_was_not_seen_has_no_series() -> None:
    """None gives no line, never a zero; what never moved a byte and what is a partition have none either."""
    metrics = Metrics()
    old_kernel = DiskSample("vda", 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0)
    memory = MemorySample(1, *[None] * 13)
    partition = info("vda1", "partition", countable=False)
    metrics.observe(frame(old_kernel, memory, partition, disk("vda1"), disk("loop0", 0, 0)))
    names = {name for name, _ in parsed(metrics)}
    devices = {value for _, labels in parsed(metrics) for key, value in labels if key == "device"}
    assert "ckptprof_disk_flush_requests_total" not in names
    assert "ckptprof_memory_total_bytes" in names
    assert "ckptprof_memory_dirty_bytes" not in names
    assert "ckptprof_pressure_io_waiting_seconds_total" not in names
    assert "ckptprof_store_size_bytes" not in names
    assert devices == {"vda"}


def test_every_countable_device_has_a_series() -> None:
    """The paths of an NVMe multipath head count and the head does not: both show, each with its word."""
    metrics = Metrics()
    head, path = info("nvme0n1", countable=False), info("nvme0c1n1", "nvme-path")
    metrics.observe(frame(head, path, disk("nvme0n1"), disk("nvme0c1n1")))
    page = text(metrics)
    assert 'ckptprof_disk_info{countable="false",device="nvme0n1",kind="disk",transport="disk"} 1.0' in page
    assert 'ckptprof_disk_info{countable="true",device="nvme0c1n1",kind="nvme-path",transport="nvme-path"} 1.0' in page
    assert 'ckptprof_disk_written_bytes_total{device="nvme0c1n1"} 512.0' in page


def test_no_label_holds_a_path_a_pid_or_a_job() -> None:
    """The names of all labels are a closed list; those of a job are there only where they are asked for."""
    named, unnamed = (
        {key for _, pairs in parsed(full(job_names=asked)) for key, _ in pairs} for asked in (True, False)
    )
    allowed = (
        "version kind framework pattern le device transport countable port link_layer collector process mode cache"
    )
    assert unnamed <= {*allowed.split(), "limit", "confidence", "storage"}
    assert named - unnamed == {"training_job", "ranks", "run", "hpc_job", "nodes"}
    assert "job" not in {value for _, pairs in parsed(full(job_names=False)) for _, value in pairs}


def test_the_jobs_told_last_are_named() -> None:
    """Sixteen of twenty, the first one because it saved again; a copy names none, and what is not told anew stays."""
    metrics = Metrics(job_names=True)
    for number in range(19):
        metrics.checkpoint(checkpoint(job=f"train-{number}", ranks=number))
        metrics.checkpoint(checkpoint(Kind.RESTORE, job="train-0", framework=None))
    metrics.checkpoint(checkpoint(Kind.COPY, job="rsync-1"))
    metrics.checkpoint(checkpoint(job="train-19", framework=None))
    series = parsed(metrics)

    told = {
        (job["training_job"], job["framework"], job["ranks"]): value
        for (name, labels), value in series.items()
        if name == "ckptprof_training_job_info" and (job := dict(labels))
    }
    last = {(f"train-{number}", "torch", str(number)): 1 for number in (0, *range(5, 19))}
    assert told == {**last, ("train-19", "unknown", "unknown"): 1}
    assert series["ckptprof_series_dropped_total", (("kind", "job"),)] == 4


def test_the_fewest_metrics_are_sixty_at_most() -> None:
    """However checkpoints go; each is on the whole page, too, with the same number, but for buckets of durations."""
    few, every = full(job_names=False, minimal=True), full(job_names=False)
    for metrics in (few, every):
        metrics.level("trace")
        for number, (mode, limit) in enumerate(itertools.product((*Mode, None), Limit)):
            told = {"mode": mode, "verdict": verdict(limit, confidence=0.5 + number / 200), "step": number}
            uid = f"{number} {mode} {limit}"
            metrics.checkpoint(checkpoint(uid=uid, framework=f"f{number}", durable_ns=1_700_000_001 * 10**9, **told))
            for cache in ("cold", "warm", "partly", None):
                metrics.checkpoint(checkpoint(Kind.RESTORE, uid=f"{uid} {cache}", cache=cache, verdict=verdict(limit)))

    found, whole = parsed(few), parsed(every)
    assert 45 < len(found) <= 60
    assert {name for name, value in found.items() if whole[name] != value} == set()


def test_the_alerts_need_no_more_than_the_fewest_metrics() -> None:
    """But for that on collectors; and with the names of jobs those on runs."""
    rules = asset("dashboards/rules/ckptprof.rules.yml").read_text(encoding="utf-8")
    expressions = re.sub(r"(?m)^\s*(#|summary:|description:|runbook_url:|- record:|- name:).*$", "", rules)
    named = set(re.findall(r"(?<![:\w])ckptprof_\w+", expressions))

    found = {name for name, _ in parsed(full(minimal=True))}

    assert named - found == {"ckptprof_collector_success"}


def on(fs_type: str | None, **fields: Any) -> Checkpoint:
    """Return a save on a file system."""
    mount = None if fs_type is None else MountMeasure(mount_point="/x", fs_type=fs_type, source="s", remote=False)
    return checkpoint(measures=Measures(mount=mount), **fields)


def test_saves_are_counted_by_storage() -> None:
    """By the type of their file system; a revision adds what blocked training, and a fifth type is `other`."""
    metrics = Metrics()
    metrics.checkpoint(on("nfs4", uid="a", stall_ns=10**9))
    metrics.checkpoint(on("nfs4", uid="a", stall_ns=3 * 10**9, revision=1))
    metrics.checkpoint(checkpoint(Kind.RESTORE, measures=on("nfs4").measures))
    sent = Sent(destinations=())
    for one in (checkpoint(), checkpoint(sent=sent), on("ext4"), on("xfs"), on("zfs")):
        metrics.checkpoint(one)
    series = parsed(metrics)

    def of(name: str, storage: str) -> float:
        return series[f"ckptprof_storage_{name}_total", (("storage", storage),)]

    assert of("save_seconds", "nfs4") == of("stall_seconds", "nfs4") == pytest.approx(3.0)
    assert [of("saved_bytes", name) for name in ("nfs4", "unknown", "object store", "ext4")] == [1000] * 4
    assert of("saved_bytes", "other") == 2000
    assert series["ckptprof_series_dropped_total", (("kind", "storage"),)] == 2


def test_the_newest_step_to_restore_is_told() -> None:
    """None that broke off or may restore wrongly, also if that comes to light later; by its begin, not its end."""
    metrics = Metrics()
    second = 10**9
    last = checkpoint(step=300, end_ns=300 * second, seconds=10, uid="last")
    metrics.checkpoint(checkpoint(step=100, end_ns=100 * second, seconds=10))
    metrics.checkpoint(checkpoint(Kind.RESTORE, step=900, end_ns=900 * second))
    metrics.checkpoint(checkpoint(step=200, end_ns=350 * second, seconds=200))
    metrics.checkpoint(last)
    metrics.checkpoint(checkpoint(step=400, end_ns=400 * second, status=Status.INCOMPLETE))

    series = parsed(metrics)
    assert series["ckptprof_newest_restorable_step", ()] == 300
    assert series["ckptprof_newest_restorable_timestamp_seconds", ()] == 290
    risk = (Evidence(name=Risk.WRITE_FAILED.value, weight=0.0, text="EIO"),)
    metrics.checkpoint(msgspec.structs.replace(last, evidence=risk, revision=1))
    assert parsed(metrics)["ckptprof_newest_restorable_step", ()] == 200


def test_what_all_nodes_of_a_run_tell_has_its_key() -> None:
    """Of the sixteen told last, four series each; a save that is told again counts once, a copy in none."""
    metrics, unnamed = (Metrics(job_names=True) for _ in range(2))
    for number in range(20):
        run = msgspec.structs.replace(RUN, key=f"slurm:alpha/{number}.0", job=str(number))
        save = checkpoint(job=f"slurm-{number}", step=number, run=run)
        for told in (save, msgspec.structs.replace(save, revision=1)):
            metrics.checkpoint(told)
        metrics.checkpoint(checkpoint(Kind.COPY, run=run))
        metrics.checkpoint(checkpoint(Kind.RESTORE, job=f"slurm-{number}", run=run))
        unnamed.checkpoint(msgspec.structs.replace(save, run=None))
    series = parsed(metrics)

    of_runs = {key: value for key, value in series.items() if "run" in dict(key[1])}
    assert len(of_runs) == 4 * 16
    last = (("run", "slurm:alpha/19.0"),)
    assert series["ckptprof_run_saves_total", last] == 1
    assert series["ckptprof_run_newest_restorable_step", last] == 19
    info = (("hpc_job", "19"), ("nodes", "64"), *last, ("training_job", "slurm-19"))
    assert series["ckptprof_run_info", info] == 1
    assert series["ckptprof_series_dropped_total", (("kind", "run"),)] == 4
    assert [name for name, _ in parsed(unnamed) if name.startswith("ckptprof_run")] == []


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_never_break_a_scrape(name: str) -> None:
    """Quotes, newlines, escape codes, surrogates and long names stay inside their one label."""
    metrics = Metrics(job_names=True)
    metrics.observe(frame(info(name, name), disk(name), nic(name), RdmaSample(name, 1, 1, 1, 1, 1), read=(name,)))
    metrics.checkpoint(checkpoint(framework=name, job=name, run=Run(key=name, scheduler="slurm", job=name)))
    page = generate_latest(metrics)
    assert b"\nevil_metric" not in page
    assert all(byte >= 0x20 or byte == 0x0A for byte in page)
    assert max(map(len, page.splitlines())) < 1000
    parsed(metrics)


@settings(max_examples=60)
@given(names=st.lists(st.text(st.characters(exclude_categories=()), max_size=200), max_size=12))
def test_any_names_give_a_page_that_parses(names: list[str]) -> None:
    """Whatever the names, also those that look alike once cleaned, no series is there twice."""
    metrics = Metrics(job_names=True)
    metrics.observe(frame(*[sample for name in names for sample in (disk(name), nic(name))]))
    for name in names:
        metrics.checkpoint(checkpoint(job=name, run=Run(key=name, scheduler="flux")))
    assert parsed(metrics)


def test_names_that_look_alike_are_no_double_series() -> None:
    """Two names with one cleaned form: the second goes to `other`."""
    metrics = Metrics()
    metrics.observe(frame(nic("x" * 200, 5), nic("x" * 201, 5)))
    metrics.observe(frame(nic("x" * 200, 5), nic("x" * 201, 9)))
    series = parsed(metrics)
    assert series["ckptprof_network_receive_bytes_total", (("device", "x" * 128),)] == 5
    assert series["ckptprof_network_receive_bytes_total", (("device", "other"),)] == 4


def test_entities_are_capped_and_the_rest_adds_up_in_other() -> None:
    """3,000 interfaces give 64 rows and one `other` whose counter holds the growth of all the rest."""
    metrics = Metrics()
    many = [f"veth{number}" for number in range(3000)]
    metrics.observe(frame(*[nic(name, 100) for name in many]))
    metrics.observe(frame(*[nic(name, 103) for name in many], at_ns=2))
    series = parsed(metrics)
    received = {labels: value for (name, labels), value in series.items() if name.endswith("_receive_bytes_total")}
    assert len(received) == metrics_module.ENTITIES_CAP + 1
    assert received[("device", "other"),] == 3 * (3000 - 64)
    assert series["ckptprof_series_dropped_total", (("kind", "network"),)] == 3000 - 64
    assert len(text(metrics)) < 100_000


def test_what_has_no_row_is_remembered_within_bounds() -> None:
    """Ten thousand interfaces that come and go leave no more than the bound behind."""
    metrics = Metrics()
    for number in range(10_000):
        name = f"veth{number}"
        metrics.observe(frame(NicInfo(name, None, None, None, is_countable=False), nic(name)))
    assert len(metrics._tables[NicSample]._folded) == len(metrics._tables[NicSample]._about) == REMEMBERED
    assert parsed(metrics)


def test_other_never_goes_back() -> None:
    """A folded interface that vanishes or starts again takes nothing away."""
    metrics = Metrics()
    metrics.observe(frame(*[nic(f"veth{number}", 100) for number in range(65)]))
    values = []
    for received in (150, 20, 30):
        metrics.observe(frame(nic("veth64", received)))
        values.append(parsed(metrics)["ckptprof_network_receive_bytes_total", (("device", "other"),)])
    assert values == [50, 50, 60]


def test_a_real_interface_finds_room_among_the_virtual_ones() -> None:
    """A countable interface that comes late takes the row of one that is not."""
    metrics = Metrics()
    virtual = [f"veth{number}" for number in range(64)]
    infos = [NicInfo(name, None, None, None, is_countable=False) for name in virtual]
    metrics.observe(frame(*infos, *[nic(name, 100) for name in virtual]))
    real = NicInfo("ib0", None, None, None, is_countable=True)
    metrics.observe(frame(real, nic("ib0", 7), at_ns=2))
    assert parsed(metrics)["ckptprof_network_receive_bytes_total", (("device", "ib0"),)] == 7


@pytest.mark.parametrize("told", [True, False], ids=["it says goodbye", "a new sampler does not find it"])
def test_what_has_left_gives_its_row_back(*, told: bool) -> None:
    """A thousand interfaces that come and go one after another each have a row while they are there, and no longer."""
    metrics = Metrics()
    for number in range(1000):
        name = f"veth{number}"
        if told:
            left = [EntityGone("interface", f"veth{number - 1}")]
        else:
            metrics.level("poll")
            left = []
        metrics.observe(frame(*left, NicInfo(name, None, None, None, is_countable=False), nic(name, 5), read=("nics",)))
        if number % 100 == 0:
            received = [key for key in parsed(metrics) if key[0] == "ckptprof_network_receive_bytes_total"]
            assert received == [("ckptprof_network_receive_bytes_total", (("device", name),))]
    assert metrics._tables[NicSample].dropped == 0


def test_frameworks_are_capped() -> None:
    """A thousand invented frameworks give at most the cap and `other`."""
    metrics = Metrics()
    for number in range(1000):
        metrics.checkpoint(checkpoint(framework=f"f{number}"))
    series = parsed(metrics)
    counts = [value for (name, _), value in series.items() if name == "ckptprof_checkpoints_total"]
    assert len(counts) == metrics_module.FRAMEWORKS_CAP + 1
    assert sum(counts) == 1000


def test_the_page_stays_small_on_a_large_node() -> None:
    """Every table full: under the hard cap of 2,000 series of one node (2,304 rows of entities would be above it)."""
    metrics = full()
    metrics.observe(
        frame(*[disk(f"nvme{number}n1") for number in range(12)], *[nic(f"e{number}") for number in range(8)])
    )
    assert len(parsed(metrics)) < 350


def test_only_families_with_other_series_are_rendered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page is what prometheus_client makes of all families, also after series came, changed and went."""
    rendered: list[str] = []

    def counted(registry: Collector) -> bytes:
        families = list(registry.collect())
        rendered.extend(sample.name for family in families for sample in family.samples)
        return generate_latest(registry)

    monkeypatch.setattr(exposition, "generate_latest", counted)
    monkeypatch.setattr(wsgi_pages, "FRESH_SECONDS", 0.0)
    assert Pages(Metrics(), in_clear=True).metrics().body == generate_latest(Metrics())
    metrics = full()
    pages = Pages(metrics, in_clear=True)
    counts = []
    for change in (
        None,
        None,
        frame(disk("sda", 2, 4), disk("sdb")),  # the same, and another one
        frame(disk("sda", 3, 4), nic("eth0")),
        frame(EntityGone("device", "sda")),
        frame(disk("sdb", 5), MemorySample(*range(1, 15))),
    ):
        if change is not None:
            metrics.observe(change)
        rendered.clear()
        assert pages.metrics().body == generate_latest(metrics)
        counts.append(len(rendered))

    per_disk = sum(column.metric is not None for column in DiskSample.counted.columns)
    assert counts == [counts[0], 0, 2 * per_disk, 0, per_disk, 0]


def test_it_renders_while_it_is_fed() -> None:
    """A scrape in another thread sees whole pages while frames with new names arrive."""
    metrics = Metrics()
    stop = threading.Event()

    def feed() -> None:
        for number in itertools.count():
            metrics.observe(frame(nic(f"veth{number}"), read=(f"c{number}",)))
            if stop.is_set():
                return

    thread = threading.Thread(target=feed)
    thread.start()
    pages = [series_of(text_string_to_metric_families(text(metrics))) for _ in range(15)]
    stop.set()
    thread.join()
    assert all(pages)


def test_the_level_follows_the_sampler_and_its_trace() -> None:
    """Nothing before one has begun; then what works, also when the trace fails later; another life begins at zero."""
    page = Metrics()
    pages = [generate_latest(page)]
    health = TraceHealth(100, 1, 2, 3, 4, 5, {"calls": "typed"}, ())
    page.level("trace")
    for sample in (health, TraceHealth(100, 1, 2, 3, 4, 5, {}, ("the trace failed",))):
        page.observe(frame(sample))
        pages.append(generate_latest(page))
    page.level("poll")
    pages.append(generate_latest(page))

    active = [re.findall(rb"^ckptprof_trace_active (\d)\.0$", one, re.MULTILINE) for one in pages]
    assert active == [[], [b"1"], [b"0"], [b"0"]]
    assert b"\nckptprof_trace_lost_operations_total 1.0\n" in pages[2]
    assert b"ckptprof_trace_operations_total" not in pages[3]


@pytest.mark.prometheus
def test_promtool_has_nothing_to_say() -> None:
    """`promtool check metrics` accepts every family and its name."""
    promtool = shutil.which("promtool")
    assert promtool is not None
    done = subprocess.run(
        [promtool, "check", "metrics"], input=generate_latest(full()), capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_every_metric_is_documented() -> None:
    """On the page by a sentence of its own, and in one row of docs/metrics.md by how its name begins."""
    page = text(full())
    documented = (Path(__file__).resolve().parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    helps = dict(re.findall(r"^# HELP (\w+) (.*)$", page, re.MULTILINE))
    declared = {f"ckptprof_{column.metric}" for kind in COUNTED for column in kind.counted.columns if column.metric}
    assert declared <= set(helps)  # a new sample stands in `full()`
    assert all(sentence.endswith(".") for sentence in helps.values())
    rows = documented.partition("\n## All metrics\n")[2].splitlines()
    begins = [name for row in rows if row.startswith("| `") for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    found = [[begin for begin in begins if name.startswith(begin)] for name in helps]
    assert sorted({begin for one in found for begin in one}) == sorted(begins)
    assert [len(one) for one in found] == [1] * len(found)
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", page, re.MULTILINE))
    assert {name for name in kinds if kinds[name] == "counter"} == {name for name in kinds if name.endswith("_total")}
    assert [name for name in kinds if kinds[name] == "histogram"] == ["ckptprof_checkpoint_duration_seconds"]


def test_the_format_is_the_one_that_the_client_asks_for() -> None:
    """Prometheus gets OpenMetrics, a script the text; what is no media type is text too, and none ends in a fault."""
    pages = Pages(full(), in_clear=True)
    openmetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8"
    for accept, expected in (
        (OPENMETRICS, openmetrics),
        ("application/openmetrics-text;version=9;escaping=dots", openmetrics),
        ("application/openmetrics-text;version=x", openmetrics),
        ("text/plain;version=1.0.0;escaping=values", "text/plain; version=0.0.4; charset=utf-8"),
        ("*/*", "text/plain; version=0.0.4; charset=utf-8"),
        (";;,=,\x00\xff", "text/plain; version=0.0.4; charset=utf-8"),
    ):
        page = pages.metrics(accept)
        assert dict(page.headers)["Content-Type"].startswith(expected), accept
        assert page.body.endswith(b"\n# EOF\n") == (expected == openmetrics)
        assert b"\nckptprof_checkpoints_total{" in page.body


def test_a_slow_bucket_names_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each bucket of the duration has the uid of the last checkpoint in it as its exemplar, in OpenMetrics only."""
    monkeypatch.setattr(wsgi_pages, "FRESH_SECONDS", 0.0)
    metrics, page = Metrics(), ""
    pages = Pages(metrics, in_clear=True)
    for uid, seconds in (("a", 3), ("b", 4), ("c", 700)):
        metrics.checkpoint(checkpoint(uid=uid, seconds=seconds))
        page = pages.metrics(OPENMETRICS).body.decode()
    bucket = r'duration_seconds_bucket\{kind="save",le="([0-9.]+)"\} ([0-9.]+) # \{uid="(\w)"\} ([0-9.]+) \d{9}'

    assert re.findall(bucket, page) == [("5.0", "2.0", "b", "4.0"), ("1800.0", "3.0", "c", "700.0")]
    assert '"b"' not in text(metrics)


def test_a_jobs_environment_gets_no_files(tmp_path: Path) -> None:
    """PROMETHEUS_MULTIPROC_DIR is the job's own: nothing is written there, and no warning is said."""
    script = (
        "from prometheus_client import generate_latest; from tests.dashboards import busy_node\n"
        "from ckptprof.export.metrics import Metrics; m = Metrics()\n"
        "busy_node.describe(m); busy_node.advance(m, 1, 1); busy_node.advance(m, 11, 2)\n"
        "print(generate_latest(m).decode())"
    )
    environment = {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path), "PYTHONWARNINGS": "error"}
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, cwd=root, capture_output=True, text=True, check=True
    )

    assert 'ckptprof_checkpoint_bytes_total{kind="save"} 2e+11' in done.stdout
    assert (done.stderr, list(tmp_path.iterdir())) == ("", [])
