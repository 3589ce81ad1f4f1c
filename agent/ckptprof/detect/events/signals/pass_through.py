"""Signals for uploads, checks and downloads, against saves and restores: the bytes only pass through a process.

Of reads, only `sent-on` decides alone; the decision table has the combinations. All others are about
reading from end to end in even pieces: a restore may leave no trace in memory, but then it seeks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

from ckptprof.detect.events.event_context import EventContext
from ckptprof.detect.events.signals.store_writes import HALF, sent_bytes_to_stores
from ckptprof.detect.tolerances import (
    CONCURRENT_NS,
    COUNTER_LAG_NS,
    HEADER_BYTES,
    LATE_COUNTER_NS,
    MANY,
    MOST_SHARE,
    NEARLY_ALL,
    WHOLE_SHARE,
    is_similar_size,
)
from ckptprof.detect.transfers.model.group import edges_of, level_of
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.process_counters import ProcessHistory, ProcessInterval
from ckptprof.frameworks.program_names import GPU_RUNTIMES
from ckptprof.model import Level
from ckptprof_collectors.samples import OperationKind

_MIN_RETAINED_SHARE = 0.5
_MAX_UNRETAINED_SHARE = 0.3  # includes imports; a model without its optimizer's state is a third
_MIN_OBSERVED_SHARE = 0.7  # of the bytes must have been counted while memory was sampled
_RECEIVED_RANGE = (0.9, 1.6)  # times its bytes went over the network: headers and other traffic are counted, too
_RECEIVED_RANGE_OF_TRAINER = (0.97, 1.2)  # likewise, of a trainer's writes
_MIN_RECEIVED_BYTES = 8 << 20  # to stand out from other traffic
_MIN_PIECES = 8
_PAGE_BYTES = 4096  # there are no smaller ones
_PIECE_RANGE = (0.8, 1.02)  # of a power of two: a file's last piece is shorter, and the one that meets its end is empty
_GRID_BYTES = 64 << 10  # positions at which pieces end; those of arrays hardly ever do
_LARGEST_PIECE_BYTES = 16 << 20  # the buffers of hubs' clients and trackers


def reads_even_pieces(event: EventContext) -> bool:
    """Even pieces, read from end to end without growth of memory."""
    if event.reads_even_pieces is None:
        event.reads_even_pieces = (
            not event.writes and bool(_large_files(event.parts)) and _is_read_in_even_pieces(event)
        )
    return event.reads_even_pieces


def is_not_retained(event: EventContext) -> bool:
    """No growth of memory by the bytes read: a loaded model stays in memory."""
    share = _retained_share(event)
    return share is not None and share < _MAX_UNRETAINED_SHARE and reads_even_pieces(event)


def is_process_unobserved(event: EventContext) -> bool:
    """End of its processes before they were polled: a restoring process continues."""
    return all(event.world.jobs.info(process) is None for process in event.processes) and reads_even_pieces(event)


def is_sent_on(event: EventContext) -> bool:
    """As many bytes sent by its processes to ports of object stores at the same time, as in uploads.

    It may be read several times, to be hashed first. A rank that shares its restored state sends it elsewhere.
    """
    if event.writes:
        return False
    sizes = {part.file: min(part.bytes, part.stored_size or part.bytes) for part in event.parts}
    return sent_bytes_to_stores(event, event.start_ns, event.end_ns + CONCURRENT_NS) >= HALF * sum(sizes.values())


def is_received(event: EventContext) -> bool:
    """As many bytes received over the network as written, at the same time."""
    if not event.writes or event.bytes < _MIN_RECEIVED_BYTES or event.has_rank:
        return False
    training_signs = (event.is_training, event.candidate.step is not None, bool(event.series))
    if sum(training_signs) > 1:
        return False  # it counts steps, or saves such files repeatedly; the traffic may be another process's
    low, high = _RECEIVED_RANGE_OF_TRAINER if event.is_training else _RECEIVED_RANGE
    devices, path = event.world.devices, event.largest_paths[0]
    received_bytes = devices.received_bytes(event.start_ns, event.end_ns, path)
    if received_bytes is not None and low * event.bytes <= received_bytes <= high * event.bytes:
        return True
    # others receive, too, and buffered bytes came before the file existed: then its pieces decide
    received_bytes = devices.received_bytes(event.start_ns - CONCURRENT_NS, event.end_ns, path)
    return (
        received_bytes is not None
        and received_bytes >= low * event.bytes
        and bool(_large_files(event.parts))
        and _is_written_in_even_pieces(event.parts, _single_process_intervals(event))
    )


def _is_read_in_even_pieces(event: EventContext) -> bool:
    gpu = bool((event.world.runtimes(event.processes) or frozenset()) & GPU_RUNTIMES)
    # a rank may read arrays of one size into existing memory
    counters = None if event.has_rank else _single_process_intervals(event)
    ends = all(_exits_at_once(one, event) for one in event.processes)
    is_in_even_pieces = _is_in_even_pieces(event.parts, counters, pooled=not gpu, exits_at_once=ends)
    return is_in_even_pieces and (_retained_share(event) or 0.0) < _MIN_RETAINED_SHARE


def _retained_share(event: EventContext) -> float | None:
    """Return by what share of the bytes read the memory of its processes grew; None: not observed."""
    if any(part.is_mapped for part in event.parts):
        return None
    histories = (event.world.histories[process] for process in event.first_processes)
    retained, observed = _retained_and_observed(event.parts, histories)
    return retained / event.bytes if observed >= _MIN_OBSERVED_SHARE * event.bytes else None


def _single_process_intervals(event: EventContext) -> list[ProcessInterval] | None:
    """Return the intervals of its process; None: it has several, of which none represents all."""
    if len(event.processes) > 1:
        return None
    return event.world.histories[event.processes[0]].between(event.start_ns, event.end_ns)


def _exits_at_once(process: ProcessKey, event: EventContext) -> bool:
    if event.world.jobs.info(process) is None:
        return True
    ended_ns = event.world.ended.get(process)
    return ended_ns is not None and ended_ns - event.end_ns < LATE_COUNTER_NS


def _large_files(group: Iterable[Transfer]) -> list[Transfer]:
    return [transfer for transfer in group if transfer.bytes >= HEADER_BYTES]


def _is_in_even_pieces(
    group: Sequence[Transfer], counters: Sequence[ProcessInterval] | None, *, pooled: bool, exits_at_once: bool
) -> bool:
    """Recognise reads of every large file from start to end, in pieces of one size.

    `counters`: intervals of their process, if it is the only one; `pooled`: threads may share one file;
    `exits_at_once`: the process ended right after the read.
    """
    big = _large_files(group)
    if level_of(group) is Level.TRACE:
        return all(one.bytes >= one.size and _is_sequential_in_one_size(one, pooled=pooled) for one in big)
    if counters is None or not _advances_to_end(big, exits_at_once=exits_at_once):
        return False
    return _has_even_calls(counters) or _stops_on_grid(big, min_positions=1 if exits_at_once else 2)


def _is_written_in_even_pieces(group: Sequence[Transfer], counters: Sequence[ProcessInterval] | None) -> bool:
    """Recognise writes of every large file from its start, in pieces of one size, page by page."""
    big = _large_files(group)
    if level_of(group) is Level.TRACE:
        return all(_is_written_evenly(one) for one in big)
    pieces: dict[float, int] = {}
    for one in counters or ():
        if one.writes > 0 and one.written_bytes >= HEADER_BYTES:
            piece = one.written_bytes / one.writes
            pieces[piece] = pieces.get(piece, 0) + one.writes
    piece = max(pieces, key=lambda size: pieces[size] * size, default=0.0)
    transferred = sum(transfer.bytes for transfer in big)
    return (
        _is_page_multiple(piece) and pieces[piece] >= _MIN_PIECES and pieces[piece] * piece >= MOST_SHARE * transferred
    )


def _retained_and_observed(group: Sequence[Transfer], histories: Iterable[ProcessHistory]) -> tuple[int, int]:
    """Return (growth of memory, bytes read) of the processes whose memory was sampled.

    Where no operation was counted, memory touched for the first time counts, too: it may be freed by the next sample.
    The first interval is limited to the bytes read: libraries may have been loaded before.
    """
    is_traced = level_of(group) is Level.TRACE
    start_ns, end_ns = edges_of(group)
    retained = observed = 0
    for history in histories:
        stat = history.last_stat
        if stat is None or stat.rss_bytes is None or stat.rss_file_bytes is None:
            continue
        intervals = history.between(start_ns, end_ns + COUNTER_LAG_NS)
        if is_traced:
            retained += sum(_growth_bytes(one) for one in intervals)
        else:
            first, rest = _retained_bytes(intervals[:1]), _retained_bytes(intervals[1:])
            retained += rest + (min(first, intervals[0].returned_bytes) if intervals[1:] else first)
        observed += sum(interval.returned_bytes for interval in intervals)
    return retained, observed


def _is_sequential_in_one_size(transfer: Transfer, *, pooled: bool) -> bool:
    """Recognise operations of each thread in order from the file's start, in one size."""
    sums = transfer.operations
    if sums is None or not transfer.threads:
        return False
    operations = in_largest_bucket = 0
    is_shared = pooled and sums.is_shared_by_threads and sums.low_offset == 0
    for session in transfer.threads:
        if session.faulted_bytes or session.direct_bytes:
            return False
        if session.kinds & (OperationKind.AIO | OperationKind.URING):  # such reads fill memory allocated before
            return False
        if not is_shared and (session.consecutive_operations != session.operations or session.first_offset):
            return False
        operations += session.operations
        in_largest_bucket += max((count for _, count, _ in session.sizes), default=0)
    return operations >= _MIN_PIECES and in_largest_bucket >= WHOLE_SHARE * operations


