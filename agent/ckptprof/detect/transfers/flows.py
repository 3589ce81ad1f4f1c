"""How much some processes read and wrote at a time: whoever moves as much both ways copies."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from ckptprof.detect.tolerances import AT_ONCE_NS, CODE_BYTES, MAX_EACH
from ckptprof.detect.transfers.model.group import edges_of, level_of
from ckptprof.detect.transfers.model.operations import copies_in_kernel
from ckptprof.detect.transfers.model.traced import TracedTransfer
from ckptprof.detect.transfers.model.transfer import Transfer, evenly
from ckptprof.detect.transfers.observed.traced_transfers import TracedTransfers
from ckptprof.detect.transfers.remembered import RecentTransfers
from ckptprof.detect.world.keys import FileKey, ProcessKey
from ckptprof.detect.world.world import World
from ckptprof.model import Level

_YOUNG_NS = 5_000_000_000


class Flow(NamedTuple):
    """What was read and written, in bytes."""

    read: int
    written: int
    in_kernel: int = 0  # of what was moved as the group was: from file to file, without passing through the process
    hand_in_hand: int | None = None  # of both, within the same ticks; None: only the group's was counted, file by file


def flow_of(
    group: Sequence[Transfer],
    own: AbstractSet[FileKey],
    world: World,
    traced: TracedTransfers,
    recent: RecentTransfers,
) -> Flow | None:
    """Return what the processes of a group moved in both directions while it went on, but for their `own` files.

    Nothing at all, if each file was counted and none was moved the other way. None: they read of these what no counter
    separates from the rest.
    """
    writes = group[0].writes
    start_ns, end_ns = edges_of(group)
    processes = dict.fromkeys(one.process for one in group)
    if level_of(group) is Level.TRACE:
        ahead_ns, after_ns = (AT_ONCE_NS, 0) if writes else (0, AT_ONCE_NS)
        return _by_file(processes, own, traced, (start_ns - ahead_ns, end_ns + after_ns), writes=writes)
    if writes and any(
        move.file in own
        for process in list(processes)[:MAX_EACH]
        for move in recent.moved(process, start_ns, end_ns, writes=False)
    ):
        return None
    opened = [one for one in group if not one.is_mapped]
    start_ns = min([start_ns - (AT_ONCE_NS if writes else 0), *(one.first_ns for one in opened)])
    end_ns = max([end_ns, *(one.last_ns for one in opened)])  # one call may copy all: it reads at its end
    return _by_counters(processes, world, start_ns, end_ns)


def _by_file(
    processes: dict[ProcessKey, None],
    own: AbstractSet[FileKey],
    traced: TracedTransfers,
    frame: tuple[int, int],
    *,
    writes: bool,
) -> Flow:
    meanwhile = [
        one
        for process in processes
        for one in traced.moved_by(process)
        if one.first_ns <= frame[1] and one.last_ns >= frame[0] and one.operations is not None
    ]
    others = sum(_within(one, frame) for one in meanwhile if one.writes != writes and one.file not in own)
    if not others:
        return Flow(0, 0)  # whatever it moved of its own
    same = in_kernel = 0
    for transfer in meanwhile:
        if transfer.writes == writes and (sums := transfer.operations) is not None:
            moved = _within(transfer, frame)
            same += moved
            in_kernel += moved if copies_in_kernel(sums.kinds) else 0
    return Flow(others, same, in_kernel) if writes else Flow(same, others, in_kernel)


def _within(transfer: TracedTransfer, frame: tuple[int, int]) -> int:
    """Return what was moved in a time, by its points."""
    moved = 0
    for low_ns, high_ns, size, *_ in transfer.points:
        if frame[0] <= low_ns and high_ns <= frame[1]:
            moved += size
        elif low_ns <= frame[1] and high_ns >= frame[0]:
            moved += evenly(size, (low_ns, high_ns), frame)
    return moved


def _by_counters(processes: dict[ProcessKey, None], world: World, start_ns: int, end_ns: int) -> Flow:
    read = written = together = 0
    for history in (world.histories[process] for process in processes):
        young_ns = history.first_ns + _YOUNG_NS
        young_read = young_written = 0
        for interval in history.between(start_ns, end_ns):
            wrote = interval.wrote_bytes
            if interval.start_ns < young_ns:
                young_read += interval.read_bytes
                young_written += wrote
            else:
                read += interval.read_bytes
            written += wrote
            together += min(interval.read_bytes, wrote)
        # what one that has just begun read besides its modules may be what it wrote
        loaded = CODE_BYTES <= young_written < young_read <= young_written + CODE_BYTES
        read += young_written if loaded else young_read
    return Flow(read, written, 0, together)
