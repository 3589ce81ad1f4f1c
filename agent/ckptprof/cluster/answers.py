"""The answers to the questions of `ckptprof fleet`; each is one row of a query (`ckptprof/fleet/sql`)."""

from __future__ import annotations

import msgspec

from ckptprof.bounds import Amount, Count, Share
from ckptprof.verdicts import Limit


class FleetAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Common fields of all answers."""

    checkpoints: Count  # saves and restores; one across nodes counts once
    unread: tuple[str, ...] = ()  # errors of unreadable databases, whose checkpoints are missing


class StragglerNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that others waited for."""

    host: str
    times: Count  # times as the last node, by more than clock error
    saves: Count  # and restores across nodes with its participation
    excess_seconds: Amount  # sum of its delays after the median end of the others
    max_seconds: Amount  # the longest delay
    waited_gpu_seconds: Amount | None  # of the other nodes, waiting
    limit: Limit | None  # its most frequent limit at these times
    jobs: tuple[str, ...]  # that waited for it
    by_size: Count  # of these times: more bytes than the others at the same rate
    is_slow: bool  # last in three of its last ten saves of a run, and more often than by chance


class Stragglers(FleetAnswer, frozen=True, kw_only=True):
    """The nodes that others waited for, the most costly first."""

    of_several: Count  # checkpoints across nodes: only these count here
    within_clock_error: Count  # of these: the last node is unknown
    nodes: tuple[StragglerNode, ...]