def _is_written_evenly(transfer: Transfer) -> bool:
    """Recognise writes from end to end, nearly all in pieces of the most common size."""
    sums = transfer.operations
    if sums is None or not _is_sequential_in_one_size(transfer, pooled=False):
        return False
    _, operations, transferred = max(
        (size for session in transfer.threads for size in session.sizes), key=lambda size: size[2]
    )
    return _is_page_multiple(transferred / operations) and transferred >= MOST_SHARE * sums.bytes


def _is_page_multiple(size: float) -> bool:
    return _PAGE_BYTES <= size <= _LARGEST_PIECE_BYTES and size % _PAGE_BYTES == 0


def _growth_bytes(interval: ProcessInterval) -> int:
    return max(0, interval.grown_bytes) + max(0, interval.resident_bytes)


def _retained_bytes(intervals: Iterable[ProcessInterval]) -> int:
    """Return the growth of memory, or the memory touched for the first time, whichever is larger."""
    pairs = [(_growth_bytes(one), one.minor_faults * _PAGE_BYTES) for one in intervals]
    return max(sum(grown for grown, _ in pairs), sum(touched_bytes for _, touched_bytes in pairs))


def _advances_to_end(big: Iterable[Transfer], *, exits_at_once: bool) -> bool:
    """Recognise positions that advance to the end of each file, and never back.

    If a process ended before the next sample, its end position was not observed.
    """
    has_advanced = False
    for one in big:
        positions = [sample.position for sample in one.samples]
        if one.is_mapped or one.direct or (len(positions) > 1 and not positions[-1]):
            return False
        if any(before > after for before, after in itertools.pairwise(positions)):
            return False
        if one.bytes < NEARLY_ALL * one.size and not exits_at_once:
            return False
        has_advanced = has_advanced or any(position > 0 for position in positions)
    return has_advanced


