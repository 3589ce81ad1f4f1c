"""`ckptprof fleet nodes` for a terminal."""

from __future__ import annotations

from datetime import timezone

from ckptprof import units
from ckptprof.cluster.fleet.nodes import NodeRow, Nodes
from ckptprof.report.clean import clean
from ckptprof.report.cluster.fleet import sheet
from ckptprof.report.cluster.fleet.sheet import Sheet, Table
from ckptprof.report.table import MISSING, Cell, Column

_COLUMNS = (
    Column("NODE", minimum=8),
    Column("VERSION", drop=3),
    Column("LEVEL", drop=4),
    Column("KERNEL", drop=5, minimum=8),
    Column("CLOCK", right=True, drop=1),
    Column("SEEN UNTIL", drop=2),
    Column("CHECKPOINTS", right=True, drop=6),
    Column("GAPS", right=True, drop=7),
    Column("ODD"),
    Column("DATABASE", drop=8, minimum=11),
)


def of(told: Nodes, zone: timezone) -> Sheet:
    """Return what differs from node to node."""
    odd = [one for one in told.nodes if one.odd]
    silent = [one for one in told.nodes if one.silent_seconds is not None]
    hosts = len({one.host for one in told.nodes})
    facts = [("Nodes", f"{units.count(hosts)}; {units.count(len(odd))} with something odd")]
    if silent:
        facts.append(("Silent", f"{units.plural(len(silent), 'node')}, while others of their runs saved on"))
    if told.partial:
        facts.append(("Missing", f"{units.plural(told.partial, 'checkpoint')} had nodes that no database tells of"))
    note = (
        "ODD is what is not as on most nodes, a clock that is not synchronised or off, and silence while others save."
    )
    return Sheet(facts, [Table(_COLUMNS, [_row(one, zone) for one in told.nodes], "No node.")], [note])


def _row(one: NodeRow, zone: timezone) -> list[Cell]:
    odd = [*one.odd, *([] if one.silent_seconds is None else [f"silent {units.seconds(one.silent_seconds)}"])]
    return [
        Cell(clean(one.host), "yellow" * bool(odd)),
        sheet.text(one.version),
        sheet.text(one.level),
        sheet.text(one.kernel),
        _clock(one),
        MISSING if one.seen_until_ns is None else Cell(units.stamp(one.seen_until_ns, zone, "%Y-%m-%d %H:%M")),
        sheet.count(one.checkpoints),
        sheet.count(one.gaps),
        Cell(", ".join(odd), "yellow") if odd else MISSING,
        Cell(clean(one.database)),
    ]


def _clock(one: NodeRow) -> Cell:
    if one.ahead_seconds is not None:
        return Cell(f"{'+' if one.ahead_seconds >= 0 else '-'}{units.seconds(abs(one.ahead_seconds))}", "yellow")
    if one.clock_bound_seconds is not None:
        return Cell(f"within {units.seconds(one.clock_bound_seconds)}")
    return MISSING if one.is_clock_synchronised is None else Cell("not synchronised", "yellow")
