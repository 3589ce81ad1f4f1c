"""Curves of what `guest.py --curves --json` printed: small panels, both axes linear from nothing.

python benchmarks/beside/curves.py table.json hours.json > docs/curves.svg
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

_COLUMNS, _WIDTH, _HEIGHT = 3, 320, 230  # of the picture; of a panel
_LEFT, _TOP, _ACROSS, _UP = 48, 34, 250, 140  # of a panel's axes
_CROWDS = {
    "interpreters": "idle interpreters",
    "files": "open files",
    "ranks": "ranks of 8 threads that save every 10 s",
    "events": "files written a second",
}
_REPLAYED = (
    ("guest, files", "files of a save, replayed", "files", "CPU s"),
    ("guest, hours", "hours of jobs, replayed", "hour", "CPU s an hour"),
)
_DOCUMENTS = ("guest", *(name for name, *_ in _REPLAYED))
_COLOURS = ("#0969da", "#cf222e", "#8c959f", "#d4a72c", "#1a7f37", "#8250df")


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


def panels(documents: Sequence[Mapping[str, Any]]) -> list[Panel]:
    """Return a panel for each crowd, then that of the files of a save and that of hours, where there are points."""
    rows = {name: [row for one in documents if one["benchmark"] == name for row in one["rows"]] for name in _DOCUMENTS}
    found = []
    for name, title in _CROWDS.items():
        lines: dict[str, list[tuple[float, float]]] = {}
        for row in rows["guest"]:
            if row["situation"] in {name, "idle"}:
                line = lines.setdefault(f"{row['level']}, {row['tree']}", [])
                line.append((row["count"] or 0.0, row["percent"]))
        found.append(Panel(title, "% of a core", lines))
    for name, over, x, y in _REPLAYED:
        lines = {}
        for row in rows[name]:
            if row[y] is not None:
                lines.setdefault(f"replayed, {row['tree']}", []).append((row[x], row[y]))
        found.append(Panel(over, y, lines))
    return [panel for panel in found if any(x for line in panel.lines.values() for x, _ in line)]


def main() -> None:
    """Print the picture of the documents in the files that are named."""
    lines = [line for path in sys.argv[1:] for line in Path(path).read_text(encoding="utf-8").splitlines()]
    title = "What the agent costs, against what there is on its node"
    sys.stdout.write(drawn(panels([json.loads(line) for line in lines if line.startswith("{")]), title))


if __name__ == "__main__":
    main()
