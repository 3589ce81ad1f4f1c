"""The node that a checkpoint waited for: last by more than clocks, chance and the spread of the others explain.

One save is chance: a node is called slow after three of its last ten saves, and if it was last more often than its turn
would come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from statistics import median

import msgspec

from ckptprof.cluster.clocks import Timed
from ckptprof.cluster.model import ClusterCheckpoint, NodePart, Straggler

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
        end_ns = _own_end_ns(one)
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


def _own_end_ns(one: Timed) -> int:
    """Return when its ranks were done with their own, before one of them made the marker of all."""
    event = one.event.checkpoint
    own_ns = max((event.end_ns if writer.end_ns is None else writer.end_ns for writer in event.writers), default=None)
    return one.end_ns if own_ns is None else one.end_ns - max(0, event.end_ns - own_ns)


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
