"""`ckptprof fleet newest` for a terminal."""

from __future__ import annotations

from datetime import timezone

from ckptprof import units
from ckptprof.cluster.fleet.newest import OVERDUE, Newest, NewestRow
from ckptprof.report.clean import named
from ckptprof.report.cluster.fleet import sheet
from ckptprof.report.cluster.fleet.sheet import Sheet, Table
from ckptprof.report.table import MISSING, Cell, Column

_COLUMNS = (
    Column("JOB", minimum=8),
    Column("STEP", right=True),
    Column("AGE", right=True),
    Column("SAVED", drop=4),
    Column("EVERY", right=True, drop=1),
    Column("BEST", right=True, drop=2),
    Column("UNUSABLE", right=True, drop=6),
    Column("RESTARTS", right=True, drop=5),
    Column("RESUMED IN", right=True, drop=7),
    Column("NODES", right=True, drop=8),
    Column("PATH", drop=3, minimum=11),
)
_NONE = Cell("none", "bold red")


def of(told: Newest, zone: timezone) -> Sheet:
    """Return what each job would go back to."""
    late = [one for one in told.jobs if one.is_overdue or one.saved_ns is None]
    facts = [("Overdue", f"{units.count(len(late))} of {units.plural(len(told.jobs), 'job')}")]
    if told.restarts:
        each = units.seconds(told.node_seconds / told.restarts)
        facts.append(("Restarts", f"{units.count(told.restarts)}: one for each {each} of a node"))
    notes = [
        "AGE is from the begin of a job's newest save that is whole until its nodes were watched last.",
        f"It is overdue at {OVERDUE} times the usual interval; nothing tells whether a job has ended.",
    ]
    if told.restarts:
        notes.append("BEST is Daly's interval for what a save blocks, and the time between restarts of as many nodes.")
    return Sheet(facts, [Table(_COLUMNS, [_row(one, zone) for one in told.jobs], "No job saves.")], notes)


def _row(one: NewestRow, zone: timezone) -> list[Cell]:
    late = "bold red" * bool(one.is_overdue)
    return [
        Cell(named(one.job), late),
        MISSING if one.step is None else Cell(str(one.step)),
        _NONE if one.saved_ns is None else sheet.seconds(one.age_seconds, late),
        MISSING if one.saved_ns is None else Cell(units.stamp(one.saved_ns, zone, "%m-%d %H:%M")),
        sheet.seconds(one.interval_seconds),
        sheet.seconds(one.best_interval_seconds),
        sheet.count(one.unusable),
        sheet.count(one.restarts),
        sheet.seconds(one.resumed_seconds),
        sheet.count(one.nodes),
        sheet.text(one.path),
    ]
