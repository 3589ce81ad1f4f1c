"""`ckptprof fleet collisions` for a terminal."""

from __future__ import annotations

from ckptprof import units
from ckptprof.cluster.fleet.collisions import Collision, Collisions, Party
from ckptprof.report.clean import named
from ckptprof.report.cluster.fleet import sheet
from ckptprof.report.cluster.fleet.sheet import Sheet, Table
from ckptprof.report.table import Cell, Column

_COLUMNS = (
    Column("JOB", minimum=8),
    Column("MEETS", minimum=8),
    Column("SAVES MET", right=True, drop=3),
    Column("TOGETHER", right=True),
    Column("COST", right=True),
    Column("ALONE", right=True, drop=4),
    Column("MET", right=True, drop=5),
    Column("SHIFT", right=True),
    Column("STORAGE", drop=1, minimum=12),
)


def of(told: Collisions) -> Sheet:
    """Return which jobs save at the same time."""
    facts = [("Seen", units.plural(told.checkpoints, "checkpoint"))]
    if told.elsewhere:
        saves = units.plural(told.elsewhere, "save")
        where = "on disks of a node, in object stores, or where nobody can tell"
        facts.append(("Not here", f"{saves} {where}: compared with none"))
    nothing = "No two jobs saved at the same time on storage that they share."
    notes = (
        "COST is by how much the saves that met took longer than those that met none.",
        "SHIFT is by how much later the second job should save, to be in the midst between two saves of the first.",
        "Without SHIFT their intervals differ, and they meet by chance.",
    )
    return Sheet(facts, [Table(_COLUMNS, [*map(_row, told.pairs)], nothing)], notes if told.pairs else ())


def _row(one: Collision) -> list[Cell]:
    return [
        Cell(named(one.first.job)),
        Cell(named(one.second.job)),
        Cell(f"{_met(one.first)}, {_met(one.second)}"),
        sheet.seconds(one.overlap_seconds),
        sheet.seconds(one.cost_seconds),
        sheet.seconds(one.first.median_alone_seconds),
        sheet.seconds(one.first.median_met_seconds),
        sheet.seconds(one.shift_seconds),
        sheet.text(one.storage),
    ]


def _met(one: Party) -> str:
    return f"{one.met:,}/{one.saves:,}"
