"""Curves as SVG: small panels with a line for each series, both axes linear from nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

_COLUMNS, _WIDTH, _HEIGHT = 3, 320, 230  # of the picture; of a panel
_LEFT, _TOP, _ACROSS, _UP = 48, 34, 250, 140  # of a panel's axes
_COLOURS = ("#0969da", "#cf222e", "#8c959f", "#d4a72c")


@dataclass(frozen=True)
class Panel:
    """One drawing: what is over what, and the points of each series."""

    over: str
    what: str
    lines: Mapping[str, Sequence[tuple[float, float]]]


def drawn(panels: Sequence[Panel], title: str) -> str:
    """Return the picture; a series has the same colour in all panels."""
    series = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    colours = {name: _COLOURS[number % len(_COLOURS)] for number, name in enumerate(series)}
    rows = -(-len(panels) // _COLUMNS)
    width, height = _COLUMNS * _WIDTH, rows * _HEIGHT + 30
    font = 'font-family="system-ui, sans-serif" font-size="11"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {font} role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for number, panel in enumerate(panels):
        row, column = divmod(number, _COLUMNS)
        parts += [f'<g transform="translate({column * _WIDTH} {row * _HEIGHT})">', *_panel(panel, colours), "</g>"]
    for number, name in enumerate(series):
        at = _LEFT + number * 150
        parts.append(f'<path d="M{at} {height - 14}h24" stroke="{colours[name]}" stroke-width="2"/>')
        parts.append(f'<text x="{at + 30}" y="{height - 10}" fill="#1f2328">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel, colours: Mapping[str, str]) -> list[str]:
    points = [point for line in panel.lines.values() for point in line]
    right, top = (_round_up(max(point[axis] for point in points)) for axis in (0, 1))
    floor = _TOP + _UP
    parts = [
        f'<path d="M{_LEFT} {_TOP}V{floor}H{_LEFT + _ACROSS}" fill="none" stroke="#57606a"/>',
        f'<text x="{_LEFT}" y="{_TOP - 12}" fill="#57606a">{escape(panel.what)}</text>',
        f'<text x="{_LEFT + _ACROSS}" y="{floor + 32}" text-anchor="end" fill="#57606a">{escape(panel.over)}</text>',
    ]
    for share in (0.0, 0.5, 1.0):
        x, y = _LEFT + share * _ACROSS, floor - share * _UP
        parts.append(f'<text x="{x:g}" y="{floor + 16}" text-anchor="middle" fill="#1f2328">{right * share:,g}</text>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:g}" text-anchor="end" fill="#1f2328">{top * share:,g}</text>')
    for name, line in panel.lines.items():
        placed = [(_LEFT + x / right * _ACROSS, floor - y / top * _UP) for x, y in sorted(line)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colours[name]}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colours[name]}"/>' for x, y in placed]
    return parts


def _round_up(value: float) -> float:
    """Return the next 1, 2, 3, 4, 5, 6 or 8 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(step * power for step in (1, 2, 3, 4, 5, 6, 8, 10) if value <= step * power * 1.0001)
