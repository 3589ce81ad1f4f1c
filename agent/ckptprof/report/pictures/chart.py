"""The timeline of a checkpoint, drawn with characters: bandwidth upwards, time to the right."""

from __future__ import annotations

from collections.abc import Sequence

from ckptprof import units
from ckptprof.model import Point
from ckptprof.report.clean import pad
from ckptprof.report.table import paint

BLOCKS = " ▁▂▃▄▅▆▇█"
ASCII_BLOCKS = " .:-=+*#@"
_NS = 1_000_000_000
_MAX_COLUMNS = 120
_STEPS_NS = tuple(
    round(step * _NS)
    for step in (
        *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30),
        *(60, 120, 300, 600, 1200, 1800, 3600, 7200, 21_600, 86_400),
    )
)


def draw(points: Sequence[Point], width: int, height: int, *, blocks: str = BLOCKS, colour: bool = False) -> list[str]:
    """Return the chart as `height` + 2 lines of at most `width` cells; empty if there is nothing to draw."""
    if not any(point.bytes > 0 for point in points):
        return []
    start_ns, end_ns = min(p.start_ns for p in points), max(p.end_ns for p in points)
    if end_ns <= start_ns:
        return []
    label_cells = 10
    columns = max(8, min(_MAX_COLUMNS, width - label_cells - 3))
    speeds = resample(points, start_ns, end_ns, columns)
    top = nice_ceiling(max(speeds))
    vertical, corner, line, mark = "│└─┴" if blocks == BLOCKS else "|+-+"
    lines = []
    for row in range(height, 0, -1):
        label = units.rate(top * row / height) if row in (height, (height + 1) // 2) else ""
        bar = "".join(_cell(speed / top * height, row, blocks) for speed in speeds).rstrip()
        lines.append(
            f"{pad(label, label_cells, right=True)} {vertical}{paint(bar, 'cyan', colour=colour) if bar else ''}"
        )
    ticks = _ticks(columns, end_ns - start_ns)
    axis, below = [line] * columns, "0"
    for place, label in ticks:
        axis[place - 1] = mark
        if place - len(label) > len(below):
            below = pad(below, place - len(label)) + label
    lines.append(f"{pad('0', label_cells, right=True)} {corner}{''.join(axis)}")
    lines.append(" " * (label_cells + 2) + below)
    return lines


def resample(points: Sequence[Point], start_ns: int, end_ns: int, columns: int) -> list[float]:
    """Return bytes per second for each of `columns` equal slices; each point's bytes are spread over its interval."""
    slice_ns = (end_ns - start_ns) / columns
    totals = [0.0] * columns
    for point in points:
        start_slice, end_slice = (point.start_ns - start_ns) / slice_ns, (point.end_ns - start_ns) / slice_ns
        if end_slice <= start_slice:
            totals[min(columns - 1, max(0, int(start_slice)))] += point.bytes
            continue
        for i in range(max(0, int(start_slice)), min(columns, int(end_slice) + 1)):
            totals[i] += point.bytes * max(0.0, min(end_slice, i + 1) - max(start_slice, i)) / (end_slice - start_slice)
    return [total * _NS / slice_ns for total in totals]


def nice_ceiling(value: float) -> float:
    """Return the next 1, 1.5, 2, 3, 4, 5, 6 or 8 times a power of ten at or above a value."""
    if value <= 0:
        return 1.0
    power = 10.0 ** (len(str(int(value))) - 1)
    for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10):
        if value <= step * power:
            return step * power
    return value


def _cell(filled: float, row: int, blocks: str) -> str:
    """Return the block of one row (1 is the lowest) of a bar; every value above zero shows in the lowest row."""
    level = round((filled - (row - 1)) * (len(blocks) - 1))
    least = 1 if row == 1 and filled > 0 else 0
    return blocks[max(least, min(len(blocks) - 1, level))]


def _ticks(columns: int, span_ns: int) -> list[tuple[int, str]]:
    """Return the columns (1 is the first) and labels of round times, at least a label's width apart."""
    most = max(1, columns // 12)
    step_ns = next((step for step in _STEPS_NS if span_ns / step <= most), span_ns)
    marks = []
    for at_ns in range(step_ns, span_ns + 1, step_ns):
        text = f"{at_ns / _NS:g} s" if at_ns < 60 * _NS else units.duration(at_ns)
        text = f"{at_ns / 1_000_000:g} ms" if at_ns < _NS else text
        marks.append((round(at_ns * columns / span_ns), text))
    return [mark for mark in marks if mark[0] > 0]
