"""`ckptprof fleet stragglers` for a terminal."""

from __future__ import annotations

from ckptprof import units
from ckptprof.cluster.fleet.stragglers import StragglerNode, Stragglers
from ckptprof.report.clean import clean
from ckptprof.report.cluster.fleet import sheet
from ckptprof.report.cluster.fleet.sheet import Sheet, Table
from ckptprof.report.cluster.rows import SLOW
from ckptprof.report.table import Cell, Column

_COLUMNS = (
    Column("NODE", minimum=8),
    Column("LAST", right=True),
    Column("OF", right=True),
    Column("AFTER OTHERS", right=True),
    Column("WORST", right=True, drop=3),
    Column("GPU TIME WAITED", right=True, drop=2),
    Column("LIMIT", drop=1),
    Column("JOBS", drop=4, minimum=12),
)


def of(told: Stragglers) -> Sheet:
    """Return who was waited for."""
    seen = f"{units.count(told.of_several)} of {units.plural(told.checkpoints, 'checkpoint')} were on several nodes"
    if told.within_clock_error:
        seen += f"; of {units.count(told.within_clock_error)} no node is told to be the last: clocks may be off by more"
    nothing = "No node kept others waiting, beyond what clocks and chance explain."
    notes = [f"{SLOW} after a node: the last in three of its last ten, and more often than chance."]
    if any(one.by_size for one in told.nodes):
        notes.append("A node with more bytes that is as fast as the others is last, and not slow.")
    return Sheet([("Seen", seen)], [Table(_COLUMNS, [*map(_row, told.nodes)], nothing)], notes if told.nodes else ())


def _row(one: StragglerNode) -> list[Cell]:
    return [
        Cell(clean(one.host) + SLOW * one.is_slow, "bold red" * one.is_slow),
        sheet.count(one.times),
        sheet.count(one.saves),
        sheet.seconds(one.excess_seconds),
        sheet.seconds(one.worst_seconds),
        sheet.seconds(one.waited_gpu_seconds),
        sheet.limit(one.limit),
        Cell(", ".join(map(clean, one.jobs))),
    ]
