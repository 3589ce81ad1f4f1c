"""What the client of a remote mount counted while a checkpoint went on, or how the paths to a disk elsewhere were."""

from __future__ import annotations

from ckptprof import units
from ckptprof.measures import MountMeasure, OperationMeasure, PathMeasure, ServerMeasure
from ckptprof.model import Checkpoint
from ckptprof.report.clean import clean
from ckptprof.report.table import NOTHING, Cell, Column, facts, wrap
from ckptprof.report.table import render as render_table

_OPERATIONS = (
    Column("OPERATION", minimum=10),
    Column("COUNT", right=True),
    Column("EACH", right=True),
    Column("QUEUED", right=True, drop=3),
    Column("AT SERVER", right=True, drop=2),
    Column("SENT AGAIN", right=True, drop=1),
)
_SERVERS = (
    Column("SERVER", minimum=10),
    Column("ADDRESS", drop=2, minimum=8),
    Column("STATE", drop=1),
    Column("READ", right=True),
    Column("WRITTEN", right=True),
    Column("OPERATIONS", right=True, drop=3),
    Column("EACH", right=True),
)
_PATHS = (
    Column("PATH", minimum=10),
    Column("TO", minimum=8),
    Column("OVER", drop=2),
    Column("STATE"),
    Column("NOT LIVE", right=True),
    Column("ACCESS", drop=1),
)


def lines(checkpoint: Checkpoint, width: int, *, colour: bool) -> list[str]:
    """Return what was counted at the mount, by operation and by server, and its paths; nothing where nobody told."""
    mount = checkpoint.measures.mount if checkpoint.measures is not None else None
    if mount is None:
        return []
    if mount.paths:
        return render_table(_PATHS, [*map(_path, mount.paths)], width, colour=colour)
    return [] if mount.client is None else _of_client(mount, width, colour=colour)


def _of_client(mount: MountMeasure, width: int, *, colour: bool) -> list[str]:
    told = facts(_facts(mount), width, colour=colour)
    if mount.operations:
        told += ["", *render_table(_OPERATIONS, [*map(_operation, mount.operations)], width, colour=colour)]
    if mount.per_server:
        told += ["", *render_table(_SERVERS, [*map(_server, mount.per_server)], width, colour=colour)]
    rest = (mount.servers or 0) - len(mount.per_server)
    return [*told, *wrap(f"and {units.plural(rest, 'server')} more, which moved less", width)] if rest > 0 else told


def _facts(mount: MountMeasure) -> list[tuple[str, str]]:
    over = f" over {clean(mount.transport)}" if mount.transport else ""
    pairs = [("Client", f"{clean(mount.client or '')}{over}, of {clean(mount.server or mount.source)}")]
    if mount.daemon is not None:
        busy = "" if mount.daemon_busy is None else f", {mount.daemon_busy:.2f} cores"
        pairs.append(("Served by", f"{clean(mount.daemon)}, process {mount.daemon_pid}{busy}"))
    if mount.waiting_share is not None:
        awaited = f"{units.percent(mount.waiting_share)} of the time, {mount.waiting_mean or 0.0:.1f} in the mean"
        pairs.append(("No answer", f"requests in {awaited}"))
    pairs += _counted(mount)
    if mount.connections is not None:
        slots = f", at most {units.count(mount.slots)} requests at a time over each" if mount.slots else ""
        pairs.append(("Connections", f"{units.count(mount.connections)}{slots}"))
    if mount.delays:
        pairs.append(("Delays", f"{units.count(mount.delays)} answers to ask again later"))
    return pairs


def _counted(mount: MountMeasure) -> list[tuple[str, str]]:
    """Return bytes at their three heights; nothing where a client counts neither bytes nor operations, as of FUSE."""
    read, written = mount.read_bytes, mount.written_bytes
    if not mount.operations and read is None and mount.wire_read_bytes is None:
        return []
    return [
        ("Asked for", f"{units.size(read)} read, {units.size(written)} written through the page cache"),
        ("Direct", f"{units.size(mount.direct_read_bytes)} read, {units.size(mount.direct_written_bytes)} written"),
        ("With servers", f"{units.size(mount.wire_read_bytes)} came, {units.size(mount.wire_written_bytes)} went"),
    ]


def _operation(one: OperationMeasure) -> list[Cell]:
    times = (one.seconds, one.queue_seconds, one.server_seconds)
    again = NOTHING if one.retransmissions is None else units.count(one.retransmissions)
    return [Cell(clean(one.kind)), Cell(units.count(one.count)), *map(_time, times), Cell(again)]


def _server(one: ServerMeasure) -> list[Cell]:
    return [
        Cell(clean(one.name)), Cell(clean(one.address or NOTHING)), Cell(clean(one.state or NOTHING)),
        Cell(units.size(one.read_bytes)), Cell(units.size(one.written_bytes)), Cell(units.count(one.operations)),
        _time(one.seconds),
    ]  # fmt: skip


def _path(one: PathMeasure) -> list[Cell]:
    to = NOTHING if one.target is None else one.target if one.port is None else f"{one.target} port {one.port}"
    lost = NOTHING if one.lost_seconds is None else units.seconds(one.lost_seconds)
    return [
        Cell(clean(one.device)), Cell(clean(to)), Cell(clean(one.transport)), Cell(clean(one.state or NOTHING)),
        Cell(lost), Cell(clean(one.ana_state or NOTHING)),
    ]  # fmt: skip


def _time(seconds: float | None) -> Cell:
    return Cell(NOTHING if seconds is None else units.latency(seconds))
