"""The counters of the client of a remote mount during a checkpoint, or the paths to a remote disk."""

from __future__ import annotations

from ckptprof import units
from ckptprof.measures import MountMeasure, OperationMeasure, PathMeasure, ServerMeasure
from ckptprof.model import Checkpoint
from ckptprof.report.clean import clean
from ckptprof.report.table import Cell, facts, number, wrap
from ckptprof.report.table import render as render_table


def tables(checkpoint: Checkpoint) -> list[list[list[Cell]]]:
    """Return the counters of the mount by operation and by server, or its paths; empty without counters."""
    mount = checkpoint.measures.mount if checkpoint.measures is not None else None
    if mount is None or (mount.client is None and not mount.paths):
        return []
    if mount.paths:
        return [[*map(_path, mount.paths)]]
    found = [[*map(_operation, mount.operations)], [*map(_server, mount.per_server)]]
    return [rows for rows in found if rows]


def lines(checkpoint: Checkpoint, width: int, *, colour: bool) -> list[str]:
    """Return these tables below the facts of the client and its server."""
    mount = checkpoint.measures.mount if checkpoint.measures is not None else None
    drawn = [render_table(rows, width, colour=colour) for rows in tables(checkpoint)]
    if mount is None or mount.paths or mount.client is None:
        return [line for table in drawn for line in table]
    text_lines = facts(_facts(mount), width, colour=colour)
    text_lines += [line for table in drawn for line in ("", *table)]
    rest = (mount.servers or 0) - len(mount.per_server)
    more = wrap(f"and {units.plural(rest, 'server')} more, with less traffic", width) if rest > 0 else []
    return [*text_lines, *more]


def _facts(mount: MountMeasure) -> list[tuple[str, str]]:
    transport = f" over {clean(mount.transport)}" if mount.transport else ""
    pairs = [("Client", f"{clean(mount.client or '')}{transport}, of {clean(mount.server or mount.source)}")]
    if mount.daemon is not None:
        busy = "" if mount.daemon_busy is None else f", {mount.daemon_busy:.2f} cores"
        pairs.append(("Served by", f"{clean(mount.daemon)}, process {mount.daemon_pid}{busy}"))
    if mount.waiting_share is not None:
        awaited = f"{units.percent(mount.waiting_share)} of the time, {mount.waiting_mean or 0.0:.1f} on average"
        pairs.append(("Unanswered", f"requests in {awaited}"))
    pairs += _byte_facts(mount)
    if mount.connections is not None:
        slots = f", at most {units.count(mount.slots)} requests at a time over each" if mount.slots else ""
        pairs.append(("Connections", f"{units.count(mount.connections)}{slots}"))
    if mount.delays:
        pairs.append(("Delays", f"{units.count(mount.delays)} replies asking the client to retry later"))
    return pairs


def _byte_facts(mount: MountMeasure) -> list[tuple[str, str]]:
    """Return bytes requested, direct and on the wire; empty if neither bytes nor operations are counted (FUSE)."""
    read, written = mount.read_bytes, mount.written_bytes
    if not mount.operations and read is None and mount.wire_read_bytes is None:
        return []
    return [
        ("Requested", f"{units.size(read)} read, {units.size(written)} written through the page cache"),
        ("Direct", f"{units.size(mount.direct_read_bytes)} read, {units.size(mount.direct_written_bytes)} written"),
        ("On the wire", f"{units.size(mount.wire_read_bytes)} received, {units.size(mount.wire_written_bytes)} sent"),
    ]


def _operation(one: OperationMeasure) -> list[Cell]:
    return [
        Cell("OPERATION", clean(one.kind), minimum=10),
        number("COUNT", one.count, units.count),
        number("LATENCY", one.seconds, units.latency),
        number("QUEUED", one.queue_seconds, units.latency, drop=3),
        number("AT SERVER", one.server_seconds, units.latency, drop=2),
        number("RETRANSMITTED", one.retransmissions, units.count, drop=1),
    ]


def _server(one: ServerMeasure) -> list[Cell]:
    return [
        Cell("SERVER", clean(one.name), minimum=10),
        Cell("ADDRESS", clean(one.address) if one.address else None, drop=2, minimum=8),
        Cell("STATE", clean(one.state) if one.state else None, drop=1),
        Cell("READ", units.size(one.read_bytes), right=True),
        Cell("WRITTEN", units.size(one.written_bytes), right=True),
        Cell("OPERATIONS", units.count(one.operations), right=True, drop=3),
        number("LATENCY", one.seconds, units.latency),
    ]


def _path(one: PathMeasure) -> list[Cell]:
    port = "" if one.port is None else f" port {one.port}"
    return [
        Cell("PATH", clean(one.device), minimum=10),
        Cell("TO", one.target and clean(one.target + port), minimum=8),
        Cell("OVER", clean(one.transport), drop=2),
        Cell("STATE", clean(one.state) if one.state else None),
        number("DOWN", one.lost_seconds, units.seconds),
        Cell("ACCESS", clean(one.ana_state) if one.ana_state else None, drop=1),
    ]