class CostRow(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of checkpoints of one group (job, week ...). None: unknown."""

    name: str  # of the job, run, framework ...; of a week: 2026-W48
    job: str | None  # common job of all
    saves: Count
    restores: Count
    incomplete: Count
    nodes: Count  # maximum of one checkpoint
    gpus: Count | None  # maximum of one run
    stall_seconds: Amount | None  # time training was blocked, sum of all runs
    stalls_unknown: Count  # checkpoints with an unknown stall
    gpu_seconds: Amount | None  # blocked time times GPUs, sum of nodes
    run_seconds: Amount | None  # of the runs, from the first checkpoint of each until the next is due
    allocated_gpu_seconds: Amount | None  # run_seconds times GPUs
    share: Share | None  # share of run time in which training was blocked, for runs with both known
    gpu_share: Share | None  # the same of GPU time
    exceeds_snia: bool | None  # gpu_share, or share without GPUs, is above 5 %
    median_save_seconds: Amount | None  # of complete saves, by the slowest rank
    bytes_per_second: Amount | None  # median of saves
    bytes_per_second_per_gpu: Amount | None  # likewise
    tier: str | None  # DGX SuperPOD storage tier reached: light | medium | high | below
    amplification: Amount | None  # written bytes relative to unique bytes of saves


class Costs(FleetAnswer, frozen=True, kw_only=True):
    """The cost of checkpoints, the most costly first; weeks in order."""

    by: str
    partial: Count  # checkpoints with nodes without a database: their waits are not included
    waited: Count  # checkpoints with nodes without a transfer: likewise
    rows: tuple[CostRow, ...]


class LimitRow(msgspec.Struct, frozen=True, kw_only=True):
    """The checkpoints on one storage with one limit."""

    storage: str  # its file system, by the same name on all nodes; object store, local (per node), not known
    limit: Limit | None  # None: no verdict
    count: Count
    jobs: Count
    nodes: Count  # with this limit; of a checkpoint across nodes, the last one
    lost_seconds: Amount  # time that training lost at most
    lost_share: Share | None  # of all time lost in this period; None: none lost
    median_seconds: Amount | None  # of complete checkpoints, by the slowest rank
    bytes_per_second: Amount | None  # the median
    gain_seconds: Amount | None  # total time saved without the limit; None: unknown


class Period(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of checkpoints that started in a period."""

    since_ns: int | None  # epoch nanoseconds; None: from the first checkpoint
    until_ns: int | None  # epoch nanoseconds; None: to the last checkpoint
    count: Count
    limits: tuple[LimitRow, ...]  # the most lost time first


class Limits(FleetAnswer, frozen=True, kw_only=True):
    """How many checkpoints had each limit, and the time that it cost."""

    periods: tuple[Period, ...]  # one, or two: before and after the given time


class NewestRow(msgspec.Struct, frozen=True, kw_only=True):
    """The newest restorable checkpoint of a job. None: unknown, or none."""

    job: str
    run: str  # last run of the job: its key, or node and job without a key
    nodes: Count  # maximum of one checkpoint
    step: int | None
    path: str | None
    saved_ns: int | None  # epoch nanoseconds: start of that save; None: none is restorable
    is_durable: bool | None  # on stable storage
    observed_until_ns: int  # epoch nanoseconds: end of the monitored time of its nodes
    age_seconds: Amount | None  # of the step at that time: the work that a failure would lose
    unusable: Count  # later saves that are incomplete or may restore wrongly
    saves: Count
    interval_seconds: Amount | None  # median time between the starts of saves
    is_overdue: bool | None  # the age exceeds twice the interval; the job may have ended
    restarts: Count  # runs of the job after the first
    resumed_seconds: Amount | None  # median time from the end of a run's newest restorable save to the end of
    # the next run's restore: recomputation or waiting
    stall_seconds: Amount | None  # median stall of a save
    mttf_seconds: Amount | None  # mean time between restarts for this number of nodes, from the whole fleet
    optimal_interval_seconds: Amount | None  # for this stall and mttf_seconds (Daly)


class NewestSteps(FleetAnswer, frozen=True, kw_only=True):
    """The newest restorable checkpoint of each job, the largest loss first."""

    node_seconds: Amount  # observed run time times nodes
    restarts: Count  # of all jobs
    jobs: tuple[NewestRow, ...]


class CollidingRun(msgspec.Struct, frozen=True, kw_only=True):
    """One of two runs that save at the same time."""

    job: str
    run: str
    saves: Count
    met: Count  # of these, during a save of the other run
    median_alone_seconds: Amount | None  # of saves without overlap on this storage; None: fewer than three
    median_met_seconds: Amount  # of saves that overlapped the other run
    interval_seconds: Amount | None  # between the starts of two saves, the median


class Collision(msgspec.Struct, frozen=True, kw_only=True):
    """Two runs that save at the same time on the same storage."""

    storage: str
    first: CollidingRun  # first by name
    second: CollidingRun
    overlap_seconds: Amount  # time in which both saved
    cost_seconds: Amount | None  # added duration of overlapping saves, both runs; None: no run has
    # three saves without overlap
    shift_seconds: Amount | None  # delay of the second run that puts its saves midway between those of the
    # first; None: different intervals, overlap by chance


class Collisions(FleetAnswer, frozen=True, kw_only=True):
    """Runs with overlapping saves, the most costly first."""

    elsewhere: Count  # saves on storage not known to be shared: not compared
    pairs: tuple[Collision, ...]


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A node, from its own database. None: unknown."""

    host: str
    database: str
    version: str | None  # of the last agent
    level: str | None  # of the last agent
    kernel: str | None
    is_clock_synchronised: bool | None  # by its kernel, at its last checkpoint
    clock_bound_seconds: Amount | None  # error bound of its clock, likewise
    ahead_seconds: float | None  # latest offset of its save starts after the others, by its own clock
    observed_until_ns: int | None  # epoch nanoseconds, by its own clock
    gaps: Count  # intervals without records
    checkpoints: Count
    silent_seconds: Amount | None  # time for which others of its run saved after its last record; None: they did not
    odd: tuple[str, ...]  # differences from most nodes (version, level, kernel), and clock: not synchronised, or offset


class Nodes(FleetAnswer, frozen=True, kw_only=True):
    """The nodes, those with differences first."""

    partial: Count  # checkpoints with nodes without a database
    nodes: tuple[NodeRow, ...]
