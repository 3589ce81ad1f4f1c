"""A comparison for a terminal and as a document: each figure before and after, and whether the change is noise."""

from __future__ import annotations

from datetime import timezone, tzinfo
from typing import Annotated, Any

import msgspec

from ckptprof import units
from ckptprof.bounds import Count, one_of
from ckptprof.model import Kind
from ckptprof.report import comparison as comparisons
from ckptprof.report import document as documents
from ckptprof.report import noise
from ckptprof.report.clean import clean, shorten_end
from ckptprof.report.comparison import Comparison, Figure, KindComparison, Side, Spread
from ckptprof.report.conditions import Quantity, show
from ckptprof.report.table import NOTHING, Cell, facts, paint, wrap
from ckptprof.report.table import render as render_table

_INDENT = "  "
TITLES = {Kind.SAVE: "Saves", Kind.RESTORE: "Restores", Kind.COPY: "Copies"}
BAD = {"slower": "bold red", "longer": "bold red", "lower": "bold red"}
GOOD = {"faster": "bold green", "shorter": "bold green", "higher": "bold green"}
SURE = f"{noise.CONFIDENCE * 100:.0f} %"
_NOISE = (
    f"The change is that of the medians, its interval at {SURE} that of the shift between the two sides "
    "(Hodges-Lehmann); noise is what chance does as easily. A drift within a run, or other load on the host, is not "
    "chance: repeat both."
)
_NAMED = {"throughput": "rate"}  # of one checkpoint; the document and --fail-on keep their word
_UNITS = {Quantity.TIME: "seconds", Quantity.SIZE: "bytes", Quantity.RATE: "bytes_per_second"}


class ToldSide(msgspec.Struct, frozen=True, kw_only=True):
    """What was compared."""

    selector: str  # as it was given
    host: str | None
    checkpoints: Count


class ToldCounts(msgspec.Struct, frozen=True):
    """A number on both sides."""

    before: Count
    after: Count


class ToldLimit(msgspec.Struct, frozen=True):
    """How many had this limit."""

    limit: str | None  # None: without a verdict
    before: Count
    after: Count


class ToldChange(msgspec.Struct, frozen=True, kw_only=True):
    """The change of the medians, and the interval of the shift (Hodges-Lehmann), wide enough to hold it.

    None: not known, or too few values.
    """

    estimate: float | None = None
    low: float | None = None
    high: float | None = None


