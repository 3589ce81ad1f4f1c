"""The straggler of a checkpoint: the last node, by more than clock error, chance and the spread of the others.

One save is chance: a node is called slow after three of its last ten saves, if it was last more often than by chance.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from statistics import median

import msgspec

from ckptprof.bounds import Amount, Count
from ckptprof.cluster.clocks import TimedEvent
from ckptprof.cluster.model import ClusterCheckpoint, NodePart, Straggler
from ckptprof.units import NS
from ckptprof.verdicts import Limit

LEAST_EXCESS_NS = 1_000_000_000  # after the others: less is negligible
LEAST_SHARE = 0.05  # of the duration: less is negligible
STANDS_OUT = 5  # times the median deviation of the others: beyond chance even for a thousand nodes
LAST_SAVES = 10
SLOW_SAVES = 3  # of these
BEYOND_ITS_TURN = 2  # times as often as by chance
MORE_BYTES = 1.1  # times those of the others: may explain the delay
AS_FAST = 0.9  # of the rate of the others: counts as equally fast


def find_last_node(group: Sequence[TimedEvent], bound_ns: int) -> tuple[str, int] | None:
    """Return the straggler and its delay after the median end of the others in ns; None: no straggler."""
    ends: dict[str, int] = {}
    for one in group:
        event = one.event.checkpoint  # its ranks finished before one of them wrote the marker
        own_ns = max(
            (event.end_ns if writer.end_ns is None else writer.end_ns for writer in event.writers), default=None
        )
        end_ns = one.end_ns if own_ns is None else one.end_ns - max(0, event.end_ns - own_ns)
        ends[one.event.host] = max(end_ns, ends.get(one.event.host, end_ns))
    if len(ends) == 1:
        return None
    last = max(ends, key=ends.__getitem__)
    if _commits(group) == {last}:  # it ends last in any case, because it commits
        waited_for = find_last_node([one for one in group if one.event.host != last], bound_ns)
        if waited_for is not None:
            return waited_for
    *others, last_ns = sorted(ends.values())
    middle = median(others)
    excess = last_ns - middle
    least = max(LEAST_EXCESS_NS, bound_ns, LEAST_SHARE * (last_ns - min(one.start_ns for one in group)))
    if excess <= least or excess <= STANDS_OUT * median(abs(end - middle) for end in others):
        return None
    return last, round(excess)


def _commits(group: Iterable[TimedEvent]) -> set[str]:
    """Return the node of rank 0, which commits after all others."""
    return {one.event.host for one in group if any(writer.rank == 0 for writer in one.event.checkpoint.writers)}


def describe_straggler(host: str, excess_ns: int, parts: Sequence[NodePart]) -> Straggler:
    """Describe a straggler of one checkpoint, without history."""
    (own,) = (part for part in parts if part.host == host)
    others = [part for part in parts if part.host != host]
    usual, usual_ns = median(part.bytes for part in others), median(part.end_ns - part.start_ns for part in others)
    more = own.bytes / usual if usual else None
    is_as_fast = own.bytes * usual_ns >= AS_FAST * usual * (own.end_ns - own.start_ns)
    gpus = [part.gpus for part in others if part.gpus is not None]
    return Straggler(
        host=host,
        excess_seconds=excess_ns / NS,
        limit=own.limit,
        bytes_ratio=more,
        is_by_size=more is not None and more >= MORE_BYTES and is_as_fast,
        waited_gpu_seconds=excess_ns / NS * sum(gpus) if gpus else None,
        times=1,
        saves=1,
        is_slow=False,
    )


def with_history(checkpoints: Iterable[ClusterCheckpoint]) -> list[ClusterCheckpoint]:
    """Return the checkpoints of one run and kind with the recent history of each straggler."""
    history: dict[str, deque[str | None]] = {}
    found = []
    for one in checkpoints:
        last = one.straggler
        for part in one.nodes:
            history.setdefault(part.host, deque(maxlen=LAST_SAVES)).append(last.host if last is not None else None)
        if last is not None:
            saves = history[last.host]
            times, turns = saves.count(last.host), len(saves) - saves.count(None)
            often = times >= SLOW_SAVES and times * len(one.nodes) >= BEYOND_ITS_TURN * turns and not last.is_by_size
            last = msgspec.structs.replace(last, times=times, saves=len(saves), is_slow=often)
            one = msgspec.structs.replace(one, straggler=last)  # noqa: PLW2901 # same object with more details
        found.append(one)
    return found


class SlowNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that a run waited for repeatedly."""

    host: str
    job: str
    run: str | None  # its key
    times: Count  # times as the straggler
    saves: Count  # with its participation
    excess_seconds: Amount  # sum of its delays after the median end of the others
    waited_gpu_seconds: Amount | None  # of the other nodes, waiting
    limit: Limit | None  # its most frequent limit at these times


def slow_nodes(checkpoints: Sequence[ClusterCheckpoint]) -> tuple[SlowNode, ...]:
    """Return the nodes called slow in any of these, the most costly first."""
    waits: dict[tuple[str | None, str], list[tuple[ClusterCheckpoint, Straggler]]] = {}
    participations = Counter[tuple[str | None, str]]()
    for one in checkpoints:
        key = None if one.whole.run is None else one.whole.run.key
        participations.update((key, part.host) for part in one.nodes if one.straggler is not None or len(one.nodes) > 1)
        if one.straggler is not None:
            waits.setdefault((key, one.straggler.host), []).append((one, one.straggler))
    found = [
        _slow(host, key, episodes, participations[key, host])
        for (key, host), episodes in waits.items()
        if any(straggler.is_slow for _, straggler in episodes)
    ]
    return tuple(sorted(found, key=lambda one: (-one.excess_seconds, one.host)))


def _slow(host: str, key: str | None, episodes: Sequence[tuple[ClusterCheckpoint, Straggler]], saves: int) -> SlowNode:
    stragglers = [straggler for _, straggler in episodes]
    waited = [one.waited_gpu_seconds for one in stragglers if one.waited_gpu_seconds is not None]
    limits = Counter(one.limit for one in stragglers if one.limit is not None)
    return SlowNode(
        host=host,
        job=episodes[-1][0].whole.job,
        run=key,
        times=len(episodes),
        saves=saves,
        excess_seconds=sum(one.excess_seconds for one in stragglers),
        waited_gpu_seconds=sum(waited) if waited else None,
        limit=max(limits, key=limits.__getitem__, default=None),
    )


def clocks_off(checkpoints: Iterable[ClusterCheckpoint]) -> dict[str, float]:
    """Return the latest clock offset of each node in seconds, positive ahead; without those within the error bound."""
    off = {part.host: part for one in checkpoints for part in one.nodes if part.ahead_seconds is not None}
    return {
        host: part.ahead_seconds
        for host, part in off.items()
        if part.ahead_seconds is not None and abs(part.ahead_seconds) > (part.clock_bound_seconds or 0)
    }
