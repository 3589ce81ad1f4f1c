"""How much some processes read and wrote at a time: whoever moves as much both ways copies."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from ckptprof.detect.transfers.model.group import edges_of, level_of
from ckptprof.detect.transfers.model.operations import copies_in_kernel
from ckptprof.detect.transfers.model.tolerances import MAX_EACH
from ckptprof.detect.transfers.model.traced import TracedTransfer
from ckptprof.detect.transfers.model.transfer import Transfer, evenly
from ckptprof.detect.transfers.observed.traced_transfers import TracedTransfers
from ckptprof.detect.transfers.remembered import RecentTransfers
from ckptprof.detect.world.keys import FileKey, ProcessKey
from ckptprof.detect.world.world import World
from ckptprof.model import Level

AHEAD_NS = 500_000_000  # what is written was read before
_LOADED_BYTES = 32 << 20  # at most, of Python's modules (PyTorch: 24 MB); libraries are mapped
_YOUNG_NS = 5_000_000_000


class Flow(NamedTuple):
    """What was read and written, in bytes."""

    read: int
    written: int
    in_kernel: int = 0  # of what was moved as the group was: from file to file, without passing through the process
    read_while_writing: int | None = None  # None: what is not the group's is left out file by file already
    hand_in_hand: int = 0  # of both, within the same ticks


def flow_of(
    group: Sequence[Transfer],
    own: AbstractSet[FileKey],
    world: World,
    traced: TracedTransfers,
    recent: RecentTransfers,
) -> Flow | None:
    """Return what the processes of a group moved in both directions while it went on, but for their `own` files.

    None: they read of these what no counter separates from the rest.
    """
    writes = group[0].writes
    start_ns, end_ns = edges_of(group)
    processes = dict.fromkeys(one.process for one in group)
    if level_of(group) is Level.TRACE:
        ahead_ns, after_ns = (AHEAD_NS, 0) if writes else (0, AHEAD_NS)
        return _by_file(processes, own, traced, (start_ns - ahead_ns, end_ns + after_ns), writes=writes)
    if writes and any(
        move.file in own
        for process in list(processes)[:MAX_EACH]
        for move in recent.of(process, start_ns, end_ns, writes=False)
    ):
        return None
    opened = [one for one in group if not one.is_mapped]
    start_ns = min([start_ns - (AHEAD_NS if writes else 0), *(one.first_ns for one in opened)])
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
    same = others = in_kernel = 0
    for process in processes:
        for transfer in traced.moved_by(process):
            moved = _within(transfer, frame)
            if not moved:
                continue
            if transfer.writes == writes:
                same += moved
                sums = transfer.operations
                in_kernel += moved if sums is not None and copies_in_kernel(sums.kinds) else 0
            elif transfer.file not in own:
                others += moved
    return Flow(others, same, in_kernel) if writes else Flow(same, others, in_kernel)


def _within(transfer: TracedTransfer, frame: tuple[int, int]) -> int:
    """Return how many of its bytes were moved in a time, at an even rate within each look."""
    start_ns, end_ns = frame
    if transfer.first_ns > end_ns or transfer.last_ns < start_ns:
        return 0
    moved = 0
    for low, high, size in transfer.points:
        moved += evenly(size, (low, high), frame)
    return moved


def _by_counters(processes: dict[ProcessKey, None], world: World, start_ns: int, end_ns: int) -> Flow:
    read = meanwhile = written = together = 0
    for process in processes:
        history = world.histories.get(process)
        young_ns = history.first_ns + _YOUNG_NS if history else 0
        young_read = young_written = 0
        for interval in history.between(start_ns, end_ns) if history else ():
            wrote = interval.wrote_bytes
            if interval.start_ns < young_ns:
                young_read += interval.read_bytes
                young_written += wrote
            else:
                read += interval.read_bytes
            meanwhile += interval.read_bytes if wrote else 0  # before it wrote it may have loaded its modules
            written += wrote
            together += min(interval.read_bytes, wrote)
        read += _after_loading(young_read, young_written)
    return Flow(read, written, 0, meanwhile, together)


def _after_loading(read: int, wrote: int) -> int:
    """Return what a process that has just begun read besides its modules: it may be what it wrote."""
    return wrote if _LOADED_BYTES <= wrote < read <= wrote + _LOADED_BYTES else read
