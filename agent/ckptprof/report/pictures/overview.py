"""The picture at the start of a report: the course of its job's run, and the duration and limit of each save.

A cell is a part of the run; a block in it is as high as the share for which training was blocked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from ckptprof import figures, units
from ckptprof.model import Checkpoint, Gap, Interval, Kind, Point, Report, Status
from ckptprof.report import summary
from ckptprof.report.clean import named, pad, shorten_end, width
from ckptprof.report.pictures import colours
from ckptprof.report.pictures.chart import BLOCKS, resample
from ckptprof.report.table import GAP, paint, wrap
from ckptprof.verdicts import JobCost, Limit

BLOCKED, SAVING, COPYING, TRAINING, UNWATCHED = "█", "▓", "░", "─", "·"
STYLES = {BLOCKED: "bold", SAVING: "", COPYING: "", TRAINING: "dim", UNWATCHED: "dim"}  # as on the page
_MIN_SAVES = 3  # saves that are a course
_MOST_CELLS = 100
_JOB_CELLS = 40
_MIN_TEXT_CELLS = 30  # minimum cells for a text beside its drawing
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
        stall = "Blocked" if any(one is not None for one in stalls) else "Modes"
        duration = _save_series("Duration", durations, top, line_cells, texts[0])
        stalled = _save_series(stall, stalls, top, line_cells, texts[1])
        if stalled is not None and duration is not None and stalled.drawn == duration.drawn:
            stalled = stalled._replace(drawn=())  # nothing new
        rows += [duration, _limits(saves, line_cells), stalled]
    return [line for row in rows if row is not None for line in _laid_out(row, limit, keys, colour=colour)]


def _laid_out(row: _PictureRow, limit: int, keys: int, *, colour: bool) -> list[str]:
    head = paint(pad(row.key, keys), "bold", colour=colour)
    for style, same in groupby(row.drawn, key=lambda piece: piece[1]):
        head += paint("".join(text for text, _ in same), style, colour=colour)
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
    mine = [one for one in report.checkpoints if one.job == cost.job and one.kind is not Kind.COPY]
    start_ns = min(one.start_ns for one in mine)
    end_ns = start_ns + round(cost.run_seconds * _NS)
    spans: dict[str, Iterable[Checkpoint | Gap | Interval]] = {
        BLOCKED: [span for one in mine for span in one.blocked],
        SAVING: mine,
        COPYING: [one for one in report.checkpoints if one.kind is Kind.COPY],
        UNWATCHED: report.watched.gaps,
    }
    points = {mark: [Point(at.start_ns, at.end_ns, at.end_ns - at.start_ns) for at in of] for mark, of in spans.items()}
    shares = {mark: resample(of, start_ns, end_ns, line_cells) for mark, of in points.items()}
    marks = [next((mark for mark in shares if shares[mark][n] > 0), TRAINING) for n in range(line_cells)]
    if not {BLOCKED, SAVING, COPYING} & set(marks):
        return None
    levels = [max(1, min(8, round(share / _NS * 8))) for share in shares[BLOCKED]]
    drawn = tuple((BLOCKS[levels[n]] if mark == BLOCKED else mark, STYLES[mark]) for n, mark in enumerate(marks))
    share = "" if cost.share is None else f" ({units.percent(cost.share)})"
    is_known = all(one.stall_ns is not None and (one.blocked or not one.stall_ns) for one in mine)
    words = {
        BLOCKED: f"blocked {units.seconds(cost.stall_seconds or 0.0)}{share}",
        SAVING: "alongside training" if is_known else "saving or restoring",
        COPYING: "copies",
        TRAINING: "training",
        UNWATCHED: "not recorded",
    }
    text = ", ".join(
        f"{mark} {word}" for mark, word in words.items() if mark in marks or (mark == BLOCKED and cost.stall_seconds)
    )
    of_job = f" of {shorten_end(named(cost.job), _JOB_CELLS)}" if len(costs) > 1 else ""
    return _PictureRow("Run", drawn, f"{units.seconds(cost.run_seconds)}{of_job}: {text}")


def _limits(saves: Sequence[Checkpoint], line_cells: int) -> _PictureRow | None:
    """Return the letter of the limit of each save, below its block; None if none was slow, or with too many saves."""
    limits = [colours.shown_limit(one.verdict) for one in saves]
    if len(saves) > line_cells or not {*limits} - {None, Limit.NONE}:
        return None
    drawn = tuple((colours.OF_LIMIT[limit].letter, colours.terminal_style(limit)) for limit in limits)
    words = dict.fromkeys(colours.lettered(limit, one.verdict) for limit, one in zip(limits, saves, strict=True))
    return _PictureRow("Limit", drawn, ", ".join(words))


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
    note = ""
    if columns < len(values):
        note = f"a block is the longest of about {round(len(values) / columns)} saves"
    elif len(known) < len(values):
        note = f"{_UNKNOWN} {'broken off' if key == 'Duration' else units.NOT_OBSERVED}"
    return _PictureRow(key, ((drawn, STYLES[BLOCKED]),), "; ".join(filter(None, (text, note))))
