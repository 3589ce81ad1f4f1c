"""A comparison for a terminal and as a document: each figure before and after, and whether the change is noise."""

from __future__ import annotations

import re
from datetime import timezone, tzinfo
from typing import Any

import msgspec

from ckptprof import units
from ckptprof.bounds import Count
from ckptprof.model import Kind
from ckptprof.report import comparison as comparisons
from ckptprof.report import document as documents
from ckptprof.report import noise
from ckptprof.report.certainty import account_name
from ckptprof.report.clean import clean, named, shorten_end
from ckptprof.report.comparison import (
    Comparison,
    CountComparison,
    FigureComparison,
    KindComparison,
    LimitCounts,
    Side,
    Spread,
)
from ckptprof.report.conditions import format_value
from ckptprof.report.table import NOTHING, Cell, facts, paint, wrap
from ckptprof.report.table import render as render_table
from ckptprof.verdicts import Limit

_INDENT = "  "
TITLES = {Kind.SAVE.value: "Saves", Kind.RESTORE.value: "Restores"}
BAD = {"slower": "bold red", "longer": "bold red", "lower": "bold red"}
GOOD = {"faster": "bold green", "shorter": "bold green", "higher": "bold green"}
SURE = f"{noise.CONFIDENCE * 100:.0f} %"
_NOISE = (
    f"CHANGE is the difference of the medians; the {SURE} interval is of the typical difference between the sides "
    "(Hodges-Lehmann). Noise: chance alone may explain the change. Drift within a run and other load on the host are "
    "not chance: repeat both runs."
)
_NAMED = {"throughput": "rate", "stall": "blocked"}  # in the document and for --fail-on


class DiffSide(msgspec.Struct, frozen=True, kw_only=True):
    """One side of a comparison."""

    selector: str  # as it was given
    host: str | None
    checkpoints: Count


class DiffDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Two runs compared, before and after a change."""

    confidence: float = noise.CONFIDENCE  # of the intervals
    before: DiffSide
    after: DiffSide
    kinds: tuple[KindComparison, ...]


def render(comparison: Comparison, *, width: int, colour: bool, zone: tzinfo) -> str:
    """Return the comparison as text that ends in a newline."""
    sides = [("Before", side_text(comparison.before, zone)), ("After", side_text(comparison.after, zone))]
    lines = facts(sides, width, colour=colour)
    for one in comparison.kinds:
        lines += ["", *wrap(headline(one), width)]
        lines += [""] + [(_INDENT + line).rstrip() for line in _table(one, width - len(_INDENT), colour=colour)]
    lines += ["", *(paint(line, "dim", colour=colour) for note in notes(comparison) for line in wrap(note, width))]
    return "\n".join([*lines, ""])


def document(comparison: Comparison) -> dict[str, Any]:
    """Return the document of `diff --json`."""
    before, after = (
        DiffSide(selector=side.selector, host=side.report.host, checkpoints=len(side.report.checkpoints))
        for side in (comparison.before, comparison.after)
    )
    return documents.to_document(DiffDocument(before=before, after=after, kinds=comparison.kinds))


def side_text(side: Side, zone: tzinfo) -> str:
    """Describe a side: its selector, number of checkpoints and time range."""
    checkpoints = side.report.checkpoints
    kinds = [(kind, sum(one.kind is kind for one in checkpoints)) for kind in comparisons.KINDS]
    counts = ", ".join(units.plural(number, kind.value) for kind, number in kinds if number)
    if not checkpoints:
        return f"{clean(side.selector)}: nothing"
    start, end = min(one.start_ns for one in checkpoints), max(one.end_ns for one in checkpoints)
    offset: timezone = units.fixed_zone(end, zone)
    first, last = units.stamp(start, offset), units.stamp(end, offset)
    last = last[11:] if first[:10] == last[:10] else last
    return f"{clean(side.selector)}: {counts}, {first} to {last} {units.offset_name(offset)}"


def headline(one: KindComparison) -> str:
    """Describe the change of duration of a kind in one sentence."""
    title, count, figure = TITLES[one.kind], one.count, one.figures[0]
    change, relative = figure.change.estimate, figure.relative.estimate
    if change is None:
        return f"{title}: {count.before} before, {count.after} after; nothing to compare"
    by = format_value(abs(change), figure.quantity) if relative is None else units.percent(abs(relative))
    if figure.outcome == comparisons.FEW:
        text = comparisons.too_few(figure, one.kind)
        return f"{text[0].upper()}{text[1:]}"
    if figure.outcome == comparisons.SAME:
        return f"{title}: the same duration"
    if figure.outcome == comparisons.NOISE:
        return f"{title}: no difference in duration beyond noise ({_interval(figure)} at {SURE})"
    return f"{title}: {figure.outcome} by {by} ({_interval(figure)} at {SURE})"


def _table(one: KindComparison, width: int, *, colour: bool) -> list[str]:
    rows = [_counts("count", one.count)]
    if one.incomplete.before or one.incomplete.after:
        rows.append(_counts("incomplete", one.incomplete))
    for figure in one.figures:
        if figure.before is None and figure.after is None:
            continue
        rows.append(median_row(figure))
        if figure.name == "duration":
            sides = (figure.before, figure.after)
            rows.append(_row("duration p95", *(_format_value(figure, side and side.p95) for side in sides)))
    rows += [
        _counts(f"limit: {account_name(Limit(limit_counts.limit))}", limit_counts)
        for limit_counts in one.limits
        if limit_counts.limit is not None
    ]
    return render_table(rows, width, colour=colour)


def median_row(figure: FigureComparison) -> list[Cell]:
    """Return the medians of both sides, their difference, its interval, and the result."""
    before, after = (_format_value(figure, side and side.median) for side in (figure.before, figure.after))
    estimate, relative, outcome = figure.change.estimate, figure.relative.estimate, figure.outcome
    name = f"{_NAMED.get(figure.name, figure.name)} median"
    if estimate is None:
        return _row(name, before, after)
    change = format_value(estimate, figure.quantity, signed=True) if relative is None else _percent(relative)
    *cells, last = _row(name, before, after, change, _interval(figure))
    word = "too few to tell" if outcome == comparisons.FEW else outcome
    return [*cells, last._replace(text=word, style={**BAD, **GOOD}.get(outcome, ""))]


def _row(figure: str, before: str, after: str, change: str = "", interval: str = "") -> list[Cell]:
    return [
        Cell("FIGURE", figure),
        Cell("BEFORE", before, right=True, drop=2),
        Cell("AFTER", after, right=True, drop=1),
        Cell("CHANGE", change, right=True),
        Cell(f"{SURE} INTERVAL", interval, drop=3),
        Cell("RESULT", "", minimum=6, cut=shorten_end),
    ]


def _counts(name: str, counts: CountComparison | LimitCounts) -> list[Cell]:
    before, after = counts.before, counts.after
    return _row(name, units.count(before), units.count(after), "" if before == after else f"{after - before:+,}")


def _format_value(figure: FigureComparison, value: Spread | float | None) -> str:
    return format_value(value, figure.quantity) if isinstance(value, float) else NOTHING


def _interval(figure: FigureComparison) -> str:
    change, relative = figure.change, figure.relative
    if change.low is None or change.high is None:
        return ""
    if relative.low is None or relative.high is None:
        return " to ".join(format_value(value, figure.quantity, signed=True) for value in (change.low, change.high))
    return f"{_percent(relative.low)} to {_percent(relative.high)}"


def _percent(share: float) -> str:
    text = units.percent(abs(share))
    if text.startswith("<"):
        return "0.0 %"  # "-<0.1 %" is read twice
    sign = "-" if share < 0 else "+" if share > 0 else ""
    return sign + ("100.0 %" if text.startswith(">") else text)  # of a change 100 % is no end that it can be just below


def notes(comparison: Comparison) -> list[str]:
    """Explain how to read the figures."""
    sides = (comparison.before.report.checkpoints, comparison.after.report.checkpoints)
    sentences = [_NOISE]
    before, after = ({re.sub(r"\d+", "", one.job): named(one.job) for one in side} for side in sides)
    if before.keys().isdisjoint(after):
        first, second = (next(iter(names.values()), "nothing") for names in (before, after))
        sentences.insert(0, f"Before and after are different jobs, {first} and {second}: the change may be theirs.")
    if {"larger", "smaller"} & {figure.outcome for one in comparison.kinds for figure in one.figures}:
        sentences.append("The sizes differ: compare rates, not durations.")
    return sentences
