"""Which nodes the others waited for, over all runs: how often, how long, and what held them up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from ckptprof.bounds import Amount, Count
from ckptprof.cluster.fleet.runs import Told, counted
from ckptprof.cluster.model import ClusterCheckpoint, Straggler
from ckptprof.verdicts import Limit


class StragglerNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that others waited for."""

    host: str
    times: Count  # that it was the last, by more than clocks may be off
    saves: Count  # and restores with others in which it took part
    excess_seconds: Amount  # from the median end of the others to its end, of these times together
    worst_seconds: Amount  # the longest of them
    waited_gpu_seconds: Amount | None  # of the other nodes, meanwhile
    limit: Limit | None  # its own, most of these times
    jobs: tuple[str, ...]  # that waited for it
    by_size: Count  # of these times: it had more bytes than the others, and was as fast
    is_slow: bool  # in a run it was the last in three of its last ten, and more often than its turn would come


class Stragglers(Told, frozen=True, kw_only=True):
    """The nodes that others waited for, that which cost the most first."""

    of_several: Count  # checkpoints on more than one node: the others tell nothing here
    within_clock_error: Count  # of these: no node of them can be told to be the last
    nodes: tuple[StragglerNode, ...]


def stragglers(checkpoints: Sequence[ClusterCheckpoint]) -> Stragglers:
    """Return who was waited for, in whichever job."""
    every = counted(checkpoints)
    several = [one for one in every if len(one.nodes) > 1]
    took_part = Counter(part.host for one in several for part in one.nodes)
    waits: dict[str, list[tuple[str, Straggler]]] = {}
    for one in several:
        if one.straggler is not None:
            waits.setdefault(one.straggler.host, []).append((one.whole.job, one.straggler))
    nodes = [_node(host, mine, took_part[host]) for host, mine in waits.items()]
    return Stragglers(
        checkpoints=len(every),
        of_several=len(several),
        within_clock_error=sum(one.is_within_clock_error for one in several),
        nodes=tuple(sorted(nodes, key=lambda one: (-one.excess_seconds, one.host))),
    )


def _node(host: str, waits: Sequence[tuple[str, Straggler]], saves: int) -> StragglerNode:
    told = [straggler for _, straggler in waits]
    waited = [one.waited_gpu_seconds for one in told if one.waited_gpu_seconds is not None]
    limits = Counter(one.limit for one in told if one.limit is not None)
    return StragglerNode(
        host=host,
        times=len(told),
        saves=saves,
        excess_seconds=sum(one.excess_seconds for one in told),
        worst_seconds=max(one.excess_seconds for one in told),
        waited_gpu_seconds=sum(waited) if waited else None,
        limit=max(limits, key=limits.__getitem__, default=None),
        jobs=tuple(sorted({job for job, _ in waits})),
        by_size=sum(one.is_by_size for one in told),
        is_slow=any(one.is_slow for one in told),
    )
