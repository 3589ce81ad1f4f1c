"""Numbers of a verdict in words: sensible digits and a unit, the same as in reports."""

from __future__ import annotations


def _scaled(value: float, units: tuple[str, ...]) -> str:
    place = 0
    while value >= 999.5 and place < len(units) - 1:
        value /= 1000
        place += 1
    digits = 0 if place == 0 or value >= 9.95 else 1
    return f"{value:.{digits}f} {units[place]}"


def size(value: float) -> str:
    """Return bytes in SI units."""
    return _scaled(value, ("B", "kB", "MB", "GB", "TB", "PB", "EB"))


def rate(bytes_per_second: float) -> str:
    """Return bandwidth in SI units."""
    return f"{size(bytes_per_second)}/s"


def per_second(operations_per_second: float) -> str:
    """Return operations per second."""
    return f"{operations_per_second:,.{0 if operations_per_second >= 10 else 1}f}/s"


def seconds(value: float) -> str:
    """Return a duration: 42 ms, 0.42 s, 3.1 s, 39 s, 2 min 05 s, 1 h 04 min."""
    if value < 0.0995:
        return f"{value * 1000:.0f} ms" if value >= 0.001 else "<1 ms" if value > 0 else "0 s"
    if value < 59.5:
        return f"{value:.{2 if value < 0.995 else 1 if value < 9.95 else 0}f} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60:02d} min"


def share(value: float) -> str:
    """Return a share of 0..1 in percent."""
    percent = value * 100
    return "<1 %" if 0 < percent < 1 else f"{percent:,.0f} %"


def plural(number: int, noun: str) -> str:
    """Return "1 file", "2 files"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
