"""The offset of each stream in its file over time: few points of few streams, which preserve the shape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ckptprof.detect.transfers.model.looks import Look
from ckptprof.detect.transfers.model.thinning import thinned
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.order import uses_position
from ckptprof.detect.world.clock import Clock
from ckptprof.model import Progress

MAX_POINTS = 32  # of a stream
MAX_STREAMS = 16  # of a checkpoint: as many as are drawn
_ALL_POINTS = 128  # of a checkpoint: 2 KB at most


def progress_of(parts: Sequence[Transfer], clock: Clock) -> tuple[dict[int, tuple[Progress, ...]], int]:
    """Sample the points of some parts, by index, and count the observed parts that are omitted."""
    seen = [place for place, part in enumerate(parts) if _is_seen(part)]
    chosen = sorted(seen, key=_rank_of(parts, seen).__getitem__)[:MAX_STREAMS]
    found = {place: _points_of(parts[place], clock) for place in chosen}
    for place, most in _shares({place: len(points) for place, points in found.items()}):
        found[place] = thinned(found[place], most)
    return {place: tuple(points) for place, points in found.items()}, len(seen) - len(chosen)


def _is_seen(part: Transfer) -> bool:
    if part.operations is not None:
        return any(point.low_offset is not None for point in part.points)
    return bool(_looks_of(part))


def _looks_of(part: Transfer) -> Sequence[Look]:
    """Select the samples of the position during the transfer; empty if positions are no evidence."""
    looks = [look for look in part.looks if part.start_ns <= look.at_ns <= part.end_ns]
    return looks if looks and not part.is_mapped and uses_position(looks, part.bytes) else ()


def _rank_of(parts: Sequence[Transfer], seen: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Sort key: the largest file of each process first, or one rank with many files would hide the others."""
    ends: dict[object, int] = {}
    for part in parts:
        ends[part.process] = max(part.end_ns, ends.get(part.process, 0))
    ranks: dict[int, tuple[int, int]] = {}
    earlier: Counter[object] = Counter()
    for place in sorted(seen, key=lambda place: -parts[place].bytes):
        process = parts[place].process
        ranks[place] = earlier[process], -ends[process]
        earlier[process] += 1
    return ranks


def _shares(numbers: dict[int, int]) -> Iterator[tuple[int, int]]:
    left = _ALL_POINTS
    for done, (place, number) in enumerate(sorted(numbers.items(), key=lambda pair: pair[1])):
        share = min(number, MAX_POINTS, left // (len(numbers) - done))
        left -= share
        yield place, share


def _points_of(part: Transfer, clock: Clock) -> list[Progress]:
    if part.operations is None:
        times = [(clock.wall(look.at_ns), look.position) for look in _looks_of(part)]
        return [Progress(at_ns, at_ns, None, position, position) for at_ns, position in times]
    return [
        Progress(clock.wall(start_ns), clock.wall(end_ns), moved, low, high, order, tid)
        for start_ns, end_ns, moved, low, high, order, tid in sorted(part.points, key=lambda one: one.start_ns)
        if low is not None and high is not None
    ]
