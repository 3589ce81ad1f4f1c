"""The picture at the start of a report: the run of its job as one bar, and the duration of each save.

Times that were not observed are not drawn: the bar shows totals, not when they occurred.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from ckptprof import figures, units
from ckptprof.model import Checkpoint, Kind, Report, Status
from ckptprof.report import summary
from ckptprof.report.clean import named, pad, shorten_end, width
from ckptprof.report.pictures.chart import BLOCKS
from ckptprof.report.table import GAP, paint, wrap
from ckptprof.verdicts import JobCost

BLOCKED, SAVING, COPYING, TRAINING, UNWATCHED = "█", "▓", "░", "─", "·"
STYLES = {BLOCKED: "red", SAVING: "yellow", COPYING: "blue", TRAINING: "green", UNWATCHED: "dim"}
_MIN_SAVES = 3  # saves that are a course
_MOST_CELLS = 100
_JOB_CELLS = 40
_MIN_TEXT_CELLS = 30  # minimum cells for a text beside its drawing
_TINY = 0.005  # of a run: what is not drawn
_UNKNOWN = "?"
_NS = 1_000_000_000


class _PictureRow(NamedTuple):
    """One drawing: pieces of text with their styles, and its description."""

    key: str
    drawn: tuple[tuple[str, str], ...]
    text: str


def has_enough_saves(checkpoints: Sequence[Checkpoint]) -> bool:
    """Return True with enough saves for a drawing."""
    return sum(1 for one in checkpoints if one.kind is Kind.SAVE) >= _MIN_SAVES


def lines(  # noqa: PLR0913 - as a drawing needs
    report: Report, costs: Sequence[JobCost], texts: tuple[str, str], limit: int, keys: int, *, colour: bool
) -> list[str]:
    """Return the picture in lines of at most `limit` cells, `keys` of them for its keys; empty for a single save.

    `costs`: the first job with a run is drawn; `texts`: the summary of all durations, and of all stalls, which is shown
    without a drawing, too.
    """
    line_cells = min(_MOST_CELLS, limit - keys)
    saves = [one for one in summary.ordered(report.checkpoints) if one.kind is Kind.SAVE]
    rows = [_run(report, costs, line_cells)]
    if has_enough_saves(saves):
        durations = [None if one.status is Status.INCOMPLETE else figures.duration_seconds(one) for one in saves]
        stalls = [figures.stall_seconds(one) for one in saves]
        top = max((one for one in (*durations, *stalls) if one is not None), default=0.0)
        stall = "Stall" if any(one is not None for one in stalls) else "Modes"
        rows += [
            _save_series("Duration", durations, top, line_cells, texts[0]),
            _save_series(stall, stalls, top, line_cells, texts[1]),
        ]
    return [line for row in rows if row is not None for line in _laid_out(row, limit, keys, colour=colour)]


def _laid_out(row: _PictureRow, limit: int, keys: int, *, colour: bool) -> list[str]:
    head = paint(pad(row.key, keys), "bold", colour=colour)
    head += "".join(paint(text, style, colour=colour) for text, style in row.drawn)
    used = sum(width(text) for text, _ in row.drawn)
    used += len(GAP) if used else 0
    if limit - keys - used < _MIN_TEXT_CELLS:
        return [head, *(" " * keys + part for part in wrap(row.text, limit - keys))]
    first, *more = wrap(row.text, limit - keys - used)
    return [f"{head}{GAP if used else ''}{first}", *(" " * (keys + used) + part for part in more)]


def _run(report: Report, costs: Sequence[JobCost], line_cells: int) -> _PictureRow | None:
    cost = next((one for one in costs if one.run_seconds), None)
    if cost is None or not cost.run_seconds:
        return None
    parts = _parts(report, cost, cost.run_seconds)
    if not any(seconds for mark, _, seconds in parts if mark in (BLOCKED, SAVING, COPYING)):
        return None
    cells = [max(1, round(seconds / cost.run_seconds * line_cells)) if seconds > 0 else 0 for _, _, seconds in parts]
    largest = cells.index(max(cells))
    cells[largest] = max(1, cells[largest] + line_cells - sum(cells))  # what is not nothing has one at its cost
    drawn = tuple((mark * number, STYLES[mark]) for (mark, _, _), number in zip(parts, cells, strict=True) if number)
    text = ", ".join(f"{mark} {word} {units.seconds(seconds)}" for mark, word, seconds in parts if seconds)
    of = f" of {shorten_end(named(cost.job), _JOB_CELLS)}" if len(costs) > 1 else ""
    return _PictureRow("Run", drawn, f"{units.seconds(cost.run_seconds)}{of}: {text}")


def _parts(report: Report, cost: JobCost, run_seconds: float) -> list[tuple[str, str, float]]:
    """Return (mark, word, seconds) of all parts of a run; they add up to it."""
    mine = [one for one in report.checkpoints if one.job == cost.job and one.kind is not Kind.COPY]
    start_ns = min(one.start_ns for one in mine)
    end_ns = start_ns + round(run_seconds * _NS)
    copies = [one for one in report.checkpoints if one.kind is Kind.COPY]
    spans = [(max(start_ns, one.start_ns), min(end_ns, one.end_ns)) for one in copies]
    last_ns = min(end_ns, max(one.end_ns for one in mine))  # the job may have ended after it
    gaps = [(max(start_ns, gap.start_ns), min(last_ns, gap.end_ns)) for gap in report.watched.gaps]
    saving_text = "alongside training" if not cost.stalls_unknown else "saving or restoring"
    left = run_seconds
    parts = []
    for mark, word, seconds in (
        (BLOCKED, "blocked", cost.stall_seconds or 0.0),
        (SAVING, saving_text, figures.busy_ns(mine) / _NS - (cost.stall_seconds or 0.0)),
        (COPYING, "copies", figures.union_ns(spans) / _NS),
        (UNWATCHED, "not recorded", figures.union_ns(gaps) / _NS),
    ):
        spent = min(left, seconds) if seconds > _TINY * run_seconds or mark == BLOCKED else 0.0
        left -= spent
        parts.append((mark, word, spent))
    parts.insert(-1, (TRAINING, "training", left))
    return parts


def _save_series(
    key: str, values: Sequence[float | None], top: float, line_cells: int, text: str
) -> _PictureRow | None:
    """Return one block per save, or for the worst of several; the text alone if no value is known.

    The blocks of two such rows have the same scale, and those below each other belong to the same saves.
    """
    known = [one for one in values if one is not None]
    if not known or top <= 0:
        return _PictureRow(key, (), text) if text else None
    columns = min(len(values), line_cells)
    edges = [n * len(values) // columns for n in range(columns + 1)]
    worst = [max((one for one in values[low:high] if one is not None), default=None) for low, high in pairwise(edges)]
    drawn = "".join(_UNKNOWN if one is None else BLOCKS[max(1, round(one / top * 8))] for one in worst)
    if columns < len(values):
        text += f"; a block is the longest of about {round(len(values) / columns)} saves"
    elif len(known) < len(values):
        text += f"; {_UNKNOWN} {'broken off' if key == 'Duration' else units.NOT_OBSERVED}"
    return _PictureRow(key, ((drawn, "cyan"),), text)
