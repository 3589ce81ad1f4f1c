"""Estimates the bytes of a transfer."""

from __future__ import annotations

from ckptprof.detect.tolerances import (
    AT_ONCE_NS,
    EDGE_TOLERANCE_NS,
    LATE_TICK_NS,
    LITTLE_SHARE,
    NEARBY_NS,
    POLL_INTERVAL_NS,
    WHOLE_SHARE,
)
from ckptprof.detect.transfers.edges import is_born_within
from ckptprof.detect.transfers.model.operations import FAULT_AROUND_BYTES
from ckptprof.detect.transfers.model.traced_transfer import TracedTransfer
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.observed.traced_books import TracedTransfers
from ckptprof.detect.world.process_counters import ProcessHistory

_MIN_LEAPS = 8  # faults, nearly all of them forward
_MIN_LEAP_REACH = 0.7  # of the file: the last tensor may be large
_MIN_WRITTEN_SHARE = 0.5  # of the position's advance; with less the process did not write it
_MIN_FAULTED_SHARE = 0.5  # measured: a load of 268 MB takes 0.83 of the faults that fault-around alone would give


def estimate_bytes(transfer: Transfer, history: ProcessHistory, edges: tuple[int, int]) -> int:
    """Return the bytes that the transfer wrote or read; 0 if none."""
    if transfer.is_mapped and not transfer.writes:
        return _mapped_bytes(transfer, history, edges)
    intervals = history.between(edges[0], edges[1])
    transferred = sum(interval.transferred(writes=transfer.writes) for interval in intervals)
    if transfer.writes:
        size = transfer.stored_size
        if transfer.append:
            return max(0, size - (transfer.samples[0].position if transfer.samples else 0))
        if _leaves_holes(transfer, history):
            return min(size, transferred)
        is_whole = _is_written_whole(transfer, transferred, size, edges)
        return size if is_whole else min(size, max(transferred, transfer.advanced_bytes))
    mapped = min(_mapped_bytes(transfer, history, edges), transfer.size) if transfer.mapped_bytes else 0
    returned = sum(interval.returned_bytes for interval in intervals)  # storage reads for a mapping were counted before
    return max(mapped, _read_bytes(transfer, max(transferred, returned)))


def _read_bytes(transfer: Transfer, transferred: int) -> int:
    """Estimate the bytes read by calls, from the position and `transferred`, the process's own count."""
    size = transfer.size
    reached = max((sample.position for sample in transfer.samples), default=0)
    if transferred <= 0 or (reached <= 0 and transferred < WHOLE_SHARE * size):
        return 0
    return size if transferred >= WHOLE_SHARE * size else min(size, max(transferred, transfer.advanced_bytes))


def leaping_read_bytes(transfer: TracedTransfer) -> int:
    """Return the size of a file that page faults crossed from end to end in leaps; else 0.

    Of a file in large folios only the odd page shows a touch: the rest came in without an event (mm/memory.c,
    do_set_pmd). Reading a page here and there looks the same as reading all of it.
    """
    sums = transfer.operations
    if sums is None or transfer.size <= 0:
        return 0
    is_forward = sums.sequential_operations >= WHOLE_SHARE * sums.number
    covers_file = sums.low_offset <= FAULT_AROUND_BYTES and sums.high_offset >= _MIN_LEAP_REACH * transfer.size
    return transfer.size if covers_file and is_forward and sums.number >= _MIN_LEAPS else 0


def _leaves_holes(transfer: Transfer, history: ProcessHistory) -> bool:
    """Return True if the position is ahead of the bytes written: it was set, or the file is sparse or older."""
    if len(transfer.samples) < 3:
        return False
    first, last = transfer.samples[0], transfer.samples[-1]
    # counters are ahead of the position, which advances at the end of a call
    written = sum(interval.new_written_bytes for interval in history.between(first.at_ns - LATE_TICK_NS, last.at_ns))
    return 0 < written < _MIN_WRITTEN_SHARE * (last.position - first.position)


def _is_written_whole(transfer: Transfer, transferred: int, size: int, edges: tuple[int, int]) -> bool:
    """Return True if this transfer wrote the whole file: by its samples, or the file was born in it."""
    if transfer.is_credited or max(transfer.advanced_bytes, transferred) >= WHOLE_SHARE * size:
        return True
    return is_born_within(transfer.fact, edges, EDGE_TOLERANCE_NS)


def _mapped_bytes(transfer: Transfer, history: ProcessHistory, edges: tuple[int, int]) -> int:
    """Return the bytes read through a mapping: resident memory shows the touched pages, until it is unmapped."""
    size, closed_ns = transfer.mapped_bytes, transfer.closed_ns
    if closed_ns is not None and closed_ns - transfer.first_ns < AT_ONCE_NS:  # its last sample may be its only one
        intervals = history.between(edges[0], closed_ns)
        faulted = sum(interval.minor_faults for interval in intervals) * FAULT_AROUND_BYTES  # remain after unmapping
        touched = sum(interval.resident_bytes for interval in intervals)
        return size if touched >= LITTLE_SHARE * size or faulted >= _MIN_FAULTED_SHARE * size else 0
    intervals = history.between(edges[0], edges[1] + 1)
    touched_ns = max((interval.end_ns for interval in intervals if interval.resident_bytes > 0), default=0)
    was_still_reading = (
        closed_ns is not None and closed_ns - touched_ns < NEARBY_NS
    )  # later pages were unmapped before a sample
    touched = sum(interval.resident_bytes for interval in intervals)
    return size if touched >= (_MIN_FAULTED_SHARE if was_still_reading else WHOLE_SHARE) * size else touched


def mapped_openings(exact: TracedTransfer, traced: TracedTransfers) -> list[TracedTransfer]:
    """Return the transfers of one mapped file and process, most faults first: they share the mapping's pages."""
    found = [
        other
        for other in traced.transfers_near(exact.file, exact.first_ns, exact.last_ns, exact.process)
        if not other.writes and other.faulted_bytes and _gap_ns(other, exact) < POLL_INTERVAL_NS
    ]
    return sorted(found, key=lambda other: other.faulted_bytes, reverse=True)


def _gap_ns(one: TracedTransfer, other: TracedTransfer) -> int:
    """Return the time between the faults of two mappings: a later mapping touches all of the file again."""
    here, there = one.operations, other.operations
    if here is None or there is None:
        return 0
    return max(here.first_ns, there.first_ns) - min(here.last_ns, there.last_ns)
