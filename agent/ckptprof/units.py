"""Formatting of numbers: sizes and rates in one system of units, durations, times.

Reports, verdicts and messages all use it, so that a value reads the same everywhere.
"""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta, timezone, tzinfo

from ckptprof.errors import UsageError

NOT_OBSERVED = "not observed"
VARIABLE = "CKPTPROF_UNITS"  # of the environment
SYSTEMS = {  # the factor from one unit to the next, and the units
    "decimal": (1000, ("B", "kB", "MB", "GB", "TB", "PB", "EB")),
    "binary": (1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")),
}
NS, MS, GIB = 1_000_000_000, 1_000, 1 << 30  # of a second, of bytes
HOUR_SECONDS, DAY_SECONDS = 3_600, 86_400
_DECIMAL = re.compile(r"\b(\d+(?:\.\d+)?) (B|kB|MB|GB|TB|PB|EB)\b")
_system = "decimal"


def check(system: str | None) -> str:
    """Validate the name of a system of units, decimal for None; raises UsageError."""
    if system and system not in SYSTEMS:
        raise UsageError(f"{VARIABLE}={system!r} is not a system of units", hint=f"use {' or '.join(SYSTEMS)}")
    return system or "decimal"


def choose(system: str | None) -> None:
    """Use this system of units from now on, decimal for None; raises UsageError."""
    global _system  # noqa: PLW0603 - one setting of one program, as a locale is
    _system = check(system)


def size(value: float | None) -> str:
    """Format bytes with about three significant digits: 512 B, 1.25 kB, 954 MB."""
    if value is None:
        return NOT_OBSERVED
    factor, units = SYSTEMS[_system]
    place = 0
    while abs(value) >= 999.5 and place < len(units) - 1:
        value /= factor
        place += 1
    digits = 0 if place == 0 or abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    return f"{value:.{digits}f} {units[place]}"


def restated(text: str) -> str:
    """Convert decimal sizes in a recorded sentence to the chosen system."""
    if _system == "decimal":
        return text
    factor, units = SYSTEMS["decimal"]
    return _DECIMAL.sub(lambda found: size(float(found[1]) * factor ** units.index(found[2])), text)


def rate(bytes_per_second: float | None) -> str:
    """Format a bandwidth: 267 MB/s, 2.48 GB/s."""
    return NOT_OBSERVED if bytes_per_second is None else f"{size(bytes_per_second)}/s"


def per_second(operations_per_second: float) -> str:
    """Format operations per second: 8.3/s, 61,700/s."""
    return f"{operations_per_second:,.{0 if operations_per_second >= 10 else 1}f}/s"


def speed(transferred_bytes: int, spent_ns: int) -> float | None:
    """Return bytes per second; None for a time of 0."""
    return transferred_bytes * NS / spent_ns if spent_ns > 0 else None


def duration(spent_ns: float | None) -> str:
    """Format a duration: 42 ms, 0.42 s, 39.2 s, 2 min 05 s, 1 h 04 min, 3 d 04 h."""
    if spent_ns is None:
        return NOT_OBSERVED
    seconds = spent_ns / NS
    if seconds < 0.0995:
        return "0 s" if seconds <= 0 else f"{seconds * 1000:.0f} ms" if seconds >= 0.001 else "<1 ms"
    if seconds < 59.95:
        return f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24:02d} h"


def seconds(spent: float | None) -> str:
    """Format a duration in seconds."""
    return NOT_OBSERVED if spent is None or not math.isfinite(spent) else duration(spent * NS)


def latency(seconds: float | None) -> str:
    """Format a short time with two digits: 0.18 ms, 1.5 ms, 12 ms, 1.1 s."""
    if seconds is None:
        return NOT_OBSERVED
    if seconds < 9.5e-6:
        return "<0.01 ms"
    value, unit = (seconds * 1000, "ms") if seconds < 0.95 else (seconds, "s")
    digits = 0 if value >= 9.95 else 1 if value >= 0.995 else 2
    return f"{value:.{digits}f} {unit}"


def percent(share: float | None) -> str:
    """Format a share of 0..1 in percent; tiny values are <0.1 %, never 0 %."""
    if share is None:
        return NOT_OBSERVED
    value = share * 100
    if 0 < value < 0.1:
        return "<0.1 %"
    if 99.9 < value < 100:
        return ">99.9 %"
    return f"{value:.0f} %" if value == round(value) else f"{value:.1f} %"


def count(value: int | None) -> str:
    """Format a whole number with separators of thousands."""
    return NOT_OBSERVED if value is None else f"{value:,}"


def plural(number: int, noun: str) -> str:
    """Return "1 save", "2 saves"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def fixed_zone(at_ns: int, zone: tzinfo) -> timezone:
    """Return the offset of `zone` at an instant, for all times of a report."""
    try:
        offset = datetime.fromtimestamp(at_ns / NS, zone).utcoffset()
    except (OverflowError, ValueError, OSError):  # a clock wrong by millennia
        offset = None
    return timezone(timedelta(0) if offset is None else offset)


def moment(at_ns: int, zone: tzinfo) -> datetime | None:
    """Return the instant in `zone`, exact to the microsecond; None beyond the calendar."""
    try:
        whole = datetime.fromtimestamp(at_ns // NS, zone)
    except (OverflowError, ValueError, OSError):
        return None
    return whole.replace(microsecond=at_ns % NS // 1000)


def stamp(at_ns: int | None, zone: tzinfo, pattern: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Format an instant by a strftime pattern; nanoseconds if beyond the calendar."""
    if at_ns is None:
        return NOT_OBSERVED
    when = moment(at_ns, zone)
    return f"{at_ns} ns" if when is None else when.strftime(pattern)


def offset_name(zone: tzinfo) -> str:
    """Return "UTC" or "UTC+02:00" for a zone of fixed offset."""
    offset = zone.utcoffset(None) or timedelta(0)
    if not offset:
        return "UTC"
    minutes = round(offset.total_seconds() / 60)
    sign = "+" if minutes > 0 else "-"
    return f"UTC{sign}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"
