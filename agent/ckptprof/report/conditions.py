"""The conditions of --fail-on, such as `stall_p95>60s`: parsing and evaluation."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from ckptprof import figures, units
from ckptprof.errors import UsageError
from ckptprof.model import Checkpoint, Kind, Report, Status
from ckptprof.report import certainty, checkpoint_facts
from ckptprof.report import summary as summaries
from ckptprof.verdicts import Limit

_FORM = re.compile(r"([A-Za-z_][A-Za-z0-9_]*) *(>=|<=|!=|==|=|>|<) *(\S+)\Z", re.ASCII)
_NUMBER = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)"
_SPAN = re.compile(r"([+-]?)((?:\d+(?:\.\d*)?(?:us|ms|min|s|m|h|d))+)\Z", re.ASCII)
_SPAN_PART = re.compile(r"(\d+(?:\.\d*)?)(us|ms|min|s|m|h|d)", re.ASCII)
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_SIZED = re.compile(rf"({_NUMBER})(|[kKMGTP]|[KMGTP]i)B(/s)?\Z", re.ASCII)
_SHARE = re.compile(rf"({_NUMBER})%\Z", re.ASCII)
_PLAIN = re.compile(rf"({_NUMBER})x?\Z", re.ASCII)
_EXAMPLE, _CHANGE_EXAMPLE = "stall_p95>60s", "duration>10%"
_MAX_TEXT = 4096
_MAX_NAMES = 12  # that a hint lists in full
_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


class Quantity(Enum):
    """The quantity of a value, with an example of its notation."""

    COUNT = "3"
    TIME = "90s, 1m30s or 250ms"
    SHARE = "5%"
    RATE = "1.5GB/s or 800MiB/s"
    SIZE = "20GB or 16GiB"
    FACTOR = "1.5"
    LIMIT = "a limit, as `disk`"


_SHOWN: dict[Quantity, Callable[[float], str]] = {
    Quantity.COUNT: lambda value: units.count(round(value)),
    Quantity.TIME: units.seconds,
    Quantity.SHARE: units.percent,
    Quantity.RATE: units.rate,
    Quantity.SIZE: units.size,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """One parsed condition; `value` in seconds, bytes, bytes per second or as a share."""

    text: str
    name: str
    operator: str
    value: float
    quantity: Quantity
    limit: Limit | None = None  # in place of the value
    relative: bool = False  # a change in proportion, in `diff`

    def matches(self, value: float) -> bool:
        """Compare a value with it."""
        return _OPERATORS[self.operator](value, self.value)


@dataclass(frozen=True, slots=True)
class ConditionResult:
    """The result of a condition; `is_met` is None if it cannot be evaluated; `explanation`: the value or the reason."""

    condition: Condition
    is_met: bool | None
    explanation: str


def parse(texts: Sequence[str], names: Mapping[str, Quantity], *, relative: bool = False) -> list[Condition]:
    """Parse conditions, several per text if separated by commas; raises UsageError.

    With `relative` a value in percent is a relative change, whatever the quantity.
    """
    found = []
    for text in texts:
        if len(text) > _MAX_TEXT:
            raise UsageError(f"--fail-on accepts at most {_MAX_TEXT} characters")
        parts = [part.strip() for part in text.split(",")]
        if not any(parts):
            example = _CHANGE_EXAMPLE if relative else _EXAMPLE
            raise UsageError("--fail-on has no condition", hint=f"--fail-on '{example}'")
        found += [_parse_one(part, names, relative=relative) for part in parts if part]
    return found


def format_value(value: float, quantity: Quantity, *, signed: bool = False) -> str:
    """Format a value for users."""
    shown = _SHOWN.get(quantity)
    sign = "-" if value < 0 else "+" if signed and value > 0 else ""
    return sign + (f"{abs(value):.3g}" if shown is None else shown(abs(value)))


def _parse_one(text: str, names: Mapping[str, Quantity], *, relative: bool) -> Condition:
    form = _FORM.match(text)
    if form is None:
        forms = f"> or <, and a change, as in --fail-on '{_CHANGE_EXAMPLE}'"
        if not relative:
            forms = f"one of > >= < <= = !=, and a value, as in --fail-on '{_EXAMPLE}'"
        raise UsageError(f"--fail-on {text!r} is not a condition", hint=f"write NAME, {forms}")
    name, operator, value = form[1].lower(), form[2].replace("==", "="), form[3]
    quantity = names.get(name)
    if quantity is None:
        from difflib import get_close_matches  # noqa: PLC0415 # for this error only

        near = get_close_matches(name, names, n=3, cutoff=0.5)
        known = ", ".join(names) if len(names) <= _MAX_NAMES else "`--help` lists all names"
        hint = f"did you mean {' or '.join(near)}? {known}" if near else known
        raise UsageError(f"--fail-on {text!r}: unknown name {form[1]!r}", hint=hint)
    if operator in ("=", "!=") and quantity not in (Quantity.COUNT, Quantity.LIMIT):
        raise UsageError(f"--fail-on {text!r}: {name} is measured and never exactly equal", hint="compare with > or <")
    if quantity is Quantity.LIMIT:
        return _limit(text, name, operator, value)
    share = _SHARE.match(value)
    if relative and share is not None:
        return Condition(text, name, operator, _finite(text, float(share[1]) / 100), quantity, relative=True)
    number = _value(value, quantity)
    if number is None:
        example = f"{quantity.value}, or a change as 10%" if relative else quantity.value
        raise UsageError(f"--fail-on {text!r}: {value!r} is not a value for {name}", hint=f"write {example}")
    return Condition(text, name, operator, _finite(text, number), quantity)


def _limit(text: str, name: str, operator: str, value: str) -> Condition:
    words = {limit.word: limit for limit in Limit}
    limit = ({limit.value: limit for limit in Limit} | words).get(value.lower().replace("_", "-"))
    if operator not in ("=", "!=") or limit is None:
        raise UsageError(f"--fail-on {text!r}: {name} takes = or !=, and a limit", hint=", ".join(words))
    return Condition(text, name, operator, 0.0, Quantity.LIMIT, limit=limit)


def _finite(text: str, number: float) -> float:
    if not math.isfinite(number):
        raise UsageError(f"--fail-on {text!r}: the number is too large")
    return number


def _value(text: str, quantity: Quantity) -> float | None:
    plain = _PLAIN.match(text)
    if plain is not None and (quantity in (Quantity.COUNT, Quantity.FACTOR) or not float(plain[1])):
        return float(plain[1])
    if quantity is Quantity.TIME:
        span = _SPAN.match(text)
        parts = [] if span is None else _SPAN_PART.findall(span[2])
        total = sum(float(number) * _SECONDS[unit] for number, unit in parts)
        return None if span is None else -total if span[1] == "-" else total
    if quantity is Quantity.SHARE:
        share = _SHARE.match(text)
        return None if share is None else float(share[1]) / 100
    if quantity in (Quantity.RATE, Quantity.SIZE):
        sized = _SIZED.match(text)
        if sized is None or (sized[3] is not None) is not (quantity is Quantity.RATE):
            return None
        step = 1024 if sized[2].endswith("i") else 1000
        return float(sized[1]) * float(step) ** " KMGTP".index((sized[2][:1] or " ").upper())
    return None


STATISTICS = ("min", "mean", "median", "p95", "p99", "max", "total")
_QUANTILES = {"min": 0.0, "p95": 0.95, "p99": 0.99, "max": 1.0}
_MIN_OBSERVED_SHARE = 0.5  # of the checkpoints: a figure known for fewer is not evaluated
_IDS = 5  # that are named

_Of = Callable[[Checkpoint], float | None]


class Series(NamedTuple):
    """A figure of each checkpoint: its quantity, the kinds that have it, and how to read it."""

    quantity: Quantity
    kinds: tuple[Kind, ...]
    of: _Of


_BOTH, _SAVES, _RESTORES = (Kind.SAVE, Kind.RESTORE), (Kind.SAVE,), (Kind.RESTORE,)
SERIES = {
    "duration": Series(Quantity.TIME, _BOTH, figures.duration_seconds),
    "save": Series(Quantity.TIME, _SAVES, figures.duration_seconds),
    "restore": Series(Quantity.TIME, _RESTORES, figures.duration_seconds),
    "stall": Series(Quantity.TIME, _SAVES, figures.stall_seconds),
    "at_risk": Series(Quantity.TIME, _SAVES, lambda one: None if one.at_risk_ns is None else one.at_risk_ns / 1e9),
    "gpu_seconds": Series(Quantity.TIME, _SAVES, lambda one: None if one.cost is None else one.cost.gpu_seconds),
    "throughput": Series(Quantity.RATE, _BOTH, figures.rate_bytes_per_second),
    "save_throughput": Series(Quantity.RATE, _SAVES, figures.rate_bytes_per_second),
    "restore_throughput": Series(Quantity.RATE, _RESTORES, figures.rate_bytes_per_second),
    "size": Series(Quantity.SIZE, _SAVES, lambda one: float(one.bytes)),
    "amplification": Series(Quantity.FACTOR, _SAVES, checkpoint_facts.amplification),
    "ceiling_share": Series(Quantity.SHARE, _BOTH, lambda one: None if one.cost is None else one.cost.ceiling_share),
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
    for name, series in SERIES.items()
    for statistic in STATISTICS
    if statistic != "total" or series.quantity in _SUMMABLE
}


def evaluate(report: Report, conditions: Sequence[Condition]) -> list[ConditionResult]:
    """Evaluate each condition, in order."""
    found = []
    for condition in conditions:
        if condition.limit is not None:
            found.append(_evaluate_limit(report.checkpoints, condition, condition.limit))
            continue
        value, explanation = _figure(report, condition.name)
        is_met = None if value is None else condition.matches(value)
        shown = "" if value is None else format_value(value, condition.quantity)
        found.append(ConditionResult(condition, is_met, f"{shown} {explanation}".strip()))
    return found


def _figure(report: Report, name: str) -> tuple[float | None, str]:
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
    series = SERIES[series_name]
    return _statistic([one for one in checkpoints if one.kind in series.kinds], series, statistic)


def _share(report: Report, name: str) -> tuple[float | None, str]:
    found = summaries.summarise(report)
    if not found.watched_ns:
        return None, "nothing was recorded"
    if name == "share":
        return found.share, "of the watched time"
    saves = [one for one in report.checkpoints if one.kind is Kind.SAVE]
    stall, explanation = _statistic(saves, SERIES["stall"], "total") if saves else (0.0, "")
    if stall is None:
        return None, explanation
    return stall * 1e9 / found.watched_ns, f"of the watched time {explanation}".strip()


def _statistic(chosen: Sequence[Checkpoint], series: Series, statistic: str) -> tuple[float | None, str]:
    noun = "checkpoint" if len(series.kinds) > 1 else series.kinds[0].value
    if not chosen:
        return None, f"there is no {noun}"
    if statistic != "total":
        chosen = figures.complete(chosen)
    if not chosen:
        return None, f"there is no complete {noun}"
    values = figures.of_all(chosen, series.of)
    coverage = f"observed for {units.count(len(values))} of {units.plural(len(chosen), noun)}"
    if len(values) < _MIN_OBSERVED_SHARE * len(chosen):
        return None, coverage if values else f"not observed for any of {units.plural(len(chosen), noun)}"
    remark = "" if len(values) == len(chosen) else f"({coverage})"
    if statistic == "median":
        return figures.median(values), remark
    if statistic in _QUANTILES:
        return figures.quantile(values, _QUANTILES[statistic]), remark
    total = math.fsum(values)
    return total if statistic == "total" else total / len(values), remark


def _evaluate_limit(checkpoints: Sequence[Checkpoint], condition: Condition, limit: Limit) -> ConditionResult:
    """Evaluate `limit=X` (a checkpoint was probably limited by X) and `limit!=X` (one by something else)."""
    decided = [
        (one, one.verdict.limit)
        for one in checkpoints
        if one.verdict is not None and (one.verdict.limit is Limit.UNCLEAR or certainty.is_probable(one.verdict))
    ]
    if not decided:
        return ConditionResult(condition, None, "no checkpoint has a known limit")
    chosen = [one for one, own in decided if (own is limit) is (condition.operator == "=")]
    shown = f"{len(chosen)} of {units.plural(len(decided), 'checkpoint')} {_named(chosen)}".strip()
    return ConditionResult(condition, bool(chosen), shown)


def _named(chosen: Sequence[Checkpoint]) -> str:
    ids = [str(one.id) for one in chosen if one.id]
    more = f" and {len(ids) - _IDS} more" if len(ids) > _IDS else ""
    return f"(id {', '.join(ids[:_IDS])}{more})" if ids else ""
