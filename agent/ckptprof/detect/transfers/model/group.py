"""Level, edges and progress of a group of transfers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from ckptprof.detect.tolerances import NEARLY_ALL
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.process_counters import ProcessHistories, ProcessInterval
from ckptprof.model import Level


def level_of(transfers: Iterable[Transfer]) -> Level:
    """Return `trace` if operations were counted for nearly all bytes outside mappings, else `poll`."""
    counted_bytes = other_bytes = 0
    for transfer in transfers:
        if transfer.is_counted:
            counted_bytes += transfer.bytes
        elif not transfer.is_mapped:
            other_bytes += transfer.bytes
    return (
        Level.TRACE if counted_bytes > 0 and counted_bytes >= NEARLY_ALL * (counted_bytes + other_bytes) else Level.POLL
    )


def edges_of(group: Collection[Transfer]) -> tuple[int, int]:
    """Return the first start and the last end of a group."""
    return min(one.start_ns for one in group), max(one.end_ns for one in group)


def intervals_of(group: Collection[Transfer], histories: ProcessHistories) -> Iterator[ProcessInterval]:
    """Yield the counter intervals of a group's processes during the group, process by process."""
    edges = edges_of(group)
    for process in dict.fromkeys(one.process for one in group):
        yield from histories[process].between(*edges)


def points_of(group: Sequence[Transfer], histories: ProcessHistories) -> list[tuple[int, int, int]]:
    """Return (start, end, bytes) of the transferred bytes, in no order, clipped to the edges of the group.

    From the operations of the group if these were counted, else from the counters of its processes.
    """
    counted = sum(one.bytes for one in group if one.operations is not None or one.sending is not None)
    if counted * 2 > sum(transfer.bytes for transfer in group):
        return [(one.start_ns, one.end_ns, one.bytes) for transfer in group for one in transfer.points]
    writes = group[0].writes
    mapped = not writes and all(transfer.is_mapped for transfer in group)
    start_ns, end_ns = edges_of(group)
    points: list[tuple[int, int, int]] = []
    for interval in intervals_of(group, histories):
        if (transferred := interval.resident_bytes if mapped else interval.transferred(writes=writes)) > 0:
            low_ns, high_ns = max(interval.start_ns, start_ns), min(interval.end_ns, end_ns)
            points.append((low_ns, max(high_ns, low_ns + 1), transferred))
    return points
