"""Reduces the points of a transfer to a few that retain its shape: activity, pauses, jumps."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import msgspec

from ckptprof.detect.transfers.model.movement import Movement, merge_movements
from ckptprof.model import Progress


def thin_points(points: Sequence[Progress], limit: int) -> list[Progress]:
    """Return at most `limit` points by start: the samples that shape the line, and stretches joined with neighbours."""
    if len(points) <= limit:
        return sorted(points, key=lambda one: one.start_ns)
    samples = [one for one in points if one.bytes is None]
    stretches = [one for one in points if one.bytes is not None]
    if samples and stretches:  # half of the limit for each kind
        points = [*thin_points(samples, limit // 2), *thin_points(stretches, limit - limit // 2)]
    else:
        points = _select_shaping(samples, limit) if samples else _join_neighbours(stretches, limit)
    return sorted(points, key=lambda one: one.start_ns)


def _select_shaping(samples: Sequence[Progress], limit: int) -> list[Progress]:
    """Return the first and the last, then repeatedly the sample that is furthest from the line so far."""
    selected = {0, len(samples) - 1}
    open_ = [_furthest(samples, 0, len(samples) - 1)]
    while open_ and len(selected) < limit:
        _, first, place, last = heapq.heappop(open_)
        selected.add(place)
        for low, high in ((first, place), (place, last)):
            if high - low > 1:
                heapq.heappush(open_, _furthest(samples, low, high))
    return [samples[place] for place in sorted(selected)]


def _furthest(samples: Sequence[Progress], first: int, last: int) -> tuple[float, int, int, int]:
    """Return (minus its distance, first, index, last) of the sample that is furthest from a straight line."""
    start, end = samples[first], samples[last]
    slope = (end.low_offset - start.low_offset) / max(1, end.start_ns - start.start_ns)
    return min(
        (
            -abs(samples[i].low_offset - start.low_offset - slope * (samples[i].start_ns - start.start_ns)),
            first,
            i,
            last,
        )
        for i in range(first + 1, last)
    )


def _join_neighbours(stretches: Sequence[Progress], limit: int) -> list[Progress]:
    """Join the neighbours whose common frame has least unused area; those of different threads last.

    A quarter at a time, the cheapest first: one by one, a long transfer would take a second.
    """
    ordered = sorted(stretches, key=lambda one: (one.tid or 0, one.start_ns))
    line = [Movement(*msgspec.structs.astuple(one)) for one in ordered]
    while len(line) > limit:
        firsts = sorted(range(len(line) - 1), key=lambda place: _wasted_area(line[place], line[place + 1]))
        merged_away: set[int] = set()
        for first in firsts[: max(1, min(len(line) - limit, len(firsts) // 4))]:
            if merged_away.isdisjoint((first - 1, first, first + 1)):
                merged_away.add(first)
                line[first + 1] = merge_movements(line[first], line[first + 1])
        line = [one for place, one in enumerate(line) if place not in merged_away]
    return [Progress(*one) for one in line]  # type: ignore[arg-type] # each has a place, as those it is made of


def _wasted_area(one: Movement, other: Movement) -> tuple[bool, int]:
    return one.tid != other.tid, _area(merge_movements(one, other)) - _area(one) - _area(other)


def _area(one: Movement) -> int:
    return (one.end_ns - one.start_ns) * ((one.high_offset or 0) - (one.low_offset or 0))
