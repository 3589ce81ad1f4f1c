"""Two runs beside each other, before and after a change: what differs, and whether that is more than noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec

from ckptprof.bounds import Count, one_of
from ckptprof.figures import median, of_complete, quantile
from ckptprof.model import Checkpoint, Kind, Report, Status
from ckptprof.report import noise
from ckptprof.report.conditions import SERIES, Condition, Judged, Quantity, show

KINDS = (Kind.SAVE, Kind.RESTORE)
FIGURES = ("duration", "stall", "size", "throughput")  # the first says it all
_WORSE = {"duration": "slower", "stall": "longer", "size": "larger", "throughput": "higher"}
_BETTER = {"duration": "faster", "stall": "shorter", "size": "smaller", "throughput": "lower"}
UNITS = {Quantity.TIME: "seconds", Quantity.SIZE: "bytes", Quantity.RATE: "bytes_per_second"}
SAME, NOISE, FEW, UNSEEN = "same", "noise", "few", "unseen"
OUTCOMES = (*_WORSE.values(), *_BETTER.values(), SAME, NOISE, FEW, UNSEEN)
_LEAST = 0.001  # a smaller change, as of the digits of a step in a header, is none that a person asks for


class Spread(msgspec.Struct, frozen=True):
    """The values of one figure on one side."""

    number: Count
    median: float
    p95: float


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure on both sides; None: not seen on that side."""

    name: Annotated[str, one_of(*FIGURES)]
    unit: Annotated[str, one_of(*UNITS.values())]
    before: Spread | None
    after: Spread | None
    change: noise.Shift  # after less before, in the unit
    relative: noise.Shift
    # the same as a share of what was before, by the logarithms; None where something was nothing
    outcome: Annotated[str, one_of(*OUTCOMES)]
    # noise: chance does it as easily; few: too few values to tell; unseen: not seen on a side

    @property
    def quantity(self) -> Quantity:
        """What its values are of."""
        return SERIES[self.name].quantity


class Counts(msgspec.Struct, frozen=True):
    """A number on both sides."""

    before: Count
    after: Count


class LimitCounts(msgspec.Struct, frozen=True):
    """How many had this limit."""

    limit: str | None  # None: without a verdict
    before: Count
    after: Count


class KindComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Saves, or restores."""

    kind: Annotated[str, one_of(*(kind.value for kind in KINDS))]
    count: Counts
    incomplete: Counts
    figures: tuple[Figure, ...]
    limits: tuple[LimitCounts, ...]  # the commonest first


@dataclass(frozen=True, slots=True)
class Side:
    """What was compared."""

    selector: str  # as it was given
    report: Report


@dataclass(frozen=True, slots=True)
class Comparison:
    """The answer to `ckptprof diff`."""

    before: Side
    after: Side
    kinds: tuple[KindComparison, ...]


def compare(before: Side, after: Side) -> Comparison:
    """Return the comparison; kinds that neither side has are left out, and copies."""
    kinds = []
    for kind in KINDS:
        first, second = ([one for one in side.report.checkpoints if one.kind is kind] for side in (before, after))
        if first or second:
            kinds.append(_compare(kind, first, second))
    return Comparison(before=before, after=after, kinds=tuple(kinds))


def _compare(kind: Kind, before: list[Checkpoint], after: list[Checkpoint]) -> KindComparison:
    names = FIGURES if kind is Kind.SAVE else tuple(name for name in FIGURES if name != "stall")
    first, second = (
        Counter(None if one.verdict is None else one.verdict.limit.value for one in side) for side in (before, after)
    )
    return KindComparison(
        kind=kind.value,
        count=Counts(len(before), len(after)),
        incomplete=Counts(*(sum(one.status is Status.INCOMPLETE for one in side) for side in (before, after))),
        figures=tuple(_figure(name, before, after) for name in names),
        limits=tuple(LimitCounts(limit, first[limit], second[limit]) for limit, _ in (first + second).most_common()),
    )


def _figure(name: str, before: Sequence[Checkpoint], after: Sequence[Checkpoint]) -> Figure:
    series = SERIES[name]
    first, second = of_complete(before, series.of), of_complete(after, series.of)
    before_all, after_all = _spread(first), _spread(second)
    change, relative = noise.Shift(), noise.Shift()
    if before_all is not None and after_all is not None:
        change = noise.around(noise.shift(first, second), after_all.median - before_all.median)
        relative = noise.ratio(first, second)
        if relative.estimate is not None:
            relative = noise.around(relative, after_all.median / before_all.median - 1)
    return Figure(
        name=name,
        unit=UNITS[series.quantity],
        before=before_all,
        after=after_all,
        change=change,
        relative=relative,
        outcome=_outcome(name, change, relative),
    )


def _outcome(name: str, change: noise.Shift, relative: noise.Shift) -> str:
    """Return slower, faster, ..., same, noise, few (too few to tell) or unseen."""
    if change.estimate is None:
        return UNSEEN
    if not change.is_judged:
        return FEW
    if not change.is_told:
        return NOISE if change.low != change.high else SAME
    if relative.estimate is not None and abs(relative.estimate) < _LEAST:
        return SAME
    return (_WORSE if change.estimate > 0 else _BETTER)[name]


def _spread(values: Sequence[float]) -> Spread | None:
    return Spread(len(values), median(values), quantile(values, 0.95)) if values else None


_ASKED: dict[str, tuple[Kind, str]] = {name: (Kind.SAVE, name) for name in FIGURES} | {
    f"{kind.value}_{name}": (kind, name) for kind in KINDS for name in FIGURES if kind is Kind.SAVE or name != "stall"
}
NAMES: dict[str, Quantity] = {asked: SERIES[name].quantity for asked, (_, name) in _ASKED.items()}


def judge(comparison: Comparison, conditions: Sequence[Condition]) -> list[Judged]:
    """Return what comes of each condition: it holds of a change that is more than noise, and is as large as it says."""
    return [_judge(comparison, condition) for condition in conditions]


def _judge(comparison: Comparison, condition: Condition) -> Judged:
    kind, name = _ASKED[condition.name]
    both = next((one for one in comparison.kinds if one.kind == kind.value), None)
    figure = None if both is None else next(one for one in both.figures if one.name == name)
    if figure is None or figure.outcome == UNSEEN:
        return Judged(condition, None, f"no {kind.value} has this figure on both sides")
    if figure.outcome == FEW:
        return Judged(condition, None, too_few(figure, kind.value))
    change = figure.relative if condition.relative else figure.change
    if change.estimate is None:
        return Judged(condition, None, "some values are zero, so a change has no percentage")
    quantity = Quantity.SHARE if condition.relative else figure.quantity
    holds = figure.change.is_told and condition.holds(change.estimate)
    return Judged(condition, holds, show(change.estimate, quantity, signed=True))


def too_few(figure: Figure, kind: str) -> str:
    """Return that there are too few values to tell anything, and how many it takes."""
    before, after = (0 if side is None else side.number for side in (figure.before, figure.after))
    least = noise.least_values()
    return f"too few {kind}s to tell ({before} vs {after}): record at least {least} on each side"
