"""Nodes on one clock, and which of their events are one checkpoint: of one run or folder, kind, step and time.

A clock is taken as far as its kernel vouches for it, and as the starts of one run's saves tell.

The nodes of a run begin a save together. One that begins each of them so much later or earlier than the others, beyond
what its clock may be off, has a clock that is off, or is late by itself: either way that much says nothing of how long
it took, and is taken off.

Nothing is joined without a key: two jobs that save in the same second are two. Sorted and swept once, so that the work
grows with the events, not with their pairs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from statistics import median, median_high, median_low
from typing import NamedTuple

from ckptprof.cluster.model import NodeRecord
from ckptprof.model import Checkpoint, Kind, Level

UNKNOWN_BOUND_NS = 60_000_000_000  # that a clock is taken to be off, of which nobody knows
LEAST_SAVES = 3  # that tell how far a clock is off
NEAREST_SAVES = 10  # clocks that nobody sets drift apart: by these alone is it told
LEAST_REACH_NS = 30_000_000_000  # two starts may be apart, however often the run saves
_FOLDER = "folder"


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


def distinct(records: Iterable[NodeRecord]) -> list[Event]:
    """Return each event once, though a database was given twice, or two recorders watched one host."""
    by_uid: dict[str, Event] = {}
    for record in records:
        for one in record.checkpoints:
            known = by_uid.get(one.uid)
            if known is None or _told(one) > _told(known.checkpoint):
                by_uid[one.uid] = Event(record.host, record.database, one)
    same: dict[tuple[object, ...], list[Event]] = {}
    for event in by_uid.values():
        one = event.checkpoint
        same.setdefault((event.host, one.kind, one.step, one.path), []).append(event)
    return [event for events in same.values() for event in _seen_once(events)]


def _told(one: Checkpoint) -> tuple[bool, bool, int]:
    """Return how much is known of an event: a later copy of a database knows more."""
    return one.durable_ns is not None, one.verdict is not None, one.end_ns


def _seen_once(events: list[Event]) -> list[Event]:
    """Return the events of one host, kind, step and path without those that another recorder saw better."""
    if len({event.database for event in events}) == 1:
        return events
    kept: list[Event] = []
    for event in sorted(events, key=_quality, reverse=True):
        if not any(_are_one(event, other) for other in kept):
            kept.append(event)
    return kept


def _quality(event: Event) -> tuple[bool, int, str]:
    one = event.checkpoint
    return one.level is Level.TRACE, one.bytes, one.uid


def _are_one(event: Event, other: Event) -> bool:
    one, two = event.checkpoint, other.checkpoint
    overlap = one.start_ns <= two.end_ns and two.start_ns <= one.end_ns
    pids = {writer.pid for writer in two.writers}
    return event.database != other.database and overlap and any(writer.pid in pids for writer in one.writers)


def key_of(one: Checkpoint) -> tuple[object, ...] | None:
    """Return what joins an event with those of other nodes; None: nothing does."""
    if one.kind is Kind.COPY:  # of whoever moves checkpoints: no part of a job's
        return None
    if one.run is not None:
        return "run", one.run.key, one.run.restart or 0  # what 0 is called by some, others do not tell
    if one.place is not None and one.place.shared and one.path is not None:
        folder = one.path.rpartition("/")[0] if one.files == 1 else one.path
        return _FOLDER, one.place.key, folder.rpartition("/")[2]  # an inode may be that of another folder later
    return None


def is_of_one(key: tuple[object, ...], events: Iterable[Event]) -> bool:
    """Return whether what has one key may be parts of the same; a folder may have those of anyone.

    It has them of one where all that is known of it is one step, and no rank of it is on two nodes.
    """
    if key[0] != _FOLDER:
        return True
    steps, hosts = set[int | None](), dict[int, str]()
    for host, _, one in events:
        steps.add(one.step)
        ranks = {writer.rank for writer in one.writers if writer.rank is not None}
        if any(hosts.setdefault(rank, host) != host for rank in ranks):
            return False
    return len(steps - {None}) == 1


class _Group:
    def __init__(self, first: Timed) -> None:
        self.start_ns = first.start_ns
        self.end_ns = first.end_ns
        self.bound_ns = _bound(first)
        self.step = first.event.checkpoint.step
        self.ends_ns = {first.event.host: first.end_ns}
        self.paths = {first.event.checkpoint.path}
        self.events = [first]

    def takes(self, one: Timed, reach_ns: int) -> bool:
        """Return whether an event that begins no earlier is of this checkpoint, too."""
        step = one.event.checkpoint.step
        apart_ns, gap_ns = one.start_ns - self.start_ns, one.start_ns - self.end_ns
        if step is None or self.step is None:
            near = gap_ns <= min(reach_ns, self.bound_ns + _bound(one)) or apart_ns <= reach_ns
        else:
            near = step == self.step and (
                gap_ns <= self.bound_ns + _bound(one) or apart_ns <= max(LEAST_REACH_NS, reach_ns)
            )
        return near and one.start_ns <= self.ends_ns.get(one.event.host, one.start_ns)

    def add(self, one: Timed) -> None:
        """Take it in."""
        host = one.event.host
        self.end_ns = max(self.end_ns, one.end_ns)
        self.bound_ns = max(self.bound_ns, _bound(one))
        self.step = one.event.checkpoint.step if self.step is None else self.step
        self.ends_ns[host] = max(one.end_ns, self.ends_ns.get(host, one.end_ns))
        self.paths.add(one.event.checkpoint.path)
        self.events.append(one)


def joined(events: Sequence[Timed]) -> list[list[Timed]]:
    """Return the events of one key and kind, in the order of their starts, as checkpoints in that order."""
    reach_ns = _reach_ns(events)
    longest_ns = max(map(_bound, events), default=0)
    found: list[_Group] = []
    open_: list[_Group] = []
    for one in events:
        open_ = [group for group in open_ if _until_ns(group, reach_ns) + longest_ns >= one.start_ns]
        fitting = [group for group in open_ if group.takes(one, reach_ns)]
        if fitting:
            path = one.event.checkpoint.path
            # Called at once
            min(fitting, key=lambda group: (path not in group.paths, one.start_ns - group.start_ns)).add(one)
        else:
            open_.append(_Group(one))
            found.append(open_[-1])
    return [group.events for group in found]


def _bound(one: Timed) -> int:
    return UNKNOWN_BOUND_NS if one.bound_ns is None else one.bound_ns


def _until_ns(group: _Group, reach_ns: int) -> int:
    """Return when the last event begins that may be of a group, but for the clock of that event."""
    return max(group.end_ns + group.bound_ns, group.start_ns + max(LEAST_REACH_NS, reach_ns))


def _reach_ns(events: Sequence[Timed]) -> int:
    """Return half of the time from one checkpoint of a node to its next one, in the median."""
    by_host: dict[str, list[int]] = {}
    for one in events:
        by_host.setdefault(one.event.host, []).append(one.start_ns)
    apart = [later - earlier for starts in by_host.values() for earlier, later in pairwise(starts)]
    return round(median(apart)) // 2 if apart else LEAST_REACH_NS
