"""A node with 12 NVMe devices, 8 NICs and 8 RDMA ports that trains and saves: frames and checkpoints for Metrics."""

from __future__ import annotations

import msgspec

from ckptprof.export.metrics import Metrics, RecorderHealth
from ckptprof.model import Checkpoint, Kind, Level, Mode, Pattern, PatternClass, Run, Status
from ckptprof.verdicts import Account, Cost, Limit, Verdict
from ckptprof_collectors.registry import COLLECTORS
from ckptprof_collectors.samples import (
    DeviceInfo,
    DiskSample,
    Frame,
    MemorySample,
    NicInfo,
    NicSample,
    RdmaInfo,
    RdmaSample,
    Sample,
    SamplerHealth,
    TraceHealth,
)

READ = ("processes", "trace", *(name for name, _ in COLLECTORS))
TIMED = (*READ, "population", "looks")
GIB = 1 << 30


def describe(metrics: Metrics) -> None:
    """Hand in what the collectors say first; the agent traces."""
    metrics.level("trace")
    samples: list[Sample] = [
        DeviceInfo(f"nvme{n}n1", 259, n, "disk", (), is_countable=True, transport="nvme-pcie", rotational=False,
                   size_bytes=1 << 42, model="M", serial="S", backing=None)
        for n in range(12)
    ]  # fmt: skip
    samples += [
        NicInfo(f"eth{n}", 100_000_000_000, carrier=True, driver="mlx5_core", is_countable=True) for n in range(8)
    ]
    samples += [RdmaInfo(f"mlx5_{n}/1", 400_000_000_000, "ACTIVE", "InfiniBand", None) for n in range(8)]
    metrics.observe(Frame(0, 0, READ, tuple(samples)))


def frame(tick: int, wall_ns: int) -> Frame:
    """Return the frame of a tick; every counter has grown since the one before."""
    samples: list[Sample] = [
        DiskSample(f"nvme{n}n1", tick * 900, 3, tick * 20_000, tick * 700, tick * 4000, 9, tick * 800_000, tick * 5000,
                   n, tick * 80, tick * 5700, 0, 0, 0, 0, tick * 2, tick * 3)
        for n in range(12)
    ]  # fmt: skip
    samples += [NicSample(f"eth{n}", tick * 10**7, tick * 9000, 0, 0, tick * 10**6, tick * 900, 0, 0) for n in range(8)]
    samples += [
        RdmaSample(f"mlx5_{n}/1", tick * 10**8, tick * 10**8, tick * 9000, tick * 9000, 5, 0, 0, 0, tick, 0, 0, 0, 0, 0)
        for n in range(8)
    ]
    samples.append(
        MemorySample(2048 * GIB, 1800 * GIB, 100 * GIB, 9 * GIB, GIB, tick * GIB, tick * GIB, 400 * GIB, 200 * GIB,
                     tick * 7, tick * 9000, tick * 8000, 0, 0, tick * 600)
    )  # fmt: skip
    read_ns = dict.fromkeys(TIMED, tick * 40_000)
    samples.append(SamplerHealth(tick, 0, tick * 50_000, 0, tick * 2_000_000, 15 << 20, 8, 700, read_ns, {}))
    samples.append(TraceHealth(tick * 4000, 0, 0, 0, 0, tick, {"vfs_write": "typed"}, ()))
    return Frame(tick * 100_000_000, wall_ns, READ, tuple(samples))


def health(tick: int) -> RecorderHealth:
    """Return the recorder's account at a tick."""
    return RecorderHealth(
        frames=tick,
        dropped_frames=0,
        late_frames=0,
        behind_seconds=lambda: 0.1,
        detection_faults=0,
        detection_memory_bytes=12_000_000,
        detection_forgotten_bytes=0,
        left_out_events=0,
        store_errors=0,
        damaged_databases=0,
        store_bytes=40 << 20,
        store_log_bytes=4 << 20,
        store_queue=1,
        sampler_restarts=0,
        cpu_seconds=tick * 0.003,
        resident_bytes=40 << 20,
        hung_saves=0,
        bursts_active=1,
    )


def checkpoint(number: int, kind: Kind, end_ns: int) -> Checkpoint:
    """Return a checkpoint of 100 GB in 20 s or so."""
    return Checkpoint(
        uid=f"{kind.value}-{number}",
        kind=kind,
        job="train",
        run=Run(key="slurm:alpha/8812.0", scheduler="slurm", job="8812", nodes=64),
        framework=("torch", "deepspeed")[number % 2],
        step=number * 100,
        ranks=8,
        start_ns=end_ns - 20_000_000_000 - number,
        end_ns=end_ns,
        bytes=100 * 10**9,
        files=9,
        path="/mnt/ckpt/step",
        writers=(),
        pattern=Pattern(class_=tuple(PatternClass)[number % 3]),
        level=Level.POLL,
        limitations=(),
        evidence=(),
        confidence=0.9,
        durable_ns=end_ns + 1_000_000_000 if kind is Kind.SAVE else None,
        mode=tuple(Mode)[number % 2] if kind is Kind.SAVE else None,
        stall_ns=2_000_000_000 if kind is Kind.SAVE else None,
        written_bytes=200 * 10**9 if kind is Kind.SAVE else None,
        unique_bytes=100 * 10**9,
        cache="cold" if kind is Kind.RESTORE else None,
        verdict=Verdict(
            limit=Limit.DEVICE,
            sentence="20 s, of which 15 s the device was busy.",
            confidence=0.9,
            seconds=15.0,
            accounts=(
                Account(limit=Limit.DEVICE, seconds=15.0, text="busy"),
                Account(limit=Limit.SERIALIZE, seconds=3.0, text="on CPU"),
                Account(limit=None, seconds=2.0, text="asleep"),
            ),
            evidence=(),
            excluded=(),
            expected_seconds=5.0,
        ),
        cost=Cost(gpus=8, gpu_seconds=16.0) if kind is Kind.SAVE else None,
    )


def advance(metrics: Metrics, tick: int, wall_ns: int, *, service_at_poll: bool = False) -> None:
    """Feed one tick, and at every tenth a save, at the first also a restore.

    A service that polls has no trace, and is not told when a save was durable, nor on how many GPUs a job computes.
    """
    told = frame(tick, wall_ns)
    if service_at_poll:
        samples = tuple(sample for sample in told.samples if not isinstance(sample, TraceHealth))
        told = msgspec.structs.replace(told, samples=samples)
    metrics.observe(told)
    metrics.recorder(health(tick))
    if tick % 10 == 1:
        save = checkpoint(tick // 10, Kind.SAVE, wall_ns)
        if tick % 50 == 21:
            save = msgspec.structs.replace(save, status=Status.INCOMPLETE)
        metrics.checkpoint(msgspec.structs.replace(save, durable_ns=None, cost=None) if service_at_poll else save)
    if tick == 1:
        metrics.checkpoint(checkpoint(0, Kind.RESTORE, wall_ns))
