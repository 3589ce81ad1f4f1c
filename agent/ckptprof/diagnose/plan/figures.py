"""The figures that a plan is made from, each with where it came from."""

from __future__ import annotations

from enum import Enum

import msgspec


class Origin(str, Enum):
    """Where a figure came from."""

    GIVEN = "given"
    MEASURED = "measured"  # from checkpoints that were recorded
    ASSUMED = "assumed"
    DERIVED = "worked out"  # from figures that stand beside it


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One number in the base unit of its name (seconds, bytes, bytes per second), with its origin."""

    value: float
    origin: Origin
    text: str = ""  # from what, for a person


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What was given; None: not. `limits` says which values are possible."""

    parameters: float | None = None
    bytes_per_parameter: float | None = None
    size_bytes: float | None = None
    gpus: int | None = None
    gpus_per_node: int | None = None
    mttf_seconds: float | None = None
    mttf_per_gpu_seconds: float | None = None
    failures: int | None = None  # counted in
    failures_seconds: float | None = None
    cost_seconds: float | None = None  # how long a save holds training
    duration_seconds: float | None = None  # until a save is written
    interval_seconds: float | None = None  # as it is today
    restart_seconds: float | None = None
    step_seconds: float | None = None
    write_bytes_per_second: float | None = None
    read_bytes_per_second: float | None = None
    free_bytes: float | None = None
    keep: int | None = None


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What the recorded checkpoints of one job tell; None: they do not."""

    job: str
    saves: int  # complete ones
    costs: int  # of which it is known for how long they blocked training
    other_jobs: int  # whose checkpoints were left out
    beside_training: bool = False  # whether one of them is not known to be sync
    ranks: int | None = None
    size: Figure | None = None
    cost: Figure | None = None
    duration: Figure | None = None
    rate: Figure | None = None
    interval: Figure | None = None
    restore: Figure | None = None
