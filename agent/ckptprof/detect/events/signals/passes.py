"""Signals for uploads, checks and downloads, against saves and restores: the bytes only pass through a process.

Of reads, only `sent-on` and `uploads` decide alone; the decision table has the combinations. All others are about
reading from end to end in even pieces: a restore may leave no trace in memory, but then it seeks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

from ckptprof.detect.events.event import Event
from ckptprof.detect.events.signals.sends import HALF, sent_to_stores
from ckptprof.detect.tolerances import (
    BESIDE_NS,
    CALLS_NS,
    HEADER_BYTES,
    LATE_NS,
    MANY,
    MOST_SHARE,
    NEARLY_ALL,
    WHOLE_SHARE,
    is_like,
)
from ckptprof.detect.transfers.model.group import edges_of, level_of
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.process_counters import Interval, ProcessHistory
from ckptprof.frameworks.programs import GPU_RUNTIMES
from ckptprof.model import Level
from ckptprof_collectors.samples import OperationKind

_KEPT = 0.5
_UNKEPT = 0.3  # includes imports; a model without its optimizer's state is a third
_SEEN = 0.7  # of the bytes must have been counted while memory was sampled
_AS_MUCH = (0.9, 1.6)  # times its bytes went over the network: headers and other traffic are counted, too
_EXACTLY = (0.97, 1.2)  # likewise, of a trainer's writes
_LEAST_BYTES = 8 << 20  # to stand out from other traffic
_PIECES = 8
_PAGE_BYTES = 4096  # there are no smaller ones
_NEAR = (0.8, 1.02)  # of a power of two: the last piece of a file is shorter, and the one that meets its end is empty
_GRID_BYTES = 64 << 10  # positions at which pieces end; those of arrays hardly ever do
_LARGEST_PIECE_BYTES = 16 << 20  # the buffers of hubs' clients and trackers


def reads_even_pieces(event: Event) -> bool:
    """Return whether it was read from end to end in even pieces, without memory to show for it."""
    if event.reads_even_pieces is None:
        event.reads_even_pieces = not event.writes and bool(_big_of(event.parts)) and _is_read_in_even_pieces(event)
    return event.reads_even_pieces


def unkept(event: Event) -> bool:
    """Return whether memory did not grow by the bytes read: a loaded model stays in memory."""
    share = _kept_share(event)
    return share is not None and share < _UNKEPT and reads_even_pieces(event)


def unseen(event: Event) -> bool:
    """Return whether its processes ended before they were polled: a restoring process continues."""
    return all(event.world.jobs.info(process) is None for process in event.processes) and reads_even_pieces(event)


def uploads(event: Event) -> bool:
    """Return whether another thread of the process that wrote it read it from end to end."""
    big = _big_of(event.parts)
    return reads_even_pieces(event) and all(_is_of_other_threads(part, event) for part in big)


def sent_on(event: Event) -> bool:
    """Return whether its processes sent as much to ports of object stores at the same time, as uploads do.

    It may be read several times, to be hashed first. A rank that shares its restored state sends it elsewhere.
    """
    if event.writes:
        return False
    sizes = {part.file: min(part.bytes, part.stored_size or part.bytes) for part in event.parts}
    return sent_to_stores(event, event.start_ns, event.end_ns + BESIDE_NS) >= HALF * sum(sizes.values())


def received(event: Event) -> bool:
    """Return whether as much was received over the network as was written, at the same time."""
    if not event.writes or event.bytes < _LEAST_BYTES or event.has_rank:
        return False
    signs = (event.trains, event.candidate.step is not None, bool(event.series))
    if sum(signs) > 1:
        return False  # it counts steps, or saves such files repeatedly; the traffic may be another process's
    low, high = _EXACTLY if event.trains else _AS_MUCH
    came = event.world.devices.received_bytes(event.start_ns, event.end_ns)
    if came is not None and low * event.bytes <= came <= high * event.bytes:
        return True
    # others receive, too, and buffered bytes came before the file existed: then its pieces decide
    came = event.world.devices.received_bytes(event.start_ns - BESIDE_NS, event.end_ns)
    return (
        came is not None
        and came >= low * event.bytes
        and bool(_big_of(event.parts))
        and _is_written_in_even_pieces(event.parts, _alone(event))
    )


def _is_read_in_even_pieces(event: Event) -> bool:
    gpu = bool((event.world.runtimes(event.processes) or frozenset()) & GPU_RUNTIMES)
    # a rank may read arrays of one size into existing memory
    counters = None if event.has_rank else _alone(event)
    is_read_in_even_pieces = _goes_in_even_pieces(
        event.parts, counters, pooled=not gpu, over=all(_ends_at_once(one, event) for one in event.processes)
    )
    return is_read_in_even_pieces and (_kept_share(event) or 0.0) < _KEPT


def _is_of_other_threads(part: Transfer, event: Event) -> bool:
    """Return whether the process wrote the file itself, and only its other threads read it."""
    author = event.known.past.author(part.path)
    if author is None or part.process not in author.processes:
        return False
    return _is_whole(part, pooled=True) and all(session.tid != session.pid for session in part.threads)


def _kept_share(event: Event) -> float | None:
    """Return by what share of the bytes read the memory of its processes grew; None: not observed."""
    if any(part.is_mapped for part in event.parts):
        return None
    histories = (event.world.histories[process] for process in event.first_processes)
    kept, seen = _kept_and_seen(event.parts, histories)
    return kept / event.bytes if seen >= _SEEN * event.bytes else None


def _alone(event: Event) -> list[Interval] | None:
    """Return the intervals of its process; None: it has several, of which none represents all."""
    if len(event.processes) > 1:
        return None
    return event.world.histories[event.processes[0]].between(event.start_ns, event.end_ns)


def _ends_at_once(process: ProcessKey, event: Event) -> bool:
    if event.world.jobs.info(process) is None:
        return True
    ended_ns = event.world.ended.get(process)
    return ended_ns is not None and ended_ns - event.end_ns < LATE_NS


def _big_of(group: Iterable[Transfer]) -> list[Transfer]:
    return [transfer for transfer in group if transfer.bytes >= HEADER_BYTES]


def _goes_in_even_pieces(
    group: Sequence[Transfer], counters: Sequence[Interval] | None, *, pooled: bool, over: bool
) -> bool:
    """Return whether every large file was read from start to end, in pieces of one size.

    `counters`: intervals of their process, if it is the only one; `pooled`: threads may share one file; `over`: the
    process ended right after the read.
    """
    big = _big_of(group)
    if level_of(group) is Level.TRACE:
        return all(one.bytes >= one.size and _is_whole(one, pooled=pooled) for one in big)
    if counters is None or not _goes_ahead(big, over=over):
        return False
    return _is_even(counters) or _is_on_grid(big, least=1 if over else 2)


def _is_written_in_even_pieces(group: Sequence[Transfer], counters: Sequence[Interval] | None) -> bool:
    """Return whether every large file was written from its start, in pieces of one size, page by page."""
    big = _big_of(group)
    if level_of(group) is Level.TRACE:
        return all(_is_written_evenly(one) for one in big)
    pieces: dict[float, int] = {}
    for one in counters or ():
        if one.writes > 0 and one.written_bytes >= HEADER_BYTES:
            piece = one.written_bytes / one.writes
            pieces[piece] = pieces.get(piece, 0) + one.writes
    piece = max(pieces, key=lambda size: pieces[size] * size, default=0.0)
    moved = sum(transfer.bytes for transfer in big)
    return _is_piece(piece) and pieces[piece] >= _PIECES and pieces[piece] * piece >= MOST_SHARE * moved


def _kept_and_seen(group: Sequence[Transfer], histories: Iterable[ProcessHistory]) -> tuple[int, int]:
    """Return (growth of memory, bytes read) of the processes whose memory was sampled.

    Where no operation was counted, memory touched for the first time counts, too: it may be freed by the next sample.
    The first interval is limited to the bytes read: libraries may have been loaded before.
    """
    exact = level_of(group) is Level.TRACE
    start_ns, end_ns = edges_of(group)
    kept = seen = 0
    for history in histories:
        stat = history.last_stat
        if stat is None or stat.rss_bytes is None or stat.rss_file_bytes is None:
            continue
        intervals = history.between(start_ns, end_ns + CALLS_NS)
        if exact:
            kept += sum(_grown(one) for one in intervals)
        else:
            first, rest = _kept(intervals[:1]), _kept(intervals[1:])
            kept += rest + (min(first, intervals[0].returned_bytes) if intervals[1:] else first)
        seen += sum(interval.returned_bytes for interval in intervals)
    return kept, seen


def _is_whole(transfer: Transfer, *, pooled: bool) -> bool:
    """Return whether the operations of each thread run in order from the file's start, in one size."""
    sums = transfer.operations
    if sums is None or not transfer.threads:
        return False
    operations = biggest = 0
    together = pooled and sums.pooled and sums.low_offset == 0
    for session in transfer.threads:
        if session.faulted_bytes or session.direct_bytes:
            return False
        if session.kinds & (OperationKind.AIO | OperationKind.URING):  # such reads fill memory allocated before
            return False
        if not together and (session.consecutive_operations != session.operations or session.first_offset):
            return False
        operations += session.operations
        biggest += max((count for _, count, _ in session.sizes), default=0)
    return operations >= _PIECES and biggest >= WHOLE_SHARE * operations


