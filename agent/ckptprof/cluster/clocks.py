"""Nodes on one clock: as far as each kernel vouches for its own, and as the starts of one run's saves tell.

The nodes of a run begin a save together. One that begins each of them so much later or earlier than the others, beyond
what its clock may be off, has a clock that is off, or is late by itself: either way that much says nothing of how long
it took, and is taken off.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from itertools import pairwise
from statistics import median_high, median_low
from typing import NamedTuple

from ckptprof.model import Checkpoint, Kind

UNKNOWN_BOUND_NS = 60_000_000_000  # that a clock is taken to be off, of which nobody knows
LEAST_SAVES = 3  # that tell how far a clock is off
NEAREST_SAVES = 10  # clocks that nobody sets drift apart: by these alone is it told


class Event(NamedTuple):
    """A checkpoint of one node."""

    host: str
    database: str
    checkpoint: Checkpoint


class Timed(NamedTuple):
    """An event on the clock that all nodes of its run share."""

    event: Event
    start_ns: int
    end_ns: int
    bound_ns: int | None  # it may be off by so much; None: nobody knows
    ahead_ns: int | None = None  # that was taken off; None: nothing was


class _Start(NamedTuple):
    """When a node began a save."""

    at_ns: int
    ahead_ns: int  # of the others
    bound_ns: int | None  # of the clock that the others go by


def on_one_clock(events: Sequence[Event]) -> list[Timed]:
    """Return the events of one run with the times that they have in common, in the order of these."""
    starts = _starts(events)
    return sorted((_timed(event, starts.get(event.host, ())) for event in events), key=lambda one: one.start_ns)


def bound_ns(checkpoint: Checkpoint) -> int | None:
    """Return how far the clock of its host may have been off; None: nobody knows."""
    clock = checkpoint.clock
    return clock.bound_ns if clock is not None and clock.synchronised else None


def _starts(events: Sequence[Event]) -> dict[str, list[_Start]]:
    """Return for each node when it began its saves, beside the other nodes; in order."""
    saves: dict[int, dict[str, Checkpoint]] = {}
    again = set[int]()
    for host, _, one in events:
        if one.kind is Kind.SAVE and one.step is not None:
            of_step = saves.setdefault(one.step, {})
            if host in of_step:  # of a run that went back, or of a save in parts
                again.add(one.step)
            of_step[host] = one
    found: dict[str, list[_Start]] = {}
    for step, nodes in saves.items():
        if step in again or len(nodes) == 1 or _are_two_runs(nodes.values()):
            continue
        vouched = [(one.start_ns, bound) for one in nodes.values() if (bound := bound_ns(one)) is not None]
        # Of two the later: a clock that was never set is in 1970
        middle_ns = median_high([at_ns for at_ns, _ in vouched] or [one.start_ns for one in nodes.values()])
        off_ns = median_low(bound for _, bound in vouched) if vouched else None
        for host, one in nodes.items():
            found.setdefault(host, []).append(_Start(one.start_ns, one.start_ns - middle_ns, off_ns))
    for of_host in found.values():
        of_host.sort()
    return found


def _are_two_runs(nodes: Collection[Checkpoint]) -> bool:
    """Return whether a step is of two runs with one key: a node of it has two hosts, or several are far from others.

    A job that is made again, on other nodes, may have the key of the last one.
    """
    by_node: dict[int, list[int]] = {}
    for one in nodes:
        if one.run is not None and one.run.node is not None:
            by_node.setdefault(one.run.node, []).append(one.start_ns)
    if any(max(starts) - min(starts) > UNKNOWN_BOUND_NS for starts in by_node.values()):
        return True
    starts = sorted(one.start_ns for one in nodes)
    far = [at for at, (one, later) in enumerate(pairwise(starts), start=1) if later - one > UNKNOWN_BOUND_NS]
    return sum(after - at > 1 for at, after in pairwise([0, *far, len(starts)])) > 1


def _timed(event: Event, starts: Sequence[_Start]) -> Timed:
    one = event.checkpoint
    bound = bound_ns(one)
    at = bisect_left(starts, (one.start_ns,))
    first = max(0, min(at - NEAREST_SAVES // 2, len(starts) - NEAREST_SAVES))
    near = starts[first : first + NEAREST_SAVES]
    if len(near) < LEAST_SAVES:
        return Timed(event, one.start_ns, one.end_ns, bound)
    aheads = sorted(start.ahead_ns for start in near)
    ahead = median_high(aheads)
    others = near[0].bound_ns
    if bound is not None and others is not None and abs(ahead) <= bound + others:
        return Timed(event, one.start_ns, one.end_ns, bound)
    rest = max(ahead - aheads[0], aheads[-1] - ahead)
    return Timed(event, one.start_ns - ahead, one.end_ns - ahead, rest, ahead)
