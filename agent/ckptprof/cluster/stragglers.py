"""The node that a checkpoint waited for: last by more than clocks, chance and the spread of the others explain.

One save is chance: a node is called slow after three of its last ten saves, and if it was last more often than its turn
would come.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from statistics import median

import msgspec

from ckptprof.bounds import Amount, Count
from ckptprof.cluster.clocks import Timed
from ckptprof.cluster.model import ClusterCheckpoint, NodePart, Straggler
from ckptprof.verdicts import Limit

LEAST_EXCESS_NS = 1_000_000_000  # after the others: less is nothing to point at
LEAST_SHARE = 0.05  # of the duration: likewise
STANDS_OUT = 5  # times the median deviation of the others: even of a thousand nodes chance puts none so far out
LAST_SAVES = 10
SLOW_SAVES = 3  # of these
BEYOND_ITS_TURN = 2  # times as often as each node's turn would come
MORE_BYTES = 1.1  # times those of the others: from there on they may be why
AS_FAST = 0.9  # of the rate of the others: they are
_NS = 1_000_000_000


def last_of(group: Sequence[Timed], bound_ns: int) -> tuple[str, int] | None:
    """Return the node that the others waited for, and how long after their median end it ended; None: no node."""
    ends: dict[str, int] = {}
    for one in group:
        event = one.event.checkpoint  # its ranks were done with their own before one of them made the marker of all
        own_ns = max(
            (event.end_ns if writer.end_ns is None else writer.end_ns for writer in event.writers), default=None
        )
        end_ns = one.end_ns if own_ns is None else one.end_ns - max(0, event.end_ns - own_ns)
        ends[one.event.host] = max(end_ns, ends.get(one.event.host, end_ns))
    if len(ends) == 1:
        return None
    last = max(ends, key=ends.__getitem__)
    if _commits(group) == {last}:  # after all others, whichever it had to wait for
        waited_for = last_of([one for one in group if one.event.host != last], bound_ns)
        if waited_for is not None:
            return waited_for
    *others, last_ns = sorted(ends.values())
    middle = median(others)
    excess = last_ns - middle
    least = max(LEAST_EXCESS_NS, bound_ns, LEAST_SHARE * (last_ns - min(one.start_ns for one in group)))
    if excess <= least or excess <= STANDS_OUT * median(abs(end - middle) for end in others):
        return None
    return last, round(excess)


def _commits(group: Iterable[Timed]) -> set[str]:
    """Return the nodes of rank 0: one, which writes what makes a save whole once all others have theirs."""
    return {one.event.host for one in group if any(writer.rank == 0 for writer in one.event.checkpoint.writers)}


def told(host: str, excess_ns: int, parts: Sequence[NodePart]) -> Straggler:
    """Return what is told of a straggler by itself, without its past."""
    (own,) = (part for part in parts if part.host == host)
    others = [part for part in parts if part.host != host]
    usual, usual_ns = median(part.bytes for part in others), median(part.end_ns - part.start_ns for part in others)
    more = own.bytes / usual if usual else None
    is_as_fast = own.bytes * usual_ns >= AS_FAST * usual * (own.end_ns - own.start_ns)
    gpus = [part.gpus for part in others if part.gpus is not None]
    return Straggler(
        host=host,
        excess_seconds=excess_ns / _NS,
        limit=own.limit,
        bytes_ratio=more,
        is_by_size=more is not None and more >= MORE_BYTES and is_as_fast,
        waited_gpu_seconds=excess_ns / _NS * sum(gpus) if gpus else None,
        times=1,
        saves=1,
        is_slow=False,
    )


def with_past(checkpoints: Iterable[ClusterCheckpoint]) -> list[ClusterCheckpoint]:
    """Return the checkpoints of one run and kind, in their order, with how often each straggler was one lately."""
    past: dict[str, deque[str | None]] = {}
    found = []
    for one in checkpoints:
        last = one.straggler
        for part in one.nodes:
            past.setdefault(part.host, deque(maxlen=LAST_SAVES)).append(last.host if last is not None else None)
        if last is not None:
            saves = past[last.host]
            times, turns = saves.count(last.host), len(saves) - saves.count(None)
            often = times >= SLOW_SAVES and times * len(one.nodes) >= BEYOND_ITS_TURN * turns and not last.is_by_size
            last = msgspec.structs.replace(last, times=times, saves=len(saves), is_slow=often)
            one = msgspec.structs.replace(one, straggler=last)  # noqa: PLW2901 # the same with more known of it
        found.append(one)
    return found


class SlowNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that a run waited for again and again."""

    host: str
    job: str
    run: str | None  # its key
    times: Count  # that it was the straggler
    saves: Count  # in which it took part
    excess_seconds: Amount  # from the median end of the others to its end, of these times together
    waited_gpu_seconds: Amount | None  # of the other nodes, meanwhile
    limit: Limit | None  # its own, most of these times


def slow_nodes(checkpoints: Sequence[ClusterCheckpoint]) -> tuple[SlowNode, ...]:
    """Return the nodes that are called slow in any of these, that which cost the most first."""
    waits: dict[tuple[str | None, str], list[tuple[ClusterCheckpoint, Straggler]]] = {}
    took_part = Counter[tuple[str | None, str]]()
    for one in checkpoints:
        key = None if one.whole.run is None else one.whole.run.key
        took_part.update((key, part.host) for part in one.nodes if one.straggler is not None or len(one.nodes) > 1)
        if one.straggler is not None:
            waits.setdefault((key, one.straggler.host), []).append((one, one.straggler))
    found = [
        _slow(host, key, told, took_part[key, host])
        for (key, host), told in waits.items()
        if any(straggler.is_slow for _, straggler in told)
    ]
    return tuple(sorted(found, key=lambda one: (-one.excess_seconds, one.host)))


def _slow(host: str, key: str | None, told: Sequence[tuple[ClusterCheckpoint, Straggler]], saves: int) -> SlowNode:
    stragglers = [straggler for _, straggler in told]
    waited = [one.waited_gpu_seconds for one in stragglers if one.waited_gpu_seconds is not None]
    limits = Counter(one.limit for one in stragglers if one.limit is not None)
    return SlowNode(
        host=host,
        job=told[-1][0].whole.job,
        run=key,
        times=len(told),
        saves=saves,
        excess_seconds=sum(one.excess_seconds for one in stragglers),
        waited_gpu_seconds=sum(waited) if waited else None,
        limit=max(limits, key=limits.__getitem__, default=None),
    )


def clocks_off(checkpoints: Iterable[ClusterCheckpoint]) -> dict[str, float]:
    """Return the seconds by which clocks of nodes seem to be ahead of the others, negative behind, as of the last.

    Not where that is less than what is left of it from save to save.
    """
    off = {part.host: part for one in checkpoints for part in one.nodes if part.ahead_seconds is not None}
    return {
        host: part.ahead_seconds
        for host, part in off.items()
        if part.ahead_seconds is not None and abs(part.ahead_seconds) > (part.clock_bound_seconds or 0)
    }