def _is_written_evenly(transfer: Transfer) -> bool:
    """Return whether it was written from end to end, nearly all of it in pieces of the most common size."""
    sums = transfer.operations
    if sums is None or not _is_whole(transfer, pooled=False):
        return False
    _, operations, moved = max(
        (size for session in transfer.threads for size in session.sizes), key=lambda size: size[2]
    )
    return _is_piece(moved / operations) and moved >= MOST_SHARE * sums.bytes


def _is_piece(size: float) -> bool:
    return _PAGE_BYTES <= size <= _LARGEST_PIECE_BYTES and size % _PAGE_BYTES == 0


def _grown(interval: Interval) -> int:
    return max(0, interval.grown_bytes) + max(0, interval.resident_bytes)


def _kept(intervals: Iterable[Interval]) -> int:
    """Return the growth of memory, or the memory touched for the first time, whichever is larger."""
    pairs = [(_grown(one), one.minor_faults * _PAGE_BYTES) for one in intervals]
    return max(sum(grown for grown, _ in pairs), sum(touched for _, touched in pairs))


def _goes_ahead(big: Iterable[Transfer], *, over: bool) -> bool:
    """Return whether each file's position advanced to its end, and never back.

    Of a process that ended before the next sample the end was not observed.
    """
    seen = False
    for one in big:
        positions = [look.position for look in one.looks]
        if one.is_mapped or one.direct or (len(positions) > 1 and not positions[-1]):
            return False
        if any(before > after for before, after in itertools.pairwise(positions)):
            return False
        if one.bytes < NEARLY_ALL * one.size and not over:
            return False
        seen = seen or any(position > 0 for position in positions)
    return seen


