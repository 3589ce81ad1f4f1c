"""The data model of a checkpoint across several nodes: frozen, without I/O."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ckptprof.bounds import Amount, Count, one_of
from ckptprof.model import Checkpoint, Clock, Session, Watched
from ckptprof.verdicts import Limit


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of one node's database."""

    database: str  # its path
    host: str
    watched: Watched
    checkpoints: tuple[Checkpoint, ...]
    session: Session | None = None  # the last session of its recorder


class NodeState(msgspec.Struct, frozen=True, kw_only=True):
    """The recorder of a node: what it ships to the fleet each time. None: unknown."""

    host: str
    database: str  # its path; in a fleet its key
    version: str | None  # of the last agent
    level: str | None  # of the last agent
    kernel: str | None
    clock: Clock | None  # at its last checkpoint
    watched: Watched
    checkpoints: Count
    change: Count = 0  # the last change that was shipped
    lost: Count = 0  # checkpoints deleted before they were shipped


class NodePart(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One node's part of a checkpoint, from its own database."""

    host: str
    database: str  # with all details of it
    id: Count  # its id there
    uid: str
    start_ns: int  # epoch nanoseconds by the clock of the node
    end_ns: int  # epoch nanoseconds by the clock of the node
    ahead_seconds: float | None = None  # clock offset ahead of the others, from the starts of saves; subtracted
    # here. None: no correction
    clock_bound_seconds: Amount | None = None  # remaining error bound of its clock; None: unknown
    bytes: Count
    files: Count
    ranks: Count  # with transfers, as far as distinguishable
    stall_seconds: Amount | None = None
    gpus: Amount | None = None  # if counted by ranks: its share of the job's GPUs
    gpu_seconds: Amount | None = None  # stall times GPUs
    limit: Limit | None = None
    path: str | None = None


class Straggler(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The node that ended long after the others."""

    host: str
    excess_seconds: Amount  # after the median end of the others
    limit: Limit | None  # its own
    bytes_ratio: Amount | None  # its bytes relative to the median of the others
    is_by_size: bool  # more bytes than the others at about the same rate
    waited_gpu_seconds: Amount | None  # the excess times the GPUs of the others
    times: Count  # times it was the straggler of its last saves in this run, including this one
    saves: Count  # number of these saves, at most ten
    is_slow: bool  # often enough to call the node slow; once is chance


class ClusterCheckpoint(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A checkpoint of a job across the nodes whose databases were given. None: unknown."""

    whole: Checkpoint  # as one checkpoint: sums of bytes, files and GPU time; from the first start to the last end on
    # one clock (MLPerf: as long as its slowest rank); the verdict of the last node, or the most frequent one
    nodes: tuple[NodePart, ...]  # those with transfers, ordered by name
    nodes_expected: Count | None = None  # allocated to the run
    ranks_observed: Count  # with transfers, as far as distinguishable
    ranks_expected: Count | None = None
    waited: tuple[str, ...] = ()  # monitored nodes of the run without a transfer
    is_partial: bool = False  # not all nodes were observed; values cover the observed ones only
    place: Annotated[str, one_of("shared", "per-node")] | None = None  # one folder for all nodes, or one per node
    spread_seconds: Amount | None = None  # between the first and the last node's end; None for one node
    clock_bound_seconds: Amount | None = None  # error bound of the difference of two ends; None: unknown
    is_within_clock_error: bool = False  # the spread does not exceed it: the last node is unknown
    straggler: Straggler | None = None
    is_restorable: bool = (
        False  # a complete save without known risks, in which all nodes of its run that write took part
    )
