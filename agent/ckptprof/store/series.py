"""Points of one entity over time, however they were stored: pure functions on plain lists."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from operator import lt
from typing import NamedTuple

import msgspec

Values = list["int | None"]
Span = tuple[int, int]


class Strip(NamedTuple):
    """Points in the order of time: times in epoch ns, and the values of each field at them."""

    times_ns: list[int]
    columns: dict[str, Values]


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """What the store knows of one entity: cumulative counters and gauges, as the kernel gave them.

    Without a step: every stored point; between two points a counter did not move, or moved evenly. With one: the
    values at each multiple of `step_ns` that was recorded; times that nobody watched are left out.
    """

    entity: str
    times_ns: list[int]
    columns: dict[str, Values]
    step_ns: int | None = None


def joined(strips: Sequence[Strip]) -> Strip:
    """Return the strips as one, sorted by time; of several points at one time the last given one stays."""
    strip = chained(strips)
    times = strip.times_ns
    if _rises(times):
        return strip
    newest = {time: index for index, time in enumerate(times)}
    return picked(strip, [newest[time] for time in sorted(newest)])


def chained(strips: Sequence[Strip]) -> Strip:
    """Return strips that follow one another as one; a field that one of them lacks is None there."""
    if len(strips) == 1:
        return strips[0]
    times = list(chain.from_iterable(strip.times_ns for strip in strips))
    columns: dict[str, Values] = {name: [] for strip in strips for name in strip.columns}
    for strip in strips:
        for name, values in columns.items():
            values.extend(strip.columns.get(name) or [None] * len(strip.times_ns))
    return Strip(times, columns)


def _rises(times: list[int]) -> bool:
    return all(map(lt, times, islice(times, 1, None)))


def picked(strip: Strip, indexes: Sequence[int]) -> Strip:
    """Return the points at these places."""
    times = strip.times_ns
    columns = {name: [column[index] for index in indexes] for name, column in strip.columns.items()}
    return Strip([times[index] for index in indexes], columns)


def between(strip: Strip, since_ns: int, until_ns: int) -> Strip:
    """Return the points of [since, until] and the one before them, which says what held at `since`."""
    return _sliced(strip, max(bisect_right(strip.times_ns, since_ns) - 1, 0), bisect_right(strip.times_ns, until_ns))


def cut(strip: Strip, since_ns: int, until_ns: int) -> Strip:
    """Return the points of [since, until]."""
    return _sliced(strip, bisect_left(strip.times_ns, since_ns), bisect_right(strip.times_ns, until_ns))


def _sliced(strip: Strip, first: int, last: int) -> Strip:
    if first == 0 and last == len(strip.times_ns):
        return strip
    return Strip(strip.times_ns[first:last], {name: column[first:last] for name, column in strip.columns.items()})


def on_grid(strip: Strip, step_ns: int, since_ns: int, until_ns: int, spans: Iterable[Span] | None) -> Strip:
    """Return the values at the multiples of `step_ns` in [since, until] that lie in a span; None: all were watched."""
    times, indexes = [], []
    known = strip.times_ns
    for start_ns, end_ns in [(since_ns, until_ns)] if spans is None else spans:
        first = -(-max(start_ns, since_ns) // step_ns) * step_ns
        for time in range(first, min(end_ns, until_ns) + 1, step_ns):
            index = bisect_right(known, time) - 1
            if index >= 0:
                times.append(time)
                indexes.append(index)
    columns = {name: [column[index] for index in indexes] for name, column in strip.columns.items()}
    return Strip(times, columns)


def without(strip: Strip, after_ns: int, until_ns: int) -> Strip:
    """Return the strip without the points of (after, until]."""
    first, last = bisect_right(strip.times_ns, after_ns), bisect_right(strip.times_ns, until_ns)
    columns = {name: column[:first] + column[last:] for name, column in strip.columns.items()}
    return Strip(strip.times_ns[:first] + strip.times_ns[last:], columns)


def thinned(strip: Strip, max_bytes: int) -> Strip:
    """Return every n-th point, so that a block of them takes no more than `max_bytes` when it is read."""
    points = len(strip.times_ns)
    stride = -(-points * (len(strip.columns) + 1) * 8 // max_bytes)
    if stride <= 1:
        return strip
    return picked(strip, [*range(0, points - 1, stride), points - 1])


def multiples(strip: Strip, step_ns: int) -> Strip:
    """Return the points whose time is a multiple of a step."""
    return picked(strip, [index for index, time in enumerate(strip.times_ns) if time % step_ns == 0])


def merged_spans(spans: Iterable[Span]) -> list[Span]:
    """Return the spans sorted, with those that touch or overlap made one."""
    merged: list[Span] = []
    for start_ns, end_ns in sorted(spans):
        if merged and start_ns <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end_ns, merged[-1][1]))
        else:
            merged.append((start_ns, end_ns))
    return merged
