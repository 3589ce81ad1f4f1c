"""Differences between nodes (version, level, kernel, clock), and nodes that are silent while others save."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ckptprof.bounds import Amount, Count
from ckptprof.cluster.clocks import bound_ns
from ckptprof.cluster.fleet.runs import FleetAnswer, grouped, run_of, saves_and_restores
from ckptprof.cluster.model import ClusterCheckpoint, NodeRecord
from ckptprof.cluster.stragglers import clocks_off
from ckptprof.model import Checkpoint

SILENT_NS = 600_000_000_000  # from the last record of a node to a save of another node of its run
_NS = 1_000_000_000


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


def nodes(checkpoints: Sequence[ClusterCheckpoint], records: Sequence[NodeRecord]) -> Nodes:
    """Return the properties of each node."""
    every = saves_and_restores(checkpoints)
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
    """Return the value of more than half of them; None: no majority, so no node differs."""
    counted_ = Counter(values)
    if not counted_:
        return None
    ((value, times),) = counted_.most_common(1)
    return value if 2 * times > counted_.total() else None


def _silent(checkpoints: Sequence[ClusterCheckpoint], records: Iterable[NodeRecord]) -> dict[str, float]:
    """Return for each silent node the seconds for which others of its run saved after its last record."""
    observed_until: dict[str, int] = {}
    for one in records:
        if one.watched.end_ns is not None:
            observed_until[one.host] = max(one.watched.end_ns, observed_until.get(one.host, 0))
    found: dict[str, float] = {}
    for mine in grouped(checkpoints, run_of).values():
        last_ns = max(one.whole.end_ns for one in mine)
        ahead = {part.host: part.ahead_seconds or 0.0 for one in mine for part in one.nodes}
        for host, seconds in ahead.items():
            after_ns = last_ns - (observed_until.get(host, last_ns) - round(seconds * _NS))
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
        observed_until_ns=record.watched.end_ns,
        gaps=len(record.watched.gaps),
        checkpoints=len(record.checkpoints),
        silent_seconds=silent,
        odd=tuple(odd),
    )
