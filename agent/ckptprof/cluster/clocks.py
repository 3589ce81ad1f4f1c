"""Align the clocks of nodes, and join their events into checkpoints: by run or folder, kind, step and time.

The nodes of a run start a save together. A node that starts every save earlier or later than the others, by more than
its clock's error bound (from its kernel), has a clock offset or a constant delay; either is subtracted, because it is
not part of the duration.

Events are joined only by a key: two jobs that save in the same second stay separate. Events are sorted and swept once,
so that the work is linear in events.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from statistics import median, median_high, median_low
from typing import NamedTuple

from ckptprof.cluster.model import NodeRecord
from ckptprof.model import Checkpoint, Kind, Level

UNKNOWN_BOUND_NS = 60_000_000_000  # assumed error of an unsynchronised clock
LEAST_SAVES = 3  # needed to estimate a clock offset
NEAREST_SAVES = 10  # used for the offset: unsynchronised clocks drift
LEAST_REACH_NS = 30_000_000_000  # allowed distance of two starts, for any save interval
_FOLDER = "folder"


class NodeEvent(NamedTuple):
    """A checkpoint of one node."""

    host: str
    database: str
    checkpoint: Checkpoint


class TimedEvent(NamedTuple):
    """An event on the clock that all nodes of its run share."""

    event: NodeEvent
    start_ns: int
    end_ns: int
    bound_ns: int | None  # error bound; None: unknown
    ahead_ns: int | None = None  # subtracted offset; None: none


class _Start(NamedTuple):
    """The start of a save on a node."""

    at_ns: int
    ahead_ns: int  # relative to the others
    bound_ns: int | None  # error bound of the others' clock


def align_clocks(events: Sequence[NodeEvent]) -> list[TimedEvent]:
    """Return the events of one run on a common clock, sorted by start."""
    starts = _starts(events)
    return sorted((_timed(event, starts.get(event.host, ())) for event in events), key=lambda one: one.start_ns)


def bound_ns(checkpoint: Checkpoint) -> int | None:
    """Return the error bound of its host's clock; None: unknown."""
    clock = checkpoint.clock
    return clock.bound_ns if clock is not None and clock.synchronised else None


def _starts(events: Sequence[NodeEvent]) -> dict[str, list[_Start]]:
    saves: dict[int, dict[str, Checkpoint]] = {}
    repeated = set[int]()
    for host, _, one in events:
        if one.kind is Kind.SAVE and one.step is not None:
            of_step = saves.setdefault(one.step, {})
            if host in of_step:  # a run that resumed from an earlier step, or a save in parts
                repeated.add(one.step)
            of_step[host] = one
    found: dict[str, list[_Start]] = {}
    for step, nodes in saves.items():
        if step in repeated or len(nodes) == 1 or _are_two_runs(nodes.values()):
            continue
        vouched = [(one.start_ns, bound) for one in nodes.values() if (bound := bound_ns(one)) is not None]
        # Of two, the later one: a clock never set is in 1970
        middle_ns = median_high([at_ns for at_ns, _ in vouched] or [one.start_ns for one in nodes.values()])
        off_ns = median_low(bound for _, bound in vouched) if vouched else None
        for host, one in nodes.items():
            found.setdefault(host, []).append(_Start(one.start_ns, one.start_ns - middle_ns, off_ns))
    for of_host in found.values():
        of_host.sort()
    return found