def _is_on_grid(big: Iterable[Transfer], *, least: int) -> bool:
    inside = {(one.file, look.position) for one in big for look in one.looks if 0 < look.position < one.size}
    return len(inside) >= least and all(position % _GRID_BYTES == 0 for _, position in inside)


def _is_even(intervals: Sequence[Interval]) -> bool:
    """Return whether a process read in pieces of one size: a power of two, or the same in each interval."""
    looks = [
        (one.returned_bytes, one.reads) for one in intervals if one.returned_bytes >= HEADER_BYTES and one.reads > 0
    ]
    rest = looks[1:]  # the first one includes imports
    return (
        _is_power_of_two(looks) or (_moved(rest) * 2 > _moved(looks) and _is_power_of_two(rest)) or _is_one_size(looks)
    )


def _moved(looks: list[tuple[int, int]]) -> int:
    return sum(size for size, _ in looks)


def _is_power_of_two(looks: list[tuple[int, int]]) -> bool:
    operations = sum(count for _, count in looks)
    piece = _moved(looks) / max(1, operations)
    if operations < _PIECES or piece < _PAGE_BYTES:
        return False
    return _NEAR[0] <= piece / 2.0 ** round(math.log2(piece)) <= _NEAR[1]


def _is_one_size(looks: list[tuple[int, int]]) -> bool:
    if len(looks) < MANY or sum(count for _, count in looks) < _PIECES:
        return False
    middle = sorted(size / count for size, count in looks)[len(looks) // 2]
    alike = sum(size for size, count in looks if is_like(size / count, middle))
    return middle >= _PAGE_BYTES and alike >= MOST_SHARE * _moved(looks)
