"""What the answers look like alike: facts, a table or two, remarks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ckptprof import units
from ckptprof.cluster.fleet.runs import Told
from ckptprof.report.clean import clean
from ckptprof.report.table import MISSING, Cell, Column, facts, paint, wrap
from ckptprof.report.table import render as lay
from ckptprof.verdicts import Limit

MOST = 50  # rows that are shown; --json has them all


@dataclass(frozen=True)
class Table:
    """Rows under a title, which may be empty; `nothing` stands in their place where there are none."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    nothing: str
    title: str = ""


@dataclass(frozen=True)
class Sheet:
    """An answer, ready to be laid out; all texts are cleaned."""

    facts: Sequence[tuple[str, str]]
    tables: Sequence[Table]
    notes: Sequence[str] = ()


def drawn(sheet: Sheet, told: Told, *, width: int, colour: bool) -> str:
    """Return an answer as text that ends in a newline."""
    unread = [("Not read", clean(one)) for one in told.unread]
    lines = facts([*sheet.facts, *unread], width, colour=colour)
    for table in sheet.tables:
        lines += [""] * bool(lines)
        lines += [paint(line, "bold", colour=colour) for line in wrap(table.title, width)] if table.title else []
        lines += lay(table.columns, table.rows[:MOST], width, colour=colour) or wrap(table.nothing, width)
        if len(table.rows) > MOST:
            lines += wrap(f"and {len(table.rows) - MOST:,} more: --json has them all", width)
    notes = [paint(line, "dim", colour=colour) for note in sheet.notes for line in wrap(note, width)]
    return "\n".join([*lines, *[""] * bool(notes), *notes, ""])


def limit(told: Limit | None) -> Cell:
    """Return a limit as a cell."""
    return MISSING if told is None else Cell(told.value)


def seconds(told: float | None, style: str = "") -> Cell:
    """Return a time as a cell."""
    return MISSING if told is None else Cell(units.seconds(told), style)


def count(told: int | None) -> Cell:
    """Return a whole number as a cell."""
    return MISSING if told is None else Cell(units.count(told))


def share(told: float | None, style: str = "") -> Cell:
    """Return a share as a cell."""
    return MISSING if told is None else Cell(units.percent(told), style)


def rate(told: float | None) -> Cell:
    """Return a rate as a cell."""
    return MISSING if told is None else Cell(units.rate(told))


def text(told: str | None) -> Cell:
    """Return a name from the machine as a cell."""
    return MISSING if told is None else Cell(clean(told))
