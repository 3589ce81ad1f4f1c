"""The nouns of a checkpoint over several nodes: frozen, free of I/O."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ckptprof.bounds import Amount, Count, one_of
from ckptprof.model import Checkpoint, Session, Watched
from ckptprof.verdicts import Limit


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What one database tells of a node."""

    database: str  # its path
    host: str
    watched: Watched
    checkpoints: tuple[Checkpoint, ...]
    session: Session | None = None  # the last life of its recorder


class NodePart(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What one node did of a checkpoint, as its own database tells it."""

    host: str
    database: str  # which has all that is known of it
    id: Count  # its number there
    uid: str
    start_ns: int  # epoch nanoseconds by the clock of the node
    end_ns: int  # epoch nanoseconds by the clock of the node
    ahead_seconds: float | None = None  # of its clock before those of the others, as the starts of saves tell; that
    # much is taken off here. None: its clock is taken at its word
    clock_bound_seconds: Amount | None = None  # its clock is off by at most so much more; None: nobody knows
    bytes: Count
    files: Count
    ranks: Count  # that moved them, as far as they were told apart
    stall_seconds: Amount | None = None
    gpus: Amount | None = None  # where one is counted for each rank: its share of those of the job
    gpu_seconds: Amount | None = None  # stall times GPUs
    limit: Limit | None = None
    path: str | None = None


class Straggler(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The node that ended long after the others, which waited for it."""

    host: str
    excess_seconds: Amount  # from the median end of the others
    limit: Limit | None  # its own
    bytes_ratio: Amount | None  # its bytes over the median of the others
    is_by_size: bool  # it has more bytes than the others, and is about as fast
    waited_gpu_seconds: Amount | None  # the excess times the GPUs of the others
    times: Count  # that it was the straggler of its last saves in this run, with this one
    saves: Count  # that these are: ten at most
    is_slow: bool  # it was often enough to call the node slow; once is chance


class ClusterCheckpoint(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A checkpoint of a job on all of its nodes, as far as their databases were given. None: not known."""

    whole: Checkpoint  # as one: sums of bytes, files and GPU time; from the first start to the last end, by one clock
    # (MLPerf: as long as its slowest rank); the verdict on the node that was last, or on what limited most of them
    nodes: tuple[NodePart, ...]  # those that moved its bytes, in the order of their names
    nodes_expected: Count | None = None  # that the run was given
    ranks_seen: Count  # that moved bytes, as far as they were told apart
    ranks_expected: Count | None = None
    waited: tuple[str, ...] = ()  # nodes of the run that were watched and moved nothing of it
    is_partial: bool = False  # fewer nodes of it were seen than it has: nothing is made up for the others
    place: Annotated[str, one_of("shared", "per-node")] | None = None  # one folder of all nodes, or each its own
    spread_seconds: Amount | None = None  # from the first node's end to the last one's; None for one node
    clock_bound_seconds: Amount | None = None  # two ends may be off by so much; None: nobody knows
    is_within_clock_error: bool = False  # the spread is no larger than that: no node was seen to be the last
    straggler: Straggler | None = None
