"""When the bytes of a group of transfers were moved: by their operations, else by the counters of their processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.process_counters import ProcessHistory, faulting, reading, writing


def points_of(group: Sequence[Transfer], histories: Mapping[ProcessKey, ProcessHistory]) -> list[tuple[int, int, int]]:
    """Return (start, end, bytes) of what was moved, in no order, cut to the edges of the group."""
    counted = sum(transfer.bytes for transfer in group if transfer.operations is not None)
    if counted * 2 > sum(transfer.bytes for transfer in group):
        return [point for transfer in group for point in transfer.points]
    measure = writing if group[0].writes else reading
    if not group[0].writes and all(transfer.is_mapped for transfer in group):
        measure = faulting
    start_ns, end_ns = min(one.start_ns for one in group), max(one.end_ns for one in group)
    points: list[tuple[int, int, int]] = []
    for process in dict.fromkeys(transfer.process for transfer in group):
        history = histories.get(process)
        for interval in history.between(start_ns, end_ns) if history else ():
            moved = measure(interval)
            if moved > 0:
                low_ns, high_ns = max(interval.start_ns, start_ns), min(interval.end_ns, end_ns)
                points.append((low_ns, max(high_ns, low_ns + 1), moved))
    return points
