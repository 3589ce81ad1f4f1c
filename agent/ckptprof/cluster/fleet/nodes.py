"""What differs from node to node (version, level, kernel, clock), and which are silent while others save."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ckptprof.bounds import Amount, Count
from ckptprof.cluster.clocks import bound_ns
from ckptprof.cluster.fleet.runs import Told, counted, grouped, run_of
from ckptprof.cluster.model import ClusterCheckpoint, NodeRecord
from ckptprof.cluster.stragglers import clocks_off
from ckptprof.model import Checkpoint

SILENT_NS = 600_000_000_000  # from when a node was seen last until another one of its run saves
_NS = 1_000_000_000


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A node as its own database tells of it. None: not known."""

    host: str
    database: str
    version: str | None  # of the agent that recorded last
    level: str | None  # by which means that saw
    kernel: str | None
    is_clock_synchronised: bool | None  # as its kernel said at its last checkpoint
    clock_bound_seconds: Amount | None  # its clock may be off by so much, likewise
    ahead_seconds: float | None  # it begins each save so much after the others by its own clock, as of the last
    seen_until_ns: int | None  # epoch nanoseconds, by its own clock
    gaps: Count  # times in which nothing was recorded
    checkpoints: Count
    silent_seconds: Amount | None  # others of its run saved on for so long after it was seen last; None: they did not
    odd: tuple[str, ...]  # what is not as on most nodes (version, level, kernel), and clock: not synchronised, or off


class Nodes(Told, frozen=True, kw_only=True):
    """The nodes, those with something odd first."""

    partial: Count  # checkpoints with nodes that no database tells of
    nodes: tuple[NodeRow, ...]


def nodes(checkpoints: Sequence[ClusterCheckpoint], records: Sequence[NodeRecord]) -> Nodes:
    """Return what is known of the nodes themselves."""
    every = counted(checkpoints)
    ahead, silent = clocks_off(every), _silent(every, records)
    usual = {
        name: _usual(getattr(one.session, name) for one in records if one.session is not None)
        for name in ("version", "level", "kernel")
    }
    rows = [_row(one, ahead.get(one.host), silent.get(one.host), usual) for one in records]
    rows.sort(key=lambda one: (one.silent_seconds is None, -len(one.odd), one.host, one.database))
    partial = sum(one.is_partial for one in every)
    return Nodes(checkpoints=len(every), partial=partial, nodes=tuple(rows))


def _usual(values: Iterable[str]) -> str | None:
    """Return what more than half of them are; None: nothing is, and none is odd."""
    counted_ = Counter(values)
    if not counted_:
        return None
    ((value, times),) = counted_.most_common(1)
    return value if 2 * times > counted_.total() else None


def _silent(checkpoints: Sequence[ClusterCheckpoint], records: Iterable[NodeRecord]) -> dict[str, float]:
    """Return for how long the others of its run saved after a node was seen last, where that is long."""
    seen: dict[str, int] = {}
    for one in records:
        if one.watched.end_ns is not None:
            seen[one.host] = max(one.watched.end_ns, seen.get(one.host, 0))
    found: dict[str, float] = {}
    for mine in grouped(checkpoints, run_of).values():
        last_ns = max(one.whole.end_ns for one in mine)
        ahead = {part.host: part.ahead_seconds or 0.0 for one in mine for part in one.nodes}
        for host, seconds in ahead.items():
            after_ns = last_ns - (seen.get(host, last_ns) - round(seconds * _NS))
            if after_ns > SILENT_NS:
                found[host] = max(after_ns / _NS, found.get(host, 0.0))
    return found


def _row(record: NodeRecord, ahead: float | None, silent: float | None, usual: Mapping[str, str | None]) -> NodeRow:
    session = record.session
    last: Checkpoint | None = max(record.checkpoints, key=lambda one: one.end_ns, default=None)
    clock = None if last is None else last.clock
    bound = None if last is None else bound_ns(last)
    odd = [
        name
        for name, value in usual.items()
        if session is not None and value is not None and getattr(session, name) != value
    ]
    if ahead is not None or (clock is not None and not clock.synchronised):
        odd.append("clock")
    return NodeRow(
        host=record.host,
        database=record.database,
        version=None if session is None else session.version,
        level=None if session is None else session.level,
        kernel=None if session is None else session.kernel,
        is_clock_synchronised=None if clock is None else clock.synchronised,
        clock_bound_seconds=None if bound is None else bound / _NS,
        ahead_seconds=ahead,
        seen_until_ns=record.watched.end_ns,
        gaps=len(record.watched.gaps),
        checkpoints=len(record.checkpoints),
        silent_seconds=silent,
        odd=tuple(odd),
    )
