"""How many bytes of a file a transfer moved."""

from __future__ import annotations

from ckptprof.detect.tolerances import AT_ONCE_NS, EDGE_NS, LATE_TICK_NS, LITTLE_SHARE, LOOK_NS, NEAR_NS, WHOLE_SHARE
from ckptprof.detect.transfers.edges import born_within
from ckptprof.detect.transfers.model.operations import FAULT_AROUND_BYTES
from ckptprof.detect.transfers.model.traced import TracedTransfer
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.observed.traced_transfers import TracedTransfers
from ckptprof.detect.world.process_counters import ProcessHistory

_LEAPS = 8  # faults, of which nearly all went on
_LEAPT_TO = 0.7  # of the file: the last tensor may be large
_HOLLOW = 0.5  # of the way of a position must have been written, or it was not written at all
_FAULTED = 0.5  # measured: a load of 268 MB takes 0.83 of the faults that fault-around alone would give


def part_bytes(transfer: Transfer, history: ProcessHistory, edges: tuple[int, int]) -> int:
    """Return the bytes that the transfer moved; 0 if it moved nothing."""
    if transfer.is_mapped and not transfer.writes:
        return _mapped(transfer, history, edges)
    around = history.between(edges[0], edges[1])
    moved = sum(interval.moved(writes=transfer.writes) for interval in around)
    if transfer.writes:
        size = transfer.stored_size
        if transfer.append:
            return max(0, size - (transfer.looks[0].position if transfer.looks else 0))
        if _leaves_holes(transfer, history):
            return min(size, moved)
        return size if _written_whole(transfer, moved, size, edges) else min(size, max(moved, transfer.advanced_bytes))
    mapped = min(_mapped(transfer, history, edges), transfer.size) if transfer.mapped_bytes else 0
    returned = sum(interval.returned_bytes for interval in around)  # what was fetched for a mapping was counted before
    return max(mapped, _read(transfer, max(moved, returned)))


def _read(transfer: Transfer, moved: int) -> int:
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
    onward = sums.sequential_operations >= WHOLE_SHARE * sums.number
    over = sums.low_offset <= FAULT_AROUND_BYTES and sums.high_offset >= _LEAPT_TO * transfer.size
    return transfer.size if over and onward and sums.number >= _LEAPS else 0


def _leaves_holes(transfer: Transfer, history: ProcessHistory) -> bool:
    """Whether the position outran what its process wrote: it was set, and the file is sparse or was there before."""
    if len(transfer.looks) < 3:
        return False
    first, last = transfer.looks[0], transfer.looks[-1]
    # counters run ahead of the position: it moves when a call ends
    written = sum(interval.wrote_bytes for interval in history.between(first.at_ns - LATE_TICK_NS, last.at_ns))
    return 0 < written < _HOLLOW * (last.position - first.position)


def _written_whole(transfer: Transfer, moved: int, size: int, edges: tuple[int, int]) -> bool:
    """Return whether all that the file holds was written in this transfer: it was seen, or the file was born in it."""
    if transfer.is_credited or max(transfer.advanced_bytes, moved) >= WHOLE_SHARE * size:
        return True
    return born_within(transfer.fact, edges, EDGE_NS)


def _mapped(transfer: Transfer, history: ProcessHistory, edges: tuple[int, int]) -> int:
    """Return the bytes that came in by a mapping: memory shows what was touched, until it is unmapped again."""
    size, closed_ns = transfer.mapped_bytes, transfer.closed_ns
    if closed_ns is not None and closed_ns - transfer.first_ns < AT_ONCE_NS:  # its last look may be its only one
        around = history.between(edges[0], closed_ns)
        faulted = sum(interval.minor_faults for interval in around) * FAULT_AROUND_BYTES  # these remain
        touched = sum(interval.resident_bytes for interval in around)
        return size if touched >= LITTLE_SHARE * size or faulted >= _FAULTED * size else 0
    around = history.between(edges[0], edges[1] + 1)
    touched_ns = max((interval.end_ns for interval in around if interval.resident_bytes > 0), default=0)
    in_midst = closed_ns is not None and closed_ns - touched_ns < NEAR_NS  # what came after went with the mapping
    touched = sum(interval.resident_bytes for interval in around)
    return size if touched >= (_FAULTED if in_midst else WHOLE_SHARE) * size else touched


def mapped_openings(exact: TracedTransfer, book: TracedTransfers) -> list[TracedTransfer]:
    """Return the transfers of one mapped file and process, most faults first: openings share one mapping's pages."""
    found = [
        other
        for other in book.near(exact.file, exact.first_ns, exact.last_ns, exact.process)
        if not other.writes and other.faulted_bytes and _apart_ns(other, exact) < LOOK_NS
    ]
    return sorted(found, key=lambda other: other.faulted_bytes, reverse=True)


def _apart_ns(one: TracedTransfer, other: TracedTransfer) -> int:
    """Return the time between the faults of two mappings: who maps a file again later touches all of it again."""
    here, there = one.operations, other.operations
    if here is None or there is None:
        return 0
    return max(here.first_ns, there.first_ns) - min(here.last_ns, there.last_ns)
