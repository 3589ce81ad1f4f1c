"""What a person should know before trusting a plan."""

from __future__ import annotations

from ckptprof.diagnose.plan import intervals
from ckptprof.diagnose.plan.basis import Basis
from ckptprof.diagnose.plan.figures import Figure, Given, Measured, Origin
from ckptprof.diagnose.plan.rules import Advice
from ckptprof.units import percent, plural, seconds

FIELD_MEAN_SHARE, FIELD_MOST_SHARE = 0.12, 0.43  # of training time in checkpoints, Maeng et al. 2021
_ROUNDING = 1e-9  # of a share
_DIGITS = 6  # of one: what rounding leaves is not told
_SAME_SIZE = 1.25  # measured and planned sizes that differ by more are told


def notes(basis: Basis, advice: Advice, given: Given, measured: Measured | None) -> tuple[str, ...]:
    """Return sentences, the weightiest first."""
    told = [
        _stall(basis, advice),
        _needed_cost(basis, advice),
        _background(basis, measured),
        _other_size(basis, measured),
        _this_host(basis, given, measured),
        _assumed(basis),
        _other_jobs(measured),
    ]
    return tuple(note for note in told if note is not None)


def _stall(basis: Basis, advice: Advice) -> str | None:
    share = advice.stall_share
    if basis.cost is None or share is None or share <= intervals.STALL_SHARE * (1 + _ROUNDING):
        return None
    text = (
        f"At this interval saves block training for {percent(round(share, _DIGITS))} of it, over SNIA's 5 %. "
        "Saving less often would lose more to failures than it gains: make a save cost "
        f"{seconds(advice.affordable_cost_seconds)} or less instead of {seconds(basis.cost.value)}."
    )
    if share > FIELD_MEAN_SHARE:
        field = f"{percent(FIELD_MEAN_SHARE)} on average and up to {percent(FIELD_MOST_SHARE)}"
        text += f" The field reports {field} (Maeng et al. 2021)."
    return text


def _needed_cost(basis: Basis, advice: Advice) -> str | None:
    if basis.cost is not None:
        return None
    needed = intervals.young_cost(advice.interval_seconds, basis.mttf.value)
    return (
        f"This interval is the best one (Young) only for a save that blocks training for {seconds(needed)}; "
        "with --cost, --write or a recorded job the interval and what is lost are worked out."
    )


def _background(basis: Basis, measured: Measured | None) -> str | None:
    is_sync = measured is not None and not measured.beside_training and _is_measured(basis.duration)
    if basis.background_seconds <= 0 or is_sync:
        return None
    return (
        f"An async save counts only once it is written, {seconds(basis.background_seconds)} after training went on: "
        "a failure until then falls back to the save before, which is reckoned as part of the recovery."
    )


def _other_size(basis: Basis, measured: Measured | None) -> str | None:
    if measured is None or measured.size is None or basis.size is None or not _is_measured(basis.cost):
        return None
    ratio = basis.size.value / measured.size.value
    if 1 / _SAME_SIZE <= ratio <= _SAME_SIZE:
        return None
    return f"The cost was measured on saves of another size: this one is {ratio:.3g} times as large. Give --cost."


def _this_host(basis: Basis, given: Given, measured: Measured | None) -> str | None:
    if measured is None or not _is_measured(basis.size):
        return None
    ranks = measured.ranks or 0
    own = plural(ranks, "rank") if ranks else "an unknown number of ranks"
    if given.gpus is not None and given.gpus > ranks:
        return (
            f"The size is what this host recorded of {own}; if other hosts write "
            f"a part of the checkpoint for the {given.gpus:,} GPUs, give the whole with --size or --parameters."
        )
    return None


def _assumed(basis: Basis) -> str | None:
    if basis.mttf.origin is not Origin.ASSUMED:
        return None
    return "Failures are assumed: count your own (--failures 12/30d), since every line here rests on them."


def _other_jobs(measured: Measured | None) -> str | None:
    if measured is None or not measured.other_jobs:
        return None
    other = "1 other job was" if measured.other_jobs == 1 else f"{measured.other_jobs:,} other jobs were"
    return f"{other} left out: --job chooses one."


def _is_measured(figure: Figure | None) -> bool:
    return figure is not None and figure.origin is Origin.MEASURED