def _stops_on_grid(big: Iterable[Transfer], *, min_positions: int) -> bool:
    inside = {(one.file, sample.position) for one in big for sample in one.samples if 0 < sample.position < one.size}
    return len(inside) >= min_positions and all(position % _GRID_BYTES == 0 for _, position in inside)


def _has_even_calls(intervals: Sequence[ProcessInterval]) -> bool:
    """Recognise reads in pieces of one size: a power of two, or the same in each interval."""
    calls = [
        (one.returned_bytes, one.reads) for one in intervals if one.returned_bytes >= HEADER_BYTES and one.reads > 0
    ]
    later_calls = calls[1:]  # the first one includes imports
    return (
        _is_power_of_two(calls)
        or (_total_bytes(later_calls) * 2 > _total_bytes(calls) and _is_power_of_two(later_calls))
        or _is_one_size(calls)
    )


def _total_bytes(calls: list[tuple[int, int]]) -> int:
    return sum(size for size, _ in calls)


def _is_power_of_two(calls: list[tuple[int, int]]) -> bool:
    operations = sum(count for _, count in calls)
    piece = _total_bytes(calls) / max(1, operations)
    if operations < _MIN_PIECES or piece < _PAGE_BYTES:
        return False
    return _PIECE_RANGE[0] <= piece / 2.0 ** round(math.log2(piece)) <= _PIECE_RANGE[1]


def _is_one_size(calls: list[tuple[int, int]]) -> bool:
    if len(calls) < MANY or sum(count for _, count in calls) < _MIN_PIECES:
        return False
    middle = sorted(size / count for size, count in calls)[len(calls) // 2]
    same_size_bytes = sum(size for size, count in calls if is_similar_size(size / count, middle))
    return middle >= _PAGE_BYTES and same_size_bytes >= MOST_SHARE * _total_bytes(calls)
