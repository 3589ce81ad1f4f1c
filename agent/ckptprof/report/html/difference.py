"""All that the page of `diff --html` says: two runs over each other, and which change is more than noise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import tzinfo

from ckptprof import figures, units
from ckptprof.model import Checkpoint
from ckptprof.report import diff
from ckptprof.report.clean import clean
from ckptprof.report.comparison import Comparison, Figure, KindComparison, Side
from ckptprof.report.html import colours
from ckptprof.report.html.axis import WIDTH
from ckptprof.report.html.lanes import label
from ckptprof.verdicts import Limit

HEIGHT = 60  # of the drawing of a side
MAX_BLOCKS = 1000  # of a side
_LEAST_SCALE = 0.05  # the change at the ends of the scale


@dataclass(frozen=True)
class Block:
    """One checkpoint: as far to the right as it began after the first, as high as it was long."""

    x: float
    width: float
    y: float
    style: str
    title: str


@dataclass(frozen=True)
class SideLane:
    """All checkpoints of a kind on one side."""

    name: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Change:
    """One figure on both sides; low, width and mark are places on a scale of 100, None where nothing is told."""

    cells: tuple[str, ...]  # figure, before, after, change, interval, what it is
    style: str  # worse | better | noise
    low: float | None = None
    width: float | None = None
    mark: float | None = None


@dataclass(frozen=True)
class LimitRow:
    """How often a limit was the verdict."""

    name: str
    style: str
    before: int
    after: int
    before_percent: float
    after_percent: float


@dataclass(frozen=True)
class KindPart:
    """Saves, or restores."""

    title: str
    answer: str
    style: str
    scale: str  # the change at its right end
    changes: tuple[Change, ...]
    counts: tuple[tuple[str, int, int], ...]
    limits: tuple[LimitRow, ...]
    lanes: tuple[SideLane, ...]
    top: str  # the duration at the height of a lane
    length: str  # the time at its right end


@dataclass(frozen=True)
class Difference:
    """A whole page."""

    title: str
    sides: tuple[tuple[str, str], ...]
    sure: str
    kinds: tuple[KindPart, ...]
    notes: tuple[str, ...]


def difference_of(comparison: Comparison, zone: tzinfo) -> Difference:
    """Return what the page of a comparison says."""
    before, after = comparison.before, comparison.after
    return Difference(
        title=f"{clean(before.selector)} and {clean(after.selector)}",
        sides=(("Before", diff.side(before, zone)), ("After", diff.side(after, zone))),
        sure=diff.SURE,
        kinds=tuple(_kind(one, before, after) for one in comparison.kinds),
        notes=tuple(diff.notes(comparison)),
    )


def _kind(one: KindComparison, before: Side, after: Side) -> KindPart:
    drawn = [figure for figure in one.figures if figure.before is not None or figure.after is not None]
    bounds = [abs(bound) for figure in drawn for bound in _bounds(figure)]
    scale = max([_LEAST_SCALE, *bounds])
    most = max(1, *(max(pair[1:]) for pair in one.limits)) if one.limits else 1
    sides = [[found for found in side.report.checkpoints if found.kind is one.kind] for side in (before, after)]
    length_ns = max(map(_length_ns, sides))
    top = max((figures.duration_seconds(found) for side in sides for found in side), default=0.0)
    return KindPart(
        title=diff.TITLES[one.kind],
        answer=diff.answer(one),
        style=_style(one.figures[0]),
        scale=f"+{units.percent(min(scale, 1.0))}" if scale <= 1 else f"+{scale * 100:,.0f} %",
        changes=tuple(_change(figure, scale) for figure in drawn),
        counts=(("number", *one.counts), *((("incomplete", *one.incomplete),) if any(one.incomplete) else ())),
        limits=tuple(_limit(*told, most) for told in one.limits if told[0] is not None),
        lanes=tuple(
            SideLane(name, tuple(_blocks(side, length_ns, top)))
            for name, side in zip(("before", "after"), sides, strict=True)
        ),
        top=units.seconds(top),
        length=units.duration(length_ns),
    )


def _bounds(figure: Figure) -> list[float]:
    ratio = figure.ratio
    return [] if ratio is None else [bound for bound in (ratio.low, ratio.high, ratio.estimate) if bound is not None]


def _style(figure: Figure) -> str:
    return "worse" if figure.outcome in diff.BAD else "better" if figure.outcome in diff.GOOD else "noise"


def _change(figure: Figure, scale: float) -> Change:
    cells = tuple(cell.text or "" for cell in diff.median_row(figure))
    ratio = figure.ratio
    if ratio is None or ratio.low is None or ratio.high is None:
        return Change(cells, _style(figure))
    low, high, mark = (round(50 + 50 * share / scale, 3) for share in (ratio.low, ratio.high, ratio.estimate))
    return Change(cells, _style(figure), low, round(high - low, 3), mark)


def _limit(name: str | None, before: int, after: int, most: int) -> LimitRow:
    limit = next((limit for limit in Limit if limit.value == name), None)
    shares = (round(100 * count / most, 2) for count in (before, after))
    return LimitRow(colours.name(limit), colours.css_class(limit), before, after, *shares)


def _length_ns(side: Sequence[Checkpoint]) -> int:
    return max((one.end_ns for one in side), default=0) - min((one.start_ns for one in side), default=0)


def _blocks(side: Sequence[Checkpoint], length_ns: int, top: float) -> Iterable[Block]:
    """Yield the longest of those that fall together, so that many make no larger a page."""
    first_ns = min((one.start_ns for one in side), default=0)
    kept: dict[int, Checkpoint] = {}
    for one in side:
        place = (one.start_ns - first_ns) * MAX_BLOCKS // max(1, length_ns)
        if place not in kept or figures.duration_seconds(one) > figures.duration_seconds(kept[place]):
            kept[place] = one
    for one in kept.values():
        x = (one.start_ns - first_ns) / max(1, length_ns) * WIDTH
        width = max(0.001, (one.end_ns - one.start_ns) / max(1, length_ns) * WIDTH)
        y = HEIGHT * (1 - figures.duration_seconds(one) / top) if top > 0 else HEIGHT
        title = f"{label(one)}: {units.size(one.bytes)} in {units.duration(one.end_ns - one.start_ns)}"
        yield Block(round(x, 3), round(width, 3) or 0.001, round(y, 2), colours.of_verdict(one.verdict), title)
