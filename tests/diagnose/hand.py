"""Checkpoints with hand-made measures: a save of one rank, whose thread did what the test says, at either level."""

from __future__ import annotations

from typing import Any

import msgspec

from ckptprof.measures import (
    BeforeMeasure,
    DeviceMeasure,
    LinkMeasure,
    Measures,
    MemoryMeasure,
    MountMeasure,
    ProcessMeasure,
    ThreadMeasure,
)
from ckptprof.model import Checkpoint, Kind, Level, Metadata, Mode, Moments, Pattern, Writer

SECOND_NS = 1_000_000_000
MIB, GIB = 1 << 20, 1 << 30
START_NS = 1_750_000_000 * SECOND_NS
CALLS = ("data", "sync", "close", "create", "rename", "unlink")
LOOKS_PER_SECOND = 10


def ns(seconds: float) -> int:
    """Return seconds as nanoseconds."""
    return round(seconds * SECOND_NS)


def thread(
    level: Level,
    seconds: float,
    *,
    user: float = 0.0,
    copy: float = 0.0,
    runqueue: float = 0.0,
    begin: float = 0.0,
    moved: int = GIB,
    other: dict[str, float] | None = None,
    **asleep: float,
) -> ThreadMeasure:
    """Return a thread that was so long in its own code, copying in data calls, and asleep in calls.

    At trace the calls have times; at poll there are looks, and the time on CPU. `other`: looks asleep elsewhere.
    """
    common: dict[str, Any] = {
        "pid": 100, "tid": 100, "comm": "python", "rank": 0, "role": "trainer", "is_main": True,
        "start_ns": START_NS + ns(begin), "end_ns": START_NS + ns(begin + seconds), "bytes": moved,
        "on_cpu_ns": ns(user + copy), "user_ns": ns(user), "system_ns": ns(copy), "runqueue_ns": ns(runqueue),
    }  # fmt: skip
    if level is Level.TRACE:
        calls = {f"{name}_call_ns": ns(asleep.get(name, 0.0)) for name in CALLS}
        calls["data_call_ns"] = ns(asleep.get("data", 0.0) + copy)
        return ThreadMeasure(**common, **calls)
    looks = {name: round(value * LOOKS_PER_SECOND) for name, value in {**asleep, **(other or {})}.items()}
    looks["running"] = round((user + copy + runqueue) * LOOKS_PER_SECOND)
    return ThreadMeasure(**common, samples=sum(looks.values()), samples_by_state=looks)


def device(seconds: float, moved: int = GIB, **more: Any) -> DeviceMeasure:
    """Return a device that wrote so much in requests of 512 KiB, and could do 2 GB/s."""
    told: dict[str, Any] = {
        "device": "nvme0n1", "countable": True, "seconds": seconds, "read_bytes": 0, "written_bytes": moved,
        "reads": 0, "writes": moved // (512 << 10), "flushes": 2, "flush_seconds": 0.0, "busy_seconds": 0.1 * seconds,
        "shown_bytes_per_second": 2e9, "peak_bytes_per_second": moved / seconds, "steadiness": 0.5,
    }  # fmt: skip
    return DeviceMeasure(**{**told, **more})


def link(moved: int = GIB, **more: Any) -> LinkMeasure:
    """Return a NIC of 25 Gbit/s that sent so much."""
    told: dict[str, Any] = {
        "name": "eth0", "kind": "nic", "countable": True, "speed_bytes_per_second": 3.125e9, "received_bytes": 0,
        "sent_bytes": moved, "shown_bytes_per_second": 3e9, "shaped_drops": 0, "shaped_overlimits": 0,
    }  # fmt: skip
    return LinkMeasure(**{**told, **more})


def local() -> MountMeasure:
    """Return a mount of this host."""
    return MountMeasure(mount_point="/ckpt", fs_type="ext4", source="/dev/nvme0n1", remote=False)


def far() -> MountMeasure:
    """Return a mount of a server."""
    return MountMeasure(mount_point="/ckpt", fs_type="nfs4", source="filer:/x", remote=True, server="filer")


def memory(**more: Any) -> MemoryMeasure:
    """Return the memory of a host of 64 GiB with the usual limits."""
    told: dict[str, Any] = {
        "total_bytes": 64 * GIB, "available_min_bytes": 50 * GIB, "dirty_max_bytes": GIB,
        "dirty_threshold_bytes": 10 * GIB, "dirty_background_bytes": 5 * GIB,
    }  # fmt: skip
    return MemoryMeasure(**{**told, **more})


def process(**more: Any) -> ProcessMeasure:
    """Return the process that wrote."""
    return ProcessMeasure(**{"pid": 100, "comm": "python", "rank": 0, "bytes": GIB, **more})


def measured(*threads: ThreadMeasure, **more: Any) -> Measures:
    """Return measures on a local device."""
    told: dict[str, Any] = {
        "threads": threads, "processes": (process(),), "mount": local(), "memory": memory(), "cores": 8
    }  # fmt: skip
    return Measures(**{**told, **more})


def _later(thread_: ThreadMeasure, by_ns: int, *names: str) -> ThreadMeasure:
    return msgspec.structs.replace(thread_, **{name: getattr(thread_, name) + by_ns for name in names})


def save(level: Level, seconds: float, measures: Measures | None, **more: Any) -> Checkpoint:
    """Return a save of 1 GiB by one rank; `begin`: seconds after the others, to make a series."""
    later = ns(more.pop("begin", 0.0))
    begin = START_NS + later
    if measures is not None and later:
        measures = msgspec.structs.replace(
            measures, threads=tuple(_later(one, later, "start_ns", "end_ns") for one in measures.threads)
        )
    told: dict[str, Any] = {
        "uid": f"u{begin}", "kind": Kind.SAVE, "job": "job", "framework": "torch.save", "step": 1, "ranks": 1,
        "start_ns": begin, "end_ns": begin + ns(seconds), "bytes": GIB, "files": 1, "path": "/ckpt/step_1.pt",
        "writers": (Writer(pid=100, comm="python", bytes=GIB, rank=0, role="trainer"),), "mode": Mode.SYNC,
        "stall_ns": ns(seconds), "pattern": Pattern(class_=None, mean_operation_bytes=MIB, median_operation_bytes=MIB),
        "measures": measures, "level": level, "limitations": (), "evidence": (), "confidence": 0.9,
        "moments": Moments(), "metadata": Metadata(),
    }  # fmt: skip
    return Checkpoint(**{**told, **more})


def restore(level: Level, seconds: float, measures: Measures | None, **more: Any) -> Checkpoint:
    """Return a cold restore of 1 GiB."""
    told = {"kind": Kind.RESTORE, "mode": None, "cache": "cold", "storage_bytes": GIB, **more}
    return save(level, seconds, measures, **told)


def held(seconds: float, **more: Any) -> BeforeMeasure:
    """Return that training stood still for so long before the first byte."""
    return BeforeMeasure(blocked_ns=ns(seconds), **more)


def changed(checkpoint: Checkpoint, **measures: Any) -> Checkpoint:
    """Return it with other measures."""
    known = checkpoint.measures or Measures()
    return msgspec.structs.replace(checkpoint, measures=msgspec.structs.replace(known, **measures))
