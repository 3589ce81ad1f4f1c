"""What was concluded of checkpoints: where their time went, what limited them, what that cost, and what to do first."""

from __future__ import annotations

from enum import Enum

import msgspec

from ckptprof.bounds import Share


class Limit(str, Enum):
    """What bounded a checkpoint; the closed list (docs/diagnosis.md)."""

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
    UNCLEAR = "unclear"  # the evidence contradicts itself, or is missing; `candidates` names the likeliest


class Account(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A part of the critical path; the accounts of a checkpoint add up to its `seconds`."""

    limit: Limit | None  # None: time that nothing explains
    seconds: float
    text: str  # what was seen, with numbers, for a person


class Verdict(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What limited a checkpoint, why that and not its neighbours, and what would be gained without it."""

    limit: Limit
    sentence: str  # the one that an expert would sign
    confidence: Share
    seconds: float  # of the critical path: the time that is explained
    accounts: tuple[Account, ...]  # the largest first
    evidence: tuple[str, ...]  # numbers that speak for it
    excluded: tuple[str, ...]  # numbers that exclude its neighbours
    lacking: tuple[str, ...] = ()  # what could not be seen, and lowers the confidence
    candidates: tuple[Limit, ...] = ()  # of an unclear one, the likeliest first; else the runner-up
    expected_seconds: float | None = None  # what `seconds` would be if this limit went
    capped_by: str | None = None  # what bounds it then: the next limit, or what the same work takes at least
    cause: str | None = None  # the rule that fits best, if one does: its short stable name
    remedy: str | None = None  # one concrete line
    reference: str | None = None  # where that was seen before


class SoFar(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict that a save or restore would have if it were over now."""

    limit: Limit
    candidates: tuple[Limit, ...]  # of an unclear one, the likeliest first; else the runner-up
    confidence: Share
    seconds: float  # of the critical path so far
    accounts: tuple[Account, ...]  # the four largest of it, the largest first


class Cost(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What one checkpoint cost; None: not known."""

    stall_seconds: float | None = None
    background_seconds: float | None = None  # it went on beside training
    gpus: int | None = None
    gpus_from: str | None = None  # given | nvml | ranks
    gpu_seconds: float | None = None  # stall times GPUs
    bytes_per_second: float | None = None  # effective: bytes over duration, by the slowest rank
    bytes_per_second_per_gpu: float | None = None
    ceiling_share: float | None = None  # of what this path was seen to be able to
    ceiling_from: str | None = None
    tier: str | None = None  # of DGX SuperPOD storage that this reaches: light | medium | high | below
    durable_on_return: bool | None = None  # of a save: all of it was on stable storage when it returned
    durable_bytes_per_second: float | None = None  # to stable storage; if it did not wait for that, as if synced


class Headline(msgspec.Struct, frozen=True, kw_only=True):
    """What limited most of the lost time, and what to do first."""

    limit: Limit
    seconds: float  # lost by it at most: its part of the stall; where none was seen, of all unless it was async
    share: float  # of all time lost at most
    count: int  # checkpoints that it limited
    sentence: str
    remedy: str | None


class DirectionCost(msgspec.Struct, frozen=True, kw_only=True):
    """The saves of a job, or its restores."""

    count: int
    complete: int
    seconds: float  # MLPerf: each as long as its slowest rank; all together
    stall_seconds: float | None  # of those of which it is known
    bytes: int
    mean_seconds: float | None  # of the complete ones, as all that follows; None without any
    worst_seconds: float | None
    bytes_per_second: float | None  # MLPerf: of the median one, by its slowest rank
    gibibytes_per_second: float | None
    bytes_per_second_per_gpu: float | None
    tier: str | None  # light | medium | high | below
    ceiling_share: float | None  # the median
    durable_known: int = 0  # saves of which it is known whether they were on stable storage when they returned
    durable_on_return: int = 0  # of these, how many were
    durable_bytes_per_second: float | None = None  # to stable storage, as of a checkpoint: the median


class JobCost(msgspec.Struct, frozen=True, kw_only=True):
    """What the checkpoints of a job cost it; None: not known."""

    job: str
    count: int
    run_seconds: float | None  # that it was watched for
    stall_seconds: float | None
    background_seconds: float | None
    stalls_unknown: int  # checkpoints of which nothing tells how long they blocked training
    gpus: int | None
    gpus_from: str | None
    gpu_seconds: float | None
    share: float | None  # of the run that training was blocked for
    over_snia: bool | None  # the share is above 5 %
    judgement: str | None  # against SNIA's 5 %, and the 12 % and 43 % of the field
    interval_seconds: float | None  # between the starts of two saves, the median
    saves: DirectionCost | None
    restores: DirectionCost | None
