"""Numbers with units as people type them: 30s, 1h30m, 1.5TB, 1TiB, 405B parameters, 65GB/s, 419/54d."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from ckptprof.errors import UsageError

TIME_FORMS = "500ms, 30s, 5m, 1.5h, 1h30m, 2d"
SIZE_FORMS = "1.5TB (decimal, 10^12 bytes) or 1.5TiB (binary, 2^40 bytes)"
RATE_FORMS = "65GB/s (decimal) or 60GiB/s (binary)"
COUNT_FORMS = "24000, 24,000, 8B or 1.4T (K thousand, M million, B billion, T trillion)"
FAILURE_FORMS = "12/30d: the number of failures in a period"

_NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_VALUE = re.compile(rf"([+-]?(?:{_NUMBER}|nan|inf(?:inity)?(?!\w)))\s*(\D.*)?\Z", re.ASCII | re.IGNORECASE | re.DOTALL)
_TIMES = re.compile(rf"(?:{_NUMBER}\s*[a-z]+\s*)+\Z", re.ASCII | re.IGNORECASE)
_TIME = re.compile(rf"({_NUMBER})\s*([a-z]+)", re.ASCII | re.IGNORECASE)
_SECONDS = {
    "ms": 1e-3, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 31_557_600,
}  # fmt: skip
_COUNTS = {"": 1, "k": 1e3, "m": 1e6, "b": 1e9, "bn": 1e9, "t": 1e12}
_PREFIXES = "kmgtpe"
_UNIT_OF_SIZE = re.compile(r"([kmgtpe])(i)?B\Z", re.IGNORECASE)
_BITS = re.compile(r"(?:(?:[KMGTPE]i?)?b|[A-Za-z]*bits?)\Z")
_LONGEST = 40  # characters of the input quoted in errors
_PLAIN_BYTES = 1_000_000  # a smaller number without a unit is probably a mistake


def seconds(text: str, option: str) -> float:
    """Return a time in seconds; raises UsageError."""
    typed = text.strip()
    if _TIMES.match(typed):
        parts = _TIME.findall(typed)
        if unknown := [unit for _, unit in parts if unit.lower() not in _SECONDS]:
            raise _unknown_unit(option, text, unknown[0], TIME_FORMS)
        return sum(_float(number) * _SECONDS[unit.lower()] for number, unit in parts)
    value, unit = _split(text, option, TIME_FORMS)
    if not unit and value:
        raise UsageError(f"{option} {_shown(text)} has no unit", hint=f"write {TIME_FORMS}")
    if unit and unit.lower() not in _SECONDS:
        raise _unknown_unit(option, text, unit, TIME_FORMS)
    return value * _SECONDS.get(unit.lower(), 1)


def size(text: str, option: str) -> float:
    """Return a size in bytes: kB, MB, GB, TB, PB, EB are decimal, KiB to EiB binary; raises UsageError."""
    value, unit = _split(text, option, SIZE_FORMS)
    factor = _bytes_of(unit)
    if factor is None:
        raise _unknown_unit(option, text, unit, SIZE_FORMS)
    if factor == 1 and 0 < value < _PLAIN_BYTES:
        raise UsageError(
            f"{option} {_shown(text)} would be {value:g} bytes",
            hint=f"write {SIZE_FORMS}; billions of parameters are --parameters 405B",
        )
    return value * factor


def rate(text: str, option: str) -> float:
    """Return bytes per second; raises UsageError."""
    value, unit = _split(text, option, RATE_FORMS)
    bare = re.fullmatch(r"(.*?)(?:/s|ps)", unit)
    factor = None if bare is None or not bare[1] else _bytes_of(bare[1])
    if factor is None:
        raise _unknown_unit(option, text, unit, RATE_FORMS)
    return value * factor


def count(text: str, option: str) -> float:
    """Parse a count, 405B for 405 billion; raises UsageError."""
    value, unit = _split(text, option, COUNT_FORMS)
    bare = re.sub(r"\s*param(?:eter)?s?\Z", "", unit, flags=re.IGNORECASE).lower()
    if bare not in _COUNTS:
        raise _unknown_unit(option, text, unit, COUNT_FORMS)
    return value * _COUNTS[bare]


def whole(text: str, option: str) -> int:
    """Parse a whole count; raises UsageError."""
    value = count(text, option)
    if not math.isfinite(value):
        raise UsageError(f"{option} {_shown(text)} is not a number", hint=f"write {COUNT_FORMS}")
    if value != round(value):
        raise UsageError(f"{option} {_shown(text)} is not a whole number", hint=f"write {COUNT_FORMS}")
    return round(value)


@dataclass(frozen=True)
class Failures:
    """A number of failures in a period. Not a tuple: typer would parse two words for it."""

    number: int
    seconds: float


def failures(text: str, option: str) -> Failures:
    """Parse a number of failures in a time, as `12/30d`; raises UsageError."""
    number, slash, time = text.partition("/")
    if not slash:
        raise UsageError(f"{option} {_shown(text)} has no period", hint=f"write {FAILURE_FORMS}")
    return Failures(whole(number, option), seconds(time, option))


def _split(text: str, option: str, forms: str) -> tuple[float, str]:
    found = _VALUE.match(text.strip())
    if found is None:
        raise UsageError(f"{option} {_shown(text)} is not a number with a unit", hint=f"write {forms}")
    return _float(found[1]), (found[2] or "").strip()


def _float(number: str) -> float:
    return float(number.replace(",", ""))


def _bytes_of(unit: str) -> float | None:
    if unit.lower() in ("", "b", "bytes") and unit != "b":
        return 1
    found = None if _BITS.match(unit) else _UNIT_OF_SIZE.match(unit)
    if found is None:
        return None
    power = _PREFIXES.index(found[1].lower()) + 1
    return float(1024**power if found[2] else 1000**power)


def _unknown_unit(option: str, text: str, unit: str, forms: str) -> UsageError:
    reason = (
        "counts bits, not bytes"
        if _BITS.match(unit.removesuffix("/s").removesuffix("ps"))
        else "is not a unit of this option"
    )
    return UsageError(f"{option} {_shown(text)}: {_shown(unit)} {reason}", hint=f"write {forms}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= _LONGEST else text[:_LONGEST] + "...")