def _are_two_runs(nodes: Collection[Checkpoint]) -> bool:
    """Test whether a step belongs to two runs with one key: one node index on two hosts, or groups far apart in time.

    A job recreated on other nodes may reuse the key.
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


def _timed(event: NodeEvent, starts: Sequence[_Start]) -> TimedEvent:
    one = event.checkpoint
    bound = bound_ns(one)
    at = bisect_left(starts, (one.start_ns,))
    first = max(0, min(at - NEAREST_SAVES // 2, len(starts) - NEAREST_SAVES))
    near = starts[first : first + NEAREST_SAVES]
    if len(near) < LEAST_SAVES:
        return TimedEvent(event, one.start_ns, one.end_ns, bound)
    aheads = sorted(start.ahead_ns for start in near)
    ahead = median_high(aheads)
    others = near[0].bound_ns
    if bound is not None and others is not None and abs(ahead) <= bound + others:
        return TimedEvent(event, one.start_ns, one.end_ns, bound)
    rest = max(ahead - aheads[0], aheads[-1] - ahead)
    return TimedEvent(event, one.start_ns - ahead, one.end_ns - ahead, rest, ahead)


def distinct(records: Iterable[NodeRecord]) -> list[NodeEvent]:
    """Return each event once, even with a database given twice or two recorders on one host."""
    by_uid: dict[str, NodeEvent] = {}
    for record in records:
        for one in record.checkpoints:
            previous = by_uid.get(one.uid)
            if previous is None or _completeness(one) > _completeness(previous.checkpoint):
                by_uid[one.uid] = NodeEvent(record.host, record.database, one)
    same: dict[tuple[object, ...], list[NodeEvent]] = {}
    for event in by_uid.values():
        one = event.checkpoint
        same.setdefault((event.host, one.kind, one.step, one.path), []).append(event)
    return [event for events in same.values() for event in _without_duplicates(events)]


def _completeness(one: Checkpoint) -> tuple[bool, bool, int]:
    """Rank the details of an event: a later copy of a database has more."""
    return one.durable_ns is not None, one.verdict is not None, one.end_ns


def _without_duplicates(events: list[NodeEvent]) -> list[NodeEvent]:
    """Drop events of one host, kind, step and path that another recorder observed better."""
    if len({event.database for event in events}) == 1:
        return events
    selected: list[NodeEvent] = []
    for event in sorted(events, key=_quality, reverse=True):
        if not any(_are_one(event, other) for other in selected):
            selected.append(event)
    return selected


def _quality(event: NodeEvent) -> tuple[bool, int, str]:
    one = event.checkpoint
    return one.level is Level.TRACE, one.bytes, one.uid


def _are_one(event: NodeEvent, other: NodeEvent) -> bool:
    one, two = event.checkpoint, other.checkpoint
    overlap = one.start_ns <= two.end_ns and two.start_ns <= one.end_ns
    pids = {writer.pid for writer in two.writers}
    return event.database != other.database and overlap and any(writer.pid in pids for writer in one.writers)


def key_of(one: Checkpoint) -> tuple[object, ...] | None:
    """Return the key that joins an event with those of other nodes; None: no key."""
    if one.kind is Kind.COPY:  # by another process, not part of the job's checkpoint
        return None
    if one.run is not None:
        return "run", one.run.key, one.run.restart or 0  # some schedulers report 0, others nothing
    if one.place is not None and one.place.shared and one.path is not None:
        folder = one.path.rpartition("/")[0] if one.files == 1 else one.path
        return _FOLDER, one.place.key, folder.rpartition("/")[2]  # an inode may be reused by another folder
    return None


def identifies_one(key: tuple[object, ...], events: Iterable[NodeEvent]) -> bool:
    """Test whether the events of one key may be parts of one checkpoint.

    A folder may contain several: it is one if all events have one step and no rank is on two nodes.
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


class _CheckpointGroup:
    def __init__(self, first: TimedEvent) -> None:
        self.start_ns = first.start_ns
        self.end_ns = first.end_ns
        self.bound_ns = _bound(first)
        self.step = first.event.checkpoint.step
        self.ends_ns = {first.event.host: first.end_ns}
        self.paths = {first.event.checkpoint.path}
        self.events = [first]

    def accepts(self, one: TimedEvent, reach_ns: int) -> bool:
        """Test whether an event that starts no earlier belongs to this checkpoint."""
        step = one.event.checkpoint.step
        apart_ns, gap_ns = one.start_ns - self.start_ns, one.start_ns - self.end_ns
        if step is None or self.step is None:
            near = gap_ns <= min(reach_ns, self.bound_ns + _bound(one)) or apart_ns <= reach_ns
        else:
            near = step == self.step and (
                gap_ns <= self.bound_ns + _bound(one) or apart_ns <= max(LEAST_REACH_NS, reach_ns)
            )
        return near and one.start_ns <= self.ends_ns.get(one.event.host, one.start_ns)

    def add(self, one: TimedEvent) -> None:
        """Add the part of a node, and extend the end, step and paths to it."""
        host = one.event.host
        self.end_ns = max(self.end_ns, one.end_ns)
        self.bound_ns = max(self.bound_ns, _bound(one))
        self.step = one.event.checkpoint.step if self.step is None else self.step
        self.ends_ns[host] = max(one.end_ns, self.ends_ns.get(host, one.end_ns))
        self.paths.add(one.event.checkpoint.path)
        self.events.append(one)


def join_events(events: Sequence[TimedEvent]) -> list[list[TimedEvent]]:
    """Group events of one key and kind, sorted by start, into checkpoints."""
    reach_ns = _reach_ns(events)
    longest_ns = max(map(_bound, events), default=0)
    found: list[_CheckpointGroup] = []
    open_: list[_CheckpointGroup] = []
    for one in events:
        open_ = [group for group in open_ if _until_ns(group, reach_ns) + longest_ns >= one.start_ns]
        fitting = [group for group in open_ if group.accepts(one, reach_ns)]
        if fitting:
            path = one.event.checkpoint.path
            # Called at once
            min(fitting, key=lambda group: (path not in group.paths, one.start_ns - group.start_ns)).add(one)
        else:
            open_.append(_CheckpointGroup(one))
            found.append(open_[-1])
    return [group.events for group in found]


def _bound(one: TimedEvent) -> int:
    return UNKNOWN_BOUND_NS if one.bound_ns is None else one.bound_ns


def _until_ns(group: _CheckpointGroup, reach_ns: int) -> int:
    """Return the latest possible start of an event of a group, without the error of that event's clock."""
    return max(group.end_ns + group.bound_ns, group.start_ns + max(LEAST_REACH_NS, reach_ns))


def _reach_ns(events: Sequence[TimedEvent]) -> int:
    """Return half of the median interval between checkpoints of a node."""
    by_host: dict[str, list[int]] = {}
    for one in events:
        by_host.setdefault(one.event.host, []).append(one.start_ns)
    apart = [later - earlier for starts in by_host.values() for earlier, later in pairwise(starts)]
    return round(median(apart)) // 2 if apart else LEAST_REACH_NS
