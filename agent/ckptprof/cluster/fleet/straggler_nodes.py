"""Nodes that the others waited for, over all runs: how often, how long, and what limited them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from ckptprof.bounds import Amount, Count
from ckptprof.cluster.fleet.runs import FleetAnswer, saves_and_restores
from ckptprof.cluster.model import ClusterCheckpoint, Straggler
from ckptprof.verdicts import Limit


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


def stragglers(checkpoints: Sequence[ClusterCheckpoint]) -> Stragglers:
    """Return the stragglers of all jobs."""
    every = saves_and_restores(checkpoints)
    several = [one for one in every if len(one.nodes) > 1]
    participations = Counter(part.host for one in several for part in one.nodes)
    waits: dict[str, list[tuple[str, Straggler]]] = {}
    for one in several:
        if one.straggler is not None:
            waits.setdefault(one.straggler.host, []).append((one.whole.job, one.straggler))
    nodes = [_node(host, mine, participations[host]) for host, mine in waits.items()]
    return Stragglers(
        checkpoints=len(every),
        of_several=len(several),
        within_clock_error=sum(one.is_within_clock_error for one in several),
        nodes=tuple(sorted(nodes, key=lambda one: (-one.excess_seconds, one.host))),
    )


def _node(host: str, waits: Sequence[tuple[str, Straggler]], saves: int) -> StragglerNode:
    episodes = [straggler for _, straggler in waits]
    waited = [one.waited_gpu_seconds for one in episodes if one.waited_gpu_seconds is not None]
    limits = Counter(one.limit for one in episodes if one.limit is not None)
    return StragglerNode(
        host=host,
        times=len(episodes),
        saves=saves,
        excess_seconds=sum(one.excess_seconds for one in episodes),
        max_seconds=max(one.excess_seconds for one in episodes),
        waited_gpu_seconds=sum(waited) if waited else None,
        limit=max(limits, key=limits.__getitem__, default=None),
        jobs=tuple(sorted({job for job, _ in waits})),
        by_size=sum(one.is_by_size for one in episodes),
        is_slow=any(one.is_slow for one in episodes),
    )
