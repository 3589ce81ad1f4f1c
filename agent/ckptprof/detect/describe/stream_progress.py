"""The offset of each stream in its file over time: few points of few streams, which preserve the shape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ckptprof.detect.transfers.access_order import uses_position
from ckptprof.detect.transfers.model.position_samples import PositionSample
from ckptprof.detect.transfers.model.thinning import thin_points
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.recording_clock import RecordingClock
from ckptprof.model import Progress

MAX_POINTS = 32  # of a stream
MAX_STREAMS = 16  # of a checkpoint: as many as are drawn
_ALL_POINTS = 128  # of a checkpoint: 2 KB at most


def sample_progress(parts: Sequence[Transfer], clock: RecordingClock) -> tuple[dict[int, tuple[Progress, ...]], int]:
    """Sample the points of some parts, by index, and count the observed parts that are omitted."""
    observed = [place for place, part in enumerate(parts) if _is_observed(part)]
    chosen = sorted(observed, key=_drawing_order(parts, observed).__getitem__)[:MAX_STREAMS]
    found = {place: _progress_points(parts[place], clock) for place in chosen}
    for place, limit in _point_quotas({place: len(points) for place, points in found.items()}):
        found[place] = thin_points(found[place], limit)
    return {place: tuple(points) for place, points in found.items()}, len(observed) - len(chosen)


def _is_observed(part: Transfer) -> bool:
    if part.operations is not None:
        return any(point.low_offset is not None for point in part.points)
    return bool(_position_samples(part))


def _position_samples(part: Transfer) -> Sequence[PositionSample]:
    """Select the samples of the position during the transfer; empty if positions are no evidence."""
    samples = [sample for sample in part.samples if part.start_ns <= sample.at_ns <= part.end_ns]
    return samples if samples and not part.is_mapped and uses_position(samples, part.bytes) else ()


def _drawing_order(parts: Sequence[Transfer], observed: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Sort key: the largest file of each process first, or one rank with many files would hide the others."""
    ends: dict[object, int] = {}
    for part in parts:
        ends[part.process] = max(part.end_ns, ends.get(part.process, 0))
    ranks: dict[int, tuple[int, int]] = {}
    earlier: Counter[object] = Counter()
    for place in sorted(observed, key=lambda place: -parts[place].bytes):
        process = parts[place].process
        ranks[place] = earlier[process], -ends[process]
        earlier[process] += 1
    return ranks


def _point_quotas(numbers: dict[int, int]) -> Iterator[tuple[int, int]]:
    points_left = _ALL_POINTS
    for done, (place, number) in enumerate(sorted(numbers.items(), key=lambda pair: pair[1])):
        quota = min(number, MAX_POINTS, points_left // (len(numbers) - done))
        points_left -= quota
        yield place, quota


def _progress_points(part: Transfer, clock: RecordingClock) -> list[Progress]:
    if part.operations is None:
        times = [(clock.wall(sample.at_ns), sample.position) for sample in _position_samples(part)]
        return [Progress(at_ns, at_ns, None, position, position) for at_ns, position in times]
    return [
        Progress(clock.wall(start_ns), clock.wall(end_ns), transferred, low, high, order, tid)
        for start_ns, end_ns, transferred, low, high, order, tid in sorted(part.points, key=lambda one: one.start_ns)
        if low is not None and high is not None
    ]
