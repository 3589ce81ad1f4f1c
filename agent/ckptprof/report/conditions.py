"""Conditions as they are written behind --fail-on, `stall_p95>60s`: read, or refused with what could be meant."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from ckptprof import units
from ckptprof.errors import UsageError
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
    """What a value is of, with an example of how it is written."""

    COUNT = "3"
    TIME = "90s, 1m30s or 250ms"
    SHARE = "5%"
    RATE = "1.5GB/s or 800MiB/s"
    SIZE = "20GB or 16GiB"
    FACTOR = "1.5"
    LIMIT = "a limit, as `device`"


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition that was read; `value` in seconds, bytes, bytes per second or as a share."""

    text: str
    name: str
    operator: str
    value: float
    quantity: Quantity
    limit: Limit | None = None  # in place of the value
    relative: bool = False  # a change in proportion, in `diff`

    def holds(self, value: float) -> bool:
        """Return whether it holds of a value."""
        return _OPERATORS[self.operator](value, self.value)


@dataclass(frozen=True, slots=True)
class Judged:
    """What came of a condition; `holds` is None where it cannot be judged, and `told` says why, or the value."""

    condition: Condition
    holds: bool | None
    told: str


def parse(texts: Sequence[str], names: Mapping[str, Quantity], *, relative: bool = False) -> list[Condition]:
    """Read conditions, of which a text may hold several between commas; raises UsageError.

    With `relative` a value in percent is a change in proportion, whatever the name stands for.
    """
    found = []
    for text in texts:
        if len(text) > _MAX_TEXT:
            raise UsageError(f"--fail-on takes no more than {_MAX_TEXT} characters")
        parts = [part.strip() for part in text.split(",")]
        if not any(parts):
            example = _CHANGE_EXAMPLE if relative else _EXAMPLE
            raise UsageError("--fail-on has no condition", hint=f"--fail-on '{example}'")
        found += [_one(part, names, relative=relative) for part in parts if part]
    return found


def show(value: float, quantity: Quantity, *, signed: bool = False) -> str:
    """Return a value as an engineer reads it."""
    if quantity is Quantity.COUNT:
        text = units.count(round(abs(value)))
    elif quantity is Quantity.TIME:
        text = units.seconds(abs(value))
    elif quantity is Quantity.SHARE:
        text = units.percent(abs(value))
    elif quantity is Quantity.RATE:
        text = units.rate(abs(value))
    elif quantity is Quantity.SIZE:
        text = units.size(abs(value))
    else:
        text = f"{abs(value):.3g}"
    sign = "-" if value < 0 else "+" if signed and value > 0 else ""
    return sign + text


def _one(text: str, names: Mapping[str, Quantity], *, relative: bool) -> Condition:
    form = _FORM.match(text)
    if form is None:
        forms = f"> or <, and a change: --fail-on '{_CHANGE_EXAMPLE}'"
        if not relative:
            forms = f"one of > >= < <= = !=, and a value: --fail-on '{_EXAMPLE}'"
        raise UsageError(f"--fail-on {text!r} is no condition", hint=f"write NAME, {forms}")
    name, operator, value = form[1].lower(), form[2].replace("==", "="), form[3]
    quantity = names.get(name)
    if quantity is None:
        raise UsageError(f"--fail-on {text!r}: there is no {form[1]!r}", hint=_nearest(name, names))
    if operator in ("=", "!=") and quantity not in (Quantity.COUNT, Quantity.LIMIT):
        raise UsageError(f"--fail-on {text!r}: {name} is measured, so no two are equal", hint="compare with > or <")
    if quantity is Quantity.LIMIT:
        return _limit(text, name, operator, value)
    share = _SHARE.match(value)
    if relative and share is not None:
        return Condition(text, name, operator, _finite(text, float(share[1]) / 100), quantity, relative=True)
    number = _value(value, quantity)
    if number is None:
        example = f"{quantity.value}, or a change as 10%" if relative else quantity.value
        raise UsageError(f"--fail-on {text!r}: {value!r} is no value for {name}", hint=f"write {example}")
    return Condition(text, name, operator, _finite(text, number), quantity)


def _limit(text: str, name: str, operator: str, value: str) -> Condition:
    words = {limit.value: limit for limit in Limit}
    limit = words.get(value.lower().replace("_", "-"))
    if operator not in ("=", "!=") or limit is None:
        raise UsageError(f"--fail-on {text!r}: {name} is = or != one of the limits", hint=", ".join(words))
    return Condition(text, name, operator, 0.0, Quantity.LIMIT, limit=limit)


def _finite(text: str, number: float) -> float:
    if not math.isfinite(number):
        raise UsageError(f"--fail-on {text!r}: the number is too large")
    return number


def _nearest(name: str, names: Mapping[str, Quantity]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 # for this error only

    near = get_close_matches(name, names, n=3, cutoff=0.5)
    known = ", ".join(names) if len(names) <= _MAX_NAMES else "`--help` lists the names"
    return f"did you mean {' or '.join(near)}? {known}" if near else known


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
