"""Two runs compared, before and after a change: the differences, and whether they exceed noise."""

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
from ckptprof.report.conditions import SERIES, Condition, ConditionResult, Quantity, format_value

KINDS = (Kind.SAVE, Kind.RESTORE)
FIGURES = ("duration", "stall", "size", "throughput")  # the first is the answer
_WORSE = {"duration": "slower", "stall": "longer", "size": "larger", "throughput": "higher"}
_BETTER = {"duration": "faster", "stall": "shorter", "size": "smaller", "throughput": "lower"}
UNITS = {Quantity.TIME: "seconds", Quantity.SIZE: "bytes", Quantity.RATE: "bytes_per_second"}
SAME, NOISE, FEW, UNOBSERVED = "same", "noise", "few", "unobserved"
OUTCOMES = (*_WORSE.values(), *_BETTER.values(), SAME, NOISE, FEW, UNOBSERVED)
_LEAST = 0.001  # smaller changes, such as by the digits of a step in a header, are ignored


class Spread(msgspec.Struct, frozen=True):
    """The values of one figure on one side."""

    number: Count
    median: float
    p95: float


class FigureComparison(msgspec.Struct, frozen=True, kw_only=True):
    """One figure on both sides; None: not observed on that side."""

    name: Annotated[str, one_of(*FIGURES)]
    unit: Annotated[str, one_of(*UNITS.values())]
    before: Spread | None
    after: Spread | None
    change: noise.Shift  # after minus before, in the unit
    relative: noise.Shift
    # the same as a share of what was before, by the logarithms; None where something was nothing
    outcome: Annotated[str, one_of(*OUTCOMES)]
    # noise: may be chance; few: too few values; unobserved: not observed on a side

    @property
    def quantity(self) -> Quantity:
        """The quantity of its values."""
        return SERIES[self.name].quantity


class CountComparison(msgspec.Struct, frozen=True):
    """A number on both sides."""

    before: Count
    after: Count


class LimitCounts(msgspec.Struct, frozen=True):
    """The number of checkpoints with this limit on both sides."""

    limit: str | None  # None: without a verdict
    before: Count
    after: Count


class KindComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of saves, or of restores."""

    kind: Annotated[str, one_of(*(kind.value for kind in KINDS))]
    count: CountComparison
    incomplete: CountComparison
    figures: tuple[FigureComparison, ...]
    limits: tuple[LimitCounts, ...]  # the commonest first


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison."""

    selector: str  # as it was given
    report: Report


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of `ckptprof diff`."""

    before: Side
    after: Side
    kinds: tuple[KindComparison, ...]


def compare(before: Side, after: Side) -> Comparison:
    """Compare two sides; kinds without checkpoints are left out, and copies."""
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
        count=CountComparison(len(before), len(after)),
        incomplete=CountComparison(*(sum(one.status is Status.INCOMPLETE for one in side) for side in (before, after))),
        figures=tuple(_figure(name, before, after) for name in names),
        limits=tuple(LimitCounts(limit, first[limit], second[limit]) for limit, _ in (first + second).most_common()),
    )


def _figure(name: str, before: Sequence[Checkpoint], after: Sequence[Checkpoint]) -> FigureComparison:
    series = SERIES[name]
    first, second = of_complete(before, series.of), of_complete(after, series.of)
    before_all, after_all = _spread(first), _spread(second)
    change, relative = noise.Shift(), noise.Shift()
    if before_all is not None and after_all is not None:
        change = noise.center_on(noise.shift(first, second), after_all.median - before_all.median)
        relative = noise.ratio(first, second)
        if relative.estimate is not None:
            relative = noise.center_on(relative, after_all.median / before_all.median - 1)
    return FigureComparison(
        name=name,
        unit=UNITS[series.quantity],
        before=before_all,
        after=after_all,
        change=change,
        relative=relative,
        outcome=_outcome(name, change, relative),
    )


def _outcome(name: str, change: noise.Shift, relative: noise.Shift) -> str:
    if change.estimate is None:
        return UNOBSERVED
    if not change.has_interval:
        return FEW
    if not change.is_significant:
        return NOISE if change.low != change.high else SAME
    if relative.estimate is not None and abs(relative.estimate) < _LEAST:
        return SAME
    return (_WORSE if change.estimate > 0 else _BETTER)[name]


def _spread(values: Sequence[float]) -> Spread | None:
    return Spread(len(values), median(values), quantile(values, 0.95)) if values else None


_COMPARABLE: dict[str, tuple[Kind, str]] = {name: (Kind.SAVE, name) for name in FIGURES} | {
    f"{kind.value}_{name}": (kind, name) for kind in KINDS for name in FIGURES if kind is Kind.SAVE or name != "stall"
}
NAMES: dict[str, Quantity] = {asked: SERIES[name].quantity for asked, (_, name) in _COMPARABLE.items()}


def evaluate(comparison: Comparison, conditions: Sequence[Condition]) -> list[ConditionResult]:
    """Evaluate conditions: one is met if the change exceeds noise, and is as large as the condition says."""
    return [_evaluate(comparison, condition) for condition in conditions]


def _evaluate(comparison: Comparison, condition: Condition) -> ConditionResult:
    kind, name = _COMPARABLE[condition.name]
    both = next((one for one in comparison.kinds if one.kind == kind.value), None)
    figure = None if both is None else next(one for one in both.figures if one.name == name)
    if figure is None or figure.outcome == UNOBSERVED:
        return ConditionResult(condition, None, f"no {kind.value} has this figure on both sides")
    if figure.outcome == FEW:
        return ConditionResult(condition, None, too_few(figure, kind.value))
    change = figure.relative if condition.relative else figure.change
    if change.estimate is None:
        return ConditionResult(condition, None, "some values are zero, so a change has no percentage")
    quantity = Quantity.SHARE if condition.relative else figure.quantity
    is_met = figure.change.is_significant and condition.matches(change.estimate)
    return ConditionResult(condition, is_met, format_value(change.estimate, quantity, signed=True))


def too_few(figure: FigureComparison, kind: str) -> str:
    """Explain that there are too few values, and how many are needed."""
    before, after = (0 if side is None else side.number for side in (figure.before, figure.after))
    least = noise.least_values()
    return f"too few {kind}s to tell ({before} vs {after}): record at least {least} on each side"
