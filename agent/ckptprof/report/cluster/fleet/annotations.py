"""`ckptprof fleet annotate` for a terminal."""

from __future__ import annotations

from collections import Counter

from ckptprof import units
from ckptprof.cluster.fleet.annotations import PREFIX, Action, Annotation, Annotations
from ckptprof.report.clean import clean
from ckptprof.report.cluster.fleet import sheet
from ckptprof.report.cluster.fleet.sheet import Sheet, Table
from ckptprof.report.table import Cell, Column

_COLUMNS = (
    Column("CLUSTER", drop=1),
    Column("JOB", right=True),
    Column("TO DO"),
    Column("NOTE", minimum=20),
)
_WORDS = {
    Action.WRITE: "write",
    Action.RENEW: "renew",
    Action.KEEP: "nothing",
    Action.TAKEN: "another's",
    Action.UNKNOWN: "not in Slurm",
}
_DONE = {Action.WRITE: "written", Action.RENEW: "renewed"}


def of(told: Annotations) -> Sheet:
    """Return the notes, and what became of them."""
    writes = told.is_written
    counts = Counter(_word(one, writes=writes) for one in told.jobs)
    seen = [("Jobs", ", ".join(f"{units.count(number)} {word}" for word, number in counts.items()) or "none of Slurm")]
    if told.not_asked is not None:
        seen.append(("Not asked", clean(told.not_asked)))
    notes = [f"A comment that does not begin with {PREFIX} is another's, and left alone."]
    if not writes:
        notes.append("Nothing was written: --write does.")
    rows = [_row(one, writes=writes) for one in told.jobs]
    return Sheet(seen, [Table(_COLUMNS, rows, "No checkpoint is of a job of Slurm.")], notes if rows else ())


def _word(one: Annotation, *, writes: bool) -> str:
    if one.action is None:
        return "not asked"
    if one.error is not None:
        return "failed"
    return (writes and _DONE.get(one.action)) or _WORDS[one.action]


def _row(one: Annotation, *, writes: bool) -> list[Cell]:
    return [
        sheet.text(one.cluster),
        Cell(one.job),
        Cell(_word(one, writes=writes), "bold red" * (one.error is not None)),
        Cell(one.note),
    ]
