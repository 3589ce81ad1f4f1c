"""The content of the page of `diff --html`: two runs compared, and which changes exceed noise."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo
from typing import Any

import msgspec

from ckptprof import figures, units
from ckptprof.model import Checkpoint
from ckptprof.report import certainty, diff
from ckptprof.report.clean import clean
from ckptprof.report.comparison import Comparison, FigureComparison, KindComparison, LimitCounts, Side
from ckptprof.report.html import lanes
from ckptprof.report.html.axis import Axis
from ckptprof.report.pictures import colours
from ckptprof.verdicts import Limit

_LEAST_SCALE = 0.05  # the change at the ends of the scale


def difference_of(comparison: Comparison, zone: tzinfo) -> dict[str, Any]:
    """Return the content of a comparison's page."""
    before, after = comparison.before, comparison.after
    return {
        "title": f"{clean(before.selector)} and {clean(after.selector)}",
        "sides": [("Before", diff.side_text(before, zone)), ("After", diff.side_text(after, zone))],
        "sure": diff.SURE,
        "kinds": [_kind(one, before, after) for one in comparison.kinds],
        "notes": diff.notes(comparison),
    }


def _kind(one: KindComparison, before: Side, after: Side) -> dict[str, Any]:
    drawn = [figure for figure in one.figures if figure.before is not None or figure.after is not None]
    bounds = [bound for figure in drawn for bound in msgspec.structs.astuple(figure.relative) if bound is not None]
    scale = max([_LEAST_SCALE, *map(abs, bounds)])
    most = max([1, *(max(limit_counts.before, limit_counts.after) for limit_counts in one.limits)])
    sides = [[found for found in side.report.checkpoints if found.kind.value == one.kind] for side in (before, after)]
    length_ns = max(map(_length_ns, sides))
    top = max((figures.duration_seconds(found) for side in sides for found in side), default=0.0)
    incomplete = one.incomplete
    return {
        "title": diff.TITLES[one.kind],
        "answer": diff.headline(one),
        "style": _style(one.figures[0]),
        "scale": f"+{units.percent(min(scale, 1.0))}" if scale <= 1 else f"+{scale * 100:,.0f} %",  # at its right end
        "changes": [_change(figure, scale) for figure in drawn],
        "counts": [
            ("number", one.count),
            *([("incomplete", incomplete)] if incomplete.before or incomplete.after else []),
        ],
        "limits": [_limit(limit_counts, most) for limit_counts in one.limits if limit_counts.limit is not None],
        "lanes": [
            (name, lanes.blocks(side, _axis(side, length_ns), top))
            for name, side in zip(("before", "after"), sides, strict=True)
        ],
        "top": units.seconds(top),  # the duration at the height of a lane
        "length": units.duration(length_ns),  # the time at its right end
    }


def _style(figure: FigureComparison) -> str:
    return "worse" if figure.outcome in diff.BAD else "better" if figure.outcome in diff.GOOD else "noise"


def _change(figure: FigureComparison, scale: float) -> tuple[list[str | None], str, list[float]]:
    """Return the cells of a row, its style and, on a scale of 100, [low end, width, estimate] of the change."""
    cells, ratio = [cell.text for cell in diff.median_row(figure)], figure.relative
    if ratio.low is None or ratio.high is None or ratio.estimate is None:
        return cells, _style(figure), []
    low, high, mark = (round(50 + 50 * share / scale, 3) for share in (ratio.low, ratio.high, ratio.estimate))
    return cells, _style(figure), [low, round(high - low, 3), mark]


def _limit(limit_counts: LimitCounts, most: int) -> tuple[str, str, list[tuple[float, int]]]:
    """Return a limit, its class, and its number on each side, in percent of the largest and absolute."""
    limit = Limit(limit_counts.limit)
    counts = [(round(100 * count / most, 2), count) for count in (limit_counts.before, limit_counts.after)]
    return certainty.account_name(limit), colours.css_class(limit), counts


def _length_ns(side: Sequence[Checkpoint]) -> int:
    return max((one.end_ns for one in side), default=0) - min((one.start_ns for one in side), default=0)


def _axis(side: Sequence[Checkpoint], length_ns: int) -> Axis:
    first_ns = min((one.start_ns for one in side), default=0)
    return Axis(first_ns, first_ns + length_ns)
