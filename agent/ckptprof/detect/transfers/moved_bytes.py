"""How many bytes of a file a transfer moved."""

from __future__ import annotations

from ckptprof.detect.transfers.model.operations import FAULT_AROUND_BYTES
from ckptprof.detect.transfers.model.polled import PolledTransfer
from ckptprof.detect.transfers.model.tolerances import EDGE_NS, WHOLE_SHARE
from ckptprof.detect.transfers.model.traced import TracedTransfer
from ckptprof.detect.world.process_counters import Interval, ProcessHistory, faulting, reading, writing

_TOUCHED = 0.25  # of a mapping that was gone at the next looks: what was seen is a lower bound
_GLIMPSED = 0.1  # of one that was being touched when it was seen, and gone at the next look: in large folios, at once
_LEAPS = 8  # faults, of which nearly all went on
_ONWARD = 0.9
_LEAPT_TO = 0.7  # of the file: the last tensor may be large
_HOLLOW = 0.5  # of the way of a position must have been written, or it was not written at all
_SHORT_LOOKS = 4
_MIDST_NS = 250_000_000
_AHEAD_NS = 200_000_000  # counters run ahead of the position: it moves when a call ends
_FAULTED = 0.5  # measured: a load of 268 MB takes 0.83 of the faults that fault-around alone would give


def part_bytes(transfer: PolledTransfer, history: ProcessHistory, edges: tuple[int, int]) -> int:
    """Return the bytes that the transfer moved; 0 if it moved nothing."""
    if transfer.is_mapped and not transfer.writes:
        return _mapped(transfer, history, edges)
    around = history.between(edges[0], edges[1])
    moved = sum(writing(interval) if transfer.writes else reading(interval) for interval in around)
    if transfer.writes:
        size = transfer.fact.size if transfer.fact is not None else transfer.size
        if transfer.append:
            first = transfer.looks[0] if transfer.looks else None
            return max(0, size - (first.position if first else 0))
        if _leaves_holes(transfer, history):
            return min(size, moved)
        return size if _written_whole(transfer, moved, size, edges) else min(size, max(moved, transfer.advanced_bytes))
    mapped = min(_mapped(transfer, history, edges), transfer.size) if transfer.mapped_bytes else 0
    returned = sum(interval.returned_bytes for interval in around)  # what was fetched for a mapping was counted before
    return max(mapped, _read(transfer, max(moved, returned)))


def _read(transfer: PolledTransfer, moved: int) -> int:
    """Return the bytes that came by calls, as far as the way of the position and what its process read tell."""
    size = transfer.size
    reached = max((look.position for look in transfer.looks), default=0)
    if moved <= 0 or (reached <= 0 and moved < WHOLE_SHARE * size):
        return 0
    if moved >= WHOLE_SHARE * size:
        return size
    return min(size, max(moved, transfer.advanced_bytes))


def leapt_bytes_of(transfer: TracedTransfer) -> int:
    """Return the size of a file that page faults went through from end to end in leaps; 0: it was not so.

    Of a file in large folios only the odd page shows that it was touched: what lies between came in without an event
    (mm/memory.c, do_set_pmd). Who looks at a page here and there is not told apart from who reads all of it.
    """
    sums = transfer.operations
    if sums is None or transfer.size <= 0:
        return 0
    onward = sums.sequential_operations >= _ONWARD * sums.number
    over = sums.low_offset <= FAULT_AROUND_BYTES and sums.high_offset >= _LEAPT_TO * transfer.size
    return transfer.size if over and onward and sums.number >= _LEAPS else 0


def _leaves_holes(transfer: PolledTransfer, history: ProcessHistory) -> bool:
    """Whether the position outran what its process wrote: it was set, and the file is sparse or was there before."""
    if len(transfer.looks) < 3:
        return False
    first, last = transfer.looks[0], transfer.looks[-1]
    written = sum(writing(interval) for interval in history.between(first.at_ns - _AHEAD_NS, last.at_ns))
    return 0 < written < _HOLLOW * (last.position - first.position)


def _written_whole(transfer: PolledTransfer, moved: int, size: int, edges: tuple[int, int]) -> bool:
    """Return whether all that the file holds was written in this transfer: it was seen, or the file was born in it."""
    if transfer.is_credited or max(transfer.advanced_bytes, moved) >= WHOLE_SHARE * size:
        return True
    fact = transfer.fact
    if fact is None or fact.birth_ns is None:
        return False
    if moved < _TOUCHED * size and not transfer.looks:  # the last counters of a process go with it, what was seen stays
        return False
    return 0 <= fact.modified_ns - fact.birth_ns <= edges[1] - edges[0] + EDGE_NS


def _unmapped_in_midst(transfer: PolledTransfer, around: list[Interval]) -> bool:
    """Return whether it was still being touched when it was last seen: what came after went with the mapping."""
    last_ns = max((interval.end_ns for interval in around if faulting(interval) > 0), default=0)
    return transfer.closed_ns is not None and transfer.closed_ns - last_ns < _MIDST_NS


def _mapped(transfer: PolledTransfer, history: ProcessHistory, edges: tuple[int, int]) -> int:
    closed_ns = transfer.closed_ns
    short = closed_ns is not None and closed_ns - transfer.first_ns < _SHORT_LOOKS * 100_000_000
    until_ns = max(edges[1] + 1, closed_ns or 0) if short else edges[1] + 1  # its last look may be its only one
    around = history.between(edges[0], until_ns)
    touched = sum(faulting(interval) for interval in around)
    if short and touched >= _GLIMPSED * transfer.mapped_bytes and _unmapped_in_midst(transfer, around):
        return transfer.mapped_bytes
    if short and touched < _TOUCHED * transfer.mapped_bytes:  # unmapped before it was counted: the faults remain
        touched = sum(interval.minor_faults for interval in around) * FAULT_AROUND_BYTES
        return transfer.mapped_bytes if touched >= _FAULTED * transfer.mapped_bytes else 0
    if touched <= 0:
        return 0
    if _unmapped_in_midst(transfer, around) and touched >= _FAULTED * transfer.mapped_bytes:
        return transfer.mapped_bytes
    if touched >= WHOLE_SHARE * transfer.mapped_bytes or (short and touched >= _TOUCHED * transfer.mapped_bytes):
        return transfer.mapped_bytes
    return min(touched, transfer.mapped_bytes)
