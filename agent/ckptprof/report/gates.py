"""What `report --fail-on` can be asked: figures of a report by name, and whether a condition on one of them holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ckptprof import figures, units
from ckptprof.model import Checkpoint, Kind, Report, Status
from ckptprof.report import certainty, course
from ckptprof.report import summary as summaries
from ckptprof.report.conditions import Condition, Judged, Quantity, show
from ckptprof.verdicts import Limit

STATISTICS = ("min", "mean", "median", "p95", "p99", "max", "total")
_QUANTILES = {"min": 0.0, "p95": 0.95, "p99": 0.99, "max": 1.0}
_SEEN_SHARE = 0.5  # of the checkpoints; where less of them tell a figure, it is not judged
_IDS = 5  # that are named

_Of = Callable[[Checkpoint], float | None]


@dataclass(frozen=True, slots=True)
class _Series:
    """A figure that each checkpoint has: which ones, of what, and how it is read off."""

    quantity: Quantity
    kinds: tuple[Kind, ...]
    of: _Of


def _at_risk(checkpoint: Checkpoint) -> float | None:
    return None if checkpoint.at_risk_ns is None else checkpoint.at_risk_ns / 1e9


def _ceiling_share(checkpoint: Checkpoint) -> float | None:
    return None if checkpoint.cost is None else checkpoint.cost.ceiling_share


def _gpu_seconds(checkpoint: Checkpoint) -> float | None:
    return None if checkpoint.cost is None else checkpoint.cost.gpu_seconds


_BOTH, _SAVES, _RESTORES = (Kind.SAVE, Kind.RESTORE), (Kind.SAVE,), (Kind.RESTORE,)
_SERIES = {
    "duration": _Series(Quantity.TIME, _BOTH, figures.duration_seconds),
    "save": _Series(Quantity.TIME, _SAVES, figures.duration_seconds),
    "restore": _Series(Quantity.TIME, _RESTORES, figures.duration_seconds),
    "stall": _Series(Quantity.TIME, _SAVES, figures.stall_seconds),
    "at_risk": _Series(Quantity.TIME, _SAVES, _at_risk),
    "gpu_seconds": _Series(Quantity.TIME, _SAVES, _gpu_seconds),
    "throughput": _Series(Quantity.RATE, _BOTH, figures.rate_bytes_per_second),
    "save_throughput": _Series(Quantity.RATE, _SAVES, figures.rate_bytes_per_second),
    "restore_throughput": _Series(Quantity.RATE, _RESTORES, figures.rate_bytes_per_second),
    "size": _Series(Quantity.SIZE, _SAVES, figures.size_bytes),
    "amplification": _Series(Quantity.FACTOR, _SAVES, course.amplification),
    "ceiling_share": _Series(Quantity.SHARE, _BOTH, _ceiling_share),
}
_SUMMABLE = (Quantity.TIME, Quantity.SIZE)
_WHOLE = {
    "count": Quantity.COUNT,
    "saves": Quantity.COUNT,
    "restores": Quantity.COUNT,
    "incomplete": Quantity.COUNT,
    "risks": Quantity.COUNT,
    "share": Quantity.SHARE,
    "stall_share": Quantity.SHARE,
    "limit": Quantity.LIMIT,
}
_WARNINGS = ("incomplete", "risks")  # counts that name what they count
NAMES: Mapping[str, Quantity] = _WHOLE | {
    f"{name}_{statistic}": series.quantity
    for name, series in _SERIES.items()
    for statistic in STATISTICS
    if statistic != "total" or series.quantity in _SUMMABLE
}


def figure(name: str) -> tuple[Quantity, _Of]:
    """Return what a figure is of, and the function that reads it off a checkpoint."""
    series = _SERIES[name]
    return series.quantity, series.of


def judge(report: Report, conditions: Sequence[Condition]) -> list[Judged]:
    """Return what comes of each condition, in their order."""
    return [_judge(report, condition) for condition in conditions]


def _judge(report: Report, condition: Condition) -> Judged:
    if condition.limit is not None:
        return _judge_limit(report.checkpoints, condition, condition.limit)
    value, told = _figure(report, condition.name)
    if value is None:
        return Judged(condition, None, told)
    shown = show(value, condition.quantity)
    return Judged(condition, condition.holds(value), f"{shown} {told}".strip())


def _figure(report: Report, name: str) -> tuple[float | None, str]:
    """Return a figure and a remark on it, or None and why it is not known."""
    checkpoints = report.checkpoints
    counts: dict[str, Callable[[Checkpoint], bool]] = {
        "count": lambda _: True,
        "saves": lambda one: one.kind is Kind.SAVE,
        "restores": lambda one: one.kind is Kind.RESTORE,
        "incomplete": lambda one: one.status is Status.INCOMPLETE,
        "risks": lambda one: bool(one.risks),
    }
    if name in counts:
        chosen = [one for one in checkpoints if counts[name](one)]
        return float(len(chosen)), _named(chosen) if name in _WARNINGS else ""
    if name in ("share", "stall_share"):
        return _share(report, name)
    series_name, _, statistic = name.rpartition("_")
    series = _SERIES[series_name]
    return _statistic([one for one in checkpoints if one.kind in series.kinds], series, statistic)


def _share(report: Report, name: str) -> tuple[float | None, str]:
    found = summaries.summarise(report)
    if not found.watched_ns:
        return None, "nothing was watched"
    if name == "share":
        return found.share, "of the watched time"
    saves = [one for one in report.checkpoints if one.kind is Kind.SAVE]
    held, told = _statistic(saves, _SERIES["stall"], "total") if saves else (0.0, "")
    if held is None:
        return None, told
    return held * 1e9 / found.watched_ns, f"of the watched time {told}".strip()


def _statistic(chosen: Sequence[Checkpoint], series: _Series, statistic: str) -> tuple[float | None, str]:
    noun = "checkpoint" if len(series.kinds) > 1 else series.kinds[0].value
    if not chosen:
        return None, f"there was no {noun}"
    if statistic != "total":
        chosen = figures.complete(chosen)
    if not chosen:
        return None, f"there was no complete {noun}"
    values = figures.of_all(chosen, series.of)
    seen = f"seen of {units.count(len(values))} of {units.plural(len(chosen), noun)}"
    if len(values) < _SEEN_SHARE * len(chosen):
        return None, seen if values else f"not seen of any of {units.plural(len(chosen), noun)}"
    remark = "" if len(values) == len(chosen) else f"({seen})"
    if statistic == "median":
        return figures.median(values), remark
    if statistic in _QUANTILES:
        return figures.quantile(values, _QUANTILES[statistic]), remark
    total = math.fsum(values)
    return total if statistic == "total" else total / len(values), remark


def _judge_limit(checkpoints: Sequence[Checkpoint], condition: Condition, limit: Limit) -> Judged:
    """Judge `limit=X` (a checkpoint was at least probably limited by X) and `limit!=X` (one was by something else)."""
    told = [one for one in checkpoints if one.verdict is not None and _is_judged(one)]
    if not told:
        return Judged(condition, None, "of no checkpoint is it known what limited it")
    same = [one for one in told if certainty.limits(one, limit)]
    chosen = same if condition.operator == "=" else [one for one in told if one not in same]
    shown = f"{len(chosen)} of {units.plural(len(told), 'checkpoint')} {_named(chosen)}".strip()
    return Judged(condition, bool(chosen), shown)


def _is_judged(checkpoint: Checkpoint) -> bool:
    verdict = checkpoint.verdict
    return verdict is not None and (verdict.limit is Limit.UNCLEAR or certainty.is_told(verdict))


def _named(chosen: Sequence[Checkpoint]) -> str:
    ids = [str(one.id) for one in chosen if one.id]
    more = f" and {len(ids) - _IDS} more" if len(ids) > _IDS else ""
    return f"(id {', '.join(ids[:_IDS])}{more})" if ids else ""
