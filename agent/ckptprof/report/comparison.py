"""Two runs beside each other, before and after a change: what differs, and whether that is more than noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ckptprof.bounds import Count
from ckptprof.figures import median, of_complete, quantile
from ckptprof.model import Checkpoint, Kind, Report, Status
from ckptprof.report import gates, noise
from ckptprof.report.conditions import Condition, Judged, Quantity, show

KINDS = (Kind.SAVE, Kind.RESTORE)
FIGURES = ("duration", "stall", "size", "throughput")  # the first says it all
_WORSE = {"duration": "slower", "stall": "longer", "size": "larger", "throughput": "higher"}
_BETTER = {"duration": "faster", "stall": "shorter", "size": "smaller", "throughput": "lower"}
SAME, NOISE, FEW, UNSEEN = "same", "noise", "few", "unseen"
OUTCOMES = (*_WORSE.values(), *_BETTER.values(), SAME, NOISE, FEW, UNSEEN)
_LEAST = 0.001  # a smaller change, as of the digits of a step in a header, is none that a person asks for


@dataclass(frozen=True, slots=True)
class Spread:
    """The values of one figure on one side."""

    number: Count
    median: float
    p95: float


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure on both sides; what was not seen on a side is None there."""

    name: str
    quantity: Quantity
    before: Spread | None
    after: Spread | None
    shift: noise.Shift | None
    ratio: noise.Shift | None  # as a share of what was before; None where something was nothing

    @property
    def outcome(self) -> str:
        """Return slower, faster, ..., same, noise, few (too few to tell) or unseen."""
        if self.shift is None:
            return UNSEEN
        if not self.shift.is_judged:
            return FEW
        if not self.shift.is_told:
            return NOISE if self.shift.low != self.shift.high else SAME
        if self.ratio is not None and abs(self.ratio.estimate) < _LEAST:
            return SAME
        return (_WORSE if self.shift.estimate > 0 else _BETTER)[self.name]


@dataclass(frozen=True, slots=True)
class KindComparison:
    """Saves, or restores, of both sides."""

    kind: Kind
    counts: tuple[int, int]
    incomplete: tuple[int, int]
    figures: tuple[Figure, ...]
    limits: tuple[tuple[str | None, int, int], ...]  # None: without a verdict; the commonest first


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
        first, second = _of(before.report, kind), _of(after.report, kind)
        if first or second:
            kinds.append(_compare(kind, first, second))
    return Comparison(before=before, after=after, kinds=tuple(kinds))


def _of(report: Report, kind: Kind) -> list[Checkpoint]:
    return [checkpoint for checkpoint in report.checkpoints if checkpoint.kind is kind]


def _compare(kind: Kind, before: list[Checkpoint], after: list[Checkpoint]) -> KindComparison:
    names = FIGURES if kind is Kind.SAVE else tuple(name for name in FIGURES if name != "stall")
    told = [(_limit(one), side) for side, chosen in enumerate((before, after)) for one in chosen]
    both = Counter(limit for limit, _ in told)
    each = Counter(told)
    return KindComparison(
        kind=kind,
        counts=(len(before), len(after)),
        incomplete=(_incomplete(before), _incomplete(after)),
        figures=tuple(_figure(name, before, after) for name in names),
        limits=tuple((limit, each[limit, 0], each[limit, 1]) for limit, _ in both.most_common()),
    )


def _incomplete(chosen: Sequence[Checkpoint]) -> int:
    return sum(checkpoint.status is Status.INCOMPLETE for checkpoint in chosen)


def _limit(checkpoint: Checkpoint) -> str | None:
    return None if checkpoint.verdict is None else checkpoint.verdict.limit.value


def _figure(name: str, before: Sequence[Checkpoint], after: Sequence[Checkpoint]) -> Figure:
    quantity, of = gates.figure(name)
    first, second = of_complete(before, of), of_complete(after, of)
    before_all, after_all = _spread(first), _spread(second)
    if before_all is None or after_all is None:
        return Figure(name, quantity, before_all, after_all, None, None)
    shift = noise.around(noise.shift(first, second), after_all.median - before_all.median)
    ratio = noise.ratio(first, second)
    if ratio is not None:
        ratio = noise.around(ratio, after_all.median / before_all.median - 1)
    return Figure(name, quantity, before_all, after_all, shift, ratio)


def _spread(values: Sequence[float]) -> Spread | None:
    if not values:
        return None
    return Spread(number=len(values), median=median(values), p95=quantile(values, 0.95))


_ASKED: dict[str, tuple[Kind, str]] = {name: (Kind.SAVE, name) for name in FIGURES} | {
    f"{kind.value}_{name}": (kind, name) for kind in KINDS for name in FIGURES if kind is Kind.SAVE or name != "stall"
}
NAMES: dict[str, Quantity] = {asked: gates.figure(name)[0] for asked, (_, name) in _ASKED.items()}


def judge(comparison: Comparison, conditions: Sequence[Condition]) -> list[Judged]:
    """Return what comes of each condition: it holds of a change that is more than noise, and is as large as it says."""
    return [_judge(comparison, condition) for condition in conditions]


def _judge(comparison: Comparison, condition: Condition) -> Judged:
    kind, name = _ASKED[condition.name]
    both = next((one for one in comparison.kinds if one.kind is kind), None)
    figure = None if both is None else next(one for one in both.figures if one.name == name)
    if figure is None or both is None or figure.shift is None:
        return Judged(condition, None, f"there is no {kind.value} of which it was seen on both sides")
    if not figure.shift.is_judged:
        return Judged(condition, None, too_few(figure, kind))
    change = figure.ratio if condition.relative else figure.shift
    if change is None:
        return Judged(condition, None, "it was nothing in some, so a change has no percentage")
    quantity = Quantity.SHARE if condition.relative else figure.quantity
    return Judged(
        condition,
        figure.shift.is_told and condition.holds(change.estimate),
        show(change.estimate, quantity, signed=True),
    )


def too_few(figure: Figure, kind: Kind) -> str:
    """Return that there are too few values to tell anything, and how many it takes."""
    before = figure.before.number if figure.before is not None else 0
    after = figure.after.number if figure.after is not None else 0
    least = noise.least_values()
    return f"it cannot be told from noise with {before} and {after} {kind.value}s; {least} on each side could tell"