class ToldFigure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure on both sides; None: not seen on that side."""

    name: Annotated[str, one_of(*comparisons.FIGURES)]
    unit: Annotated[str, one_of(*_UNITS.values())]
    before: Spread | None
    after: Spread | None
    change: ToldChange  # after less before, in the unit
    relative: ToldChange  # the same as a share of what was before, by the logarithms; None where something was nothing
    outcome: Annotated[str, one_of(*comparisons.OUTCOMES)]
    # noise: chance does it as easily; few: too few values to tell; unseen: not seen on a side


class ToldKind(msgspec.Struct, frozen=True, kw_only=True):
    """Saves, or restores."""

    kind: Annotated[str, one_of(*(kind.value for kind in comparisons.KINDS))]
    count: ToldCounts
    incomplete: ToldCounts
    figures: tuple[ToldFigure, ...]
    limits: tuple[ToldLimit, ...]


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """Two runs beside each other, before and after a change."""

    confidence: float = noise.CONFIDENCE  # of the intervals
    before: ToldSide
    after: ToldSide
    kinds: tuple[ToldKind, ...]


def render(comparison: Comparison, *, width: int, colour: bool, zone: tzinfo) -> str:
    """Return the comparison as text that ends in a newline."""
    sides = [("Before", side(comparison.before, zone)), ("After", side(comparison.after, zone))]
    lines = facts(sides, width, colour=colour)
    for one in comparison.kinds:
        lines += ["", *wrap(answer(one), width)]
        lines += [""] + [(_INDENT + line).rstrip() for line in _table(one, width - len(_INDENT), colour=colour)]
    lines += ["", *(paint(line, "dim", colour=colour) for note in notes(comparison) for line in wrap(note, width))]
    return "\n".join([*lines, ""])


def document(comparison: Comparison) -> dict[str, Any]:
    """Return the document of `diff --json`."""
    told = Told(
        before=_told_side(comparison.before),
        after=_told_side(comparison.after),
        kinds=tuple(map(_told_kind, comparison.kinds)),
    )
    return documents.of(told)


def side(side: Side, zone: tzinfo) -> str:
    """Return what a side is: its selector, how many checkpoints, from when to when."""
    checkpoints = side.report.checkpoints
    kinds = [(kind, sum(one.kind is kind for one in checkpoints)) for kind in comparisons.KINDS]
    told = ", ".join(units.plural(number, kind.value) for kind, number in kinds if number)
    if not checkpoints:
        return f"{clean(side.selector)}: nothing"
    begin, end = min(one.start_ns for one in checkpoints), max(one.end_ns for one in checkpoints)
    offset: timezone = units.fixed_zone(end, zone)
    first, last = units.stamp(begin, offset), units.stamp(end, offset)
    last = last[11:] if first[:10] == last[:10] else last
    return f"{clean(side.selector)}: {told}, {first} to {last} {units.offset_name(offset)}"


def answer(one: KindComparison) -> str:
    """Return the sentence that opens a kind: what became of its duration."""
    title, (before, after), figure = TITLES[one.kind], one.counts, one.figures[0]
    shift = figure.shift
    if shift is None:
        return f"{title}: {before} before, {after} after; nothing to compare"
    ratio = figure.ratio
    by = show(abs(shift.estimate), figure.quantity) if ratio is None else units.percent(abs(ratio.estimate))
    if figure.outcome == comparisons.FEW:
        return f"{title}: {comparisons.too_few(figure, one.kind)}"
    if figure.outcome == comparisons.SAME:
        return f"{title}: the same duration"
    if figure.outcome == comparisons.NOISE:
        return f"{title}: no difference in duration that can be told from noise ({_interval(figure)} at {SURE})"
    return f"{title}: {figure.outcome} by {by} ({_interval(figure)} at {SURE})"


def _table(one: KindComparison, width: int, *, colour: bool) -> list[str]:
    rows = [_counts("count", one.counts)]
    if any(one.incomplete):
        rows.append(_counts("incomplete", one.incomplete))
    for figure in one.figures:
        if figure.before is None and figure.after is None:
            continue
        rows.append(median_row(figure))
        if figure.name == "duration":
            rows.append(_row("duration p95", *(_shown(figure, side and side.p95) for side in _sides(figure))))
    for limit, before, after in one.limits:
        if limit is not None:
            rows.append(_counts(f"limit {clean(limit)}", (before, after)))
    return render_table(rows, width, colour=colour)


def median_row(figure: Figure) -> list[Cell]:
    """Return the medians of both sides, by how much they differ, the interval of that, and what it is."""
    before, after = (_shown(figure, side and side.median) for side in _sides(figure))
    shift, outcome = figure.shift, figure.outcome
    name = f"{_NAMED.get(figure.name, figure.name)} median"
    if shift is None:
        return _row(name, before, after)
    ratio = figure.ratio
    change = show(shift.estimate, figure.quantity, signed=True) if ratio is None else _percent(ratio.estimate)
    style = {**BAD, **GOOD}.get(outcome, "")
    word = {comparisons.FEW: "too few to tell"}.get(outcome, outcome)
    *cells, last = _row(name, before, after, change, _interval(figure))
    return [*cells, last._replace(text=word, style=style)]


def _row(figure: str, before: str, after: str, change: str = "", interval: str = "") -> list[Cell]:
    return [
        Cell("FIGURE", figure),
        Cell("BEFORE", before, right=True, drop=2),
        Cell("AFTER", after, right=True, drop=1),
        Cell("CHANGE", change, right=True),
        Cell(f"AT {SURE}", interval, drop=3),
        Cell("IS", "", minimum=6, cut=shorten_end),
    ]


def _counts(name: str, counts: tuple[int, int]) -> list[Cell]:
    before, after = counts
    change = "" if before == after else f"{after - before:+,}"
    return _row(name, units.count(before), units.count(after), change)


def _sides(figure: Figure) -> tuple[Spread | None, Spread | None]:
    return figure.before, figure.after


def _shown(figure: Figure, value: Spread | float | None) -> str:
    return show(value, figure.quantity) if isinstance(value, float) else NOTHING


def _interval(figure: Figure) -> str:
    shift = figure.shift
    if shift is None or shift.low is None or shift.high is None:
        return ""
    ratio = figure.ratio
    if ratio is None or ratio.low is None or ratio.high is None:
        return " to ".join(show(value, figure.quantity, signed=True) for value in (shift.low, shift.high))
    return f"{_percent(ratio.low)} to {_percent(ratio.high)}"


def _percent(share: float) -> str:
    told = units.percent(abs(share))
    if told.startswith("<"):
        return "0.0 %"  # "-<0.1 %" is read twice
    sign = "-" if share < 0 else "+" if share > 0 else ""
    return sign + ("100.0 %" if told.startswith(">") else told)  # of a change 100 % is no end that it can be just below


def notes(comparison: Comparison) -> list[str]:
    """Return how the figures are to be read."""
    told = [_NOISE]
    sizes = [figure for one in comparison.kinds for figure in one.figures if figure.name == "size"]
    if any(figure.outcome in ("larger", "smaller") for figure in sizes):
        told.append("The sizes differ: compare rates, not durations.")
    return told


def _told_side(side: Side) -> ToldSide:
    return ToldSide(selector=side.selector, host=side.report.host, checkpoints=len(side.report.checkpoints))


def _told_kind(one: KindComparison) -> ToldKind:
    return ToldKind(
        kind=one.kind.value,
        count=ToldCounts(*one.counts),
        incomplete=ToldCounts(*one.incomplete),
        figures=tuple(map(_told_figure, one.figures)),
        limits=tuple(ToldLimit(*row) for row in one.limits),
    )


def _told_figure(figure: Figure) -> ToldFigure:
    return ToldFigure(
        name=figure.name,
        unit=_UNITS[figure.quantity],
        before=figure.before,
        after=figure.after,
        change=_told_change(figure.shift),
        relative=_told_change(figure.ratio),
        outcome=figure.outcome,
    )


def _told_change(shift: noise.Shift | None) -> ToldChange:
    return ToldChange() if shift is None else ToldChange(estimate=shift.estimate, low=shift.low, high=shift.high)
