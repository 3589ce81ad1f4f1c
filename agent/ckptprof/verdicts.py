"""Conclusions on checkpoints: where the time went, what limited them, their cost, and what to do first."""

from __future__ import annotations

from enum import Enum

import msgspec

from ckptprof.bounds import Share

THROTTLED = "throttled"  # as a cause: by a cgroup or a volume; such a disk is not a slow one


class Limit(str, Enum):
    """The limit of a checkpoint; the closed list (docs/diagnosis.md)."""

    GATHER = "gather"
    STAGING = "staging"
    SERIALIZE = "serialize"
    CPU = "cpu"
    PAGE_CACHE = "page-cache"
    FLUSH = "flush"
    DEVICE = "device"
    NETWORK = "network"
    SERVER = "server"
    SMALL_IO = "small-io"
    METADATA = "metadata"
    STRAGGLER = "straggler"
    SINGLE_WRITER = "single-writer"
    PREVIOUS_SAVE = "previous-save"
    CLEAN_UP = "clean-up"
    PAGE_FAULT = "page-fault"
    NONE = "none"  # nothing was slow
    UNCLEAR = "unclear"  # contradictory or missing evidence; `candidates` has the likeliest

    @property
    def word(self) -> str:
        """The limit as reports show it: for somebody who trains, a device is a GPU."""
        return "disk" if self is Limit.DEVICE else self.value


class Account(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A part of the critical path; the accounts of a checkpoint add up to its `seconds`."""

    limit: Limit | None  # None: unexplained time
    seconds: float
    text: str  # description with numbers
    runnable_seconds: float = 0.0  # of these, the time for which this work waited for a CPU


class Alternative(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A second remedy of a checkpoint, with its own gain."""

    limit: Limit
    remedy: str
    expected_seconds: float  # the duration with this remedy alone


class Verdict(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What limited a checkpoint, with evidence, ruled-out limits, and the gain without the limit."""

    limit: Limit
    sentence: str  # the conclusion
    confidence: Share
    seconds: float  # duration of the critical path
    accounts: tuple[Account, ...]  # the largest first
    evidence: tuple[str, ...]  # supporting numbers
    excluded: tuple[str, ...]  # numbers that rule out other limits
    missing: tuple[str, ...] = ()  # missing observations that lower the confidence
    candidates: tuple[Limit, ...] = ()  # of an unclear verdict, the likeliest first; else the runner-up
    expected_seconds: float | None = None  # `seconds` without this limit
    capped_by: str | None = None  # the next limit then, or the minimum time of the same work
    cause: str | None = None  # the best matching rule: its short stable name
    remedy: str | None = None  # one concrete action
    reference: str | None = None  # published reference
    throttle_bytes_per_second: float | None = None  # the disk was throttled to this rate by a cgroup
    alternative: Alternative | None = None  # what would also help: `remedy` removes work, this its waits, or reversed


class InterimVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on a save or restore in progress, as if it ended now."""

    limit: Limit
    candidates: tuple[Limit, ...]  # of an unclear verdict, the likeliest first; else the runner-up
    confidence: Share
    seconds: float  # of the critical path so far
    accounts: tuple[Account, ...]  # the four largest of it, the largest first


class Cost(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The cost of one checkpoint; None: unknown."""

    stall_seconds: float | None = None
    background_seconds: float | None = None  # in the background of training
    gpus: int | None = None
    gpus_from: str | None = None  # given | nvml | ranks
    gpu_seconds: float | None = None  # stall times GPUs
    bytes_per_second: float | None = None  # effective: bytes over duration, by the slowest rank
    bytes_per_second_per_gpu: float | None = None
    ceiling_share: float | None = None  # of the fastest rate that `ckptprof ceiling` measured on this path
    tier: str | None = None  # DGX SuperPOD storage tier reached: light | medium | high | below
    durable_on_return: bool | None = None  # of a save: all data was on stable storage on return
    durable_bytes_per_second: float | None = None  # including sync, measured or estimated


class Headline(msgspec.Struct, frozen=True, kw_only=True):
    """The limit of most of the lost time, and what to do first."""

    limit: Limit
    seconds: float  # lost at most: its part of the stall; without an observed stall, of all unless async
    share: float  # share of all lost time
    count: int  # checkpoints with this limit
    sentence: str
    remedy: str | None  # that wins most, by what is known
    gain: str | None = None  # how much of the lost time goes with it, in which checkpoints, and the next limit


class DirectionCost(msgspec.Struct, frozen=True, kw_only=True):
    """The saves of a job, or its restores."""

    count: int
    complete: int
    seconds: float  # MLPerf: each as long as its slowest rank; sum
    stall_seconds: float | None  # of those with a known stall
    bytes: int
    mean_seconds: float | None  # of the complete ones, as all below; None without any
    max_seconds: float | None
    bytes_per_second: float | None  # MLPerf: of the median one, by its slowest rank
    gibibytes_per_second: float | None
    bytes_per_second_per_gpu: float | None
    tier: str | None  # light | medium | high | below
    ceiling_share: float | None  # the median
    durable_known: int = 0  # saves with a known durable_on_return
    durable_on_return: int = 0  # of these, the number on stable storage on return
    durable_bytes_per_second: float | None = None  # as in the cost of a checkpoint: the median


class JobCost(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of a job's checkpoints; None: unknown."""

    job: str
    count: int
    run_seconds: float | None  # until its next checkpoint is due, at most what was recorded
    stall_seconds: float | None
    background_seconds: float | None
    stalls_unknown: int  # checkpoints with an unknown stall
    gpus: int | None
    gpus_from: str | None
    gpu_seconds: float | None
    share: float | None  # share of the run for which training was blocked
    exceeds_snia: bool | None  # the share is above 5 %
    judgement: str | None  # against SNIA's 5 %, and the 12 % and 43 % of the field
    interval_seconds: float | None  # between the starts of two saves, the median
    saves: DirectionCost | None
    restores: DirectionCost | None
