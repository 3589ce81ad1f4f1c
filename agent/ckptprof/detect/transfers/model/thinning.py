"""Many points of a stream in few, which keep its shape: when it went on, when it stood still, where it jumped."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import msgspec

from ckptprof.detect.transfers.model.movement import Movement, merged
from ckptprof.model import Progress


def thinned(points: Sequence[Progress], most: int) -> list[Progress]:
    """Return so many points by their start: of looks those that shape the line, of stretches neighbours are joined."""
    if len(points) <= most:
        return sorted(points, key=lambda one: one.start_ns)
    looks = [one for one in points if one.bytes is None]
    stretches = [one for one in points if one.bytes is not None]
    if looks and stretches:  # two halves, seen by different means
        points = [*thinned(looks, most // 2), *thinned(stretches, most - most // 2)]
    else:
        points = _shaping(looks, most) if looks else _joined(stretches, most)
    return sorted(points, key=lambda one: one.start_ns)


def _shaping(looks: Sequence[Progress], most: int) -> list[Progress]:
    """Return the first and the last, then again and again the one that is furthest from the line so far."""
    kept = {0, len(looks) - 1}
    open_ = [_furthest(looks, 0, len(looks) - 1)]
    while open_ and len(kept) < most:
        _, first, place, last = heapq.heappop(open_)
        kept.add(place)
        for low, high in ((first, place), (place, last)):
            if high - low > 1:
                heapq.heappush(open_, _furthest(looks, low, high))
    return [looks[place] for place in sorted(kept)]


def _furthest(looks: Sequence[Progress], first: int, last: int) -> tuple[float, int, int, int]:
    """Return (less its distance, first, place, last) of the look that is furthest from a straight line."""
    begin, end = looks[first], looks[last]
    slope = (end.low_offset - begin.low_offset) / max(1, end.start_ns - begin.start_ns)
    return min(
        (-abs(looks[i].low_offset - begin.low_offset - slope * (looks[i].start_ns - begin.start_ns)), first, i, last)
        for i in range(first + 1, last)
    )


def _joined(stretches: Sequence[Progress], most: int) -> list[Progress]:
    """Join neighbours where least of their common frame was of neither; of several threads only if there is no other.

    The cheapest quarter at once, or a long one would take a second.
    """
    ordered = sorted(stretches, key=lambda one: (one.tid or 0, one.start_ns))
    line = [Movement(*msgspec.structs.astuple(one)) for one in ordered]
    while len(line) > most:
        firsts = sorted(range(len(line) - 1), key=lambda place: _wasted(line[place], line[place + 1]))
        gone: set[int] = set()
        for first in firsts[: max(1, min(len(line) - most, len(firsts) // 4))]:
            if gone.isdisjoint((first - 1, first, first + 1)):
                gone.add(first)
                line[first + 1] = merged(line[first], line[first + 1])
        line = [one for place, one in enumerate(line) if place not in gone]
    return [Progress(*one) for one in line]  # type: ignore[arg-type] # each has a place, as those it is made of


def _wasted(one: Movement, other: Movement) -> tuple[bool, int]:
    return one.tid != other.tid, _frame(merged(one, other)) - _frame(one) - _frame(other)


def _frame(one: Movement) -> int:
    return (one.end_ns - one.start_ns) * ((one.high_offset or 0) - (one.low_offset or 0))
