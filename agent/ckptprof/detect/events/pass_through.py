"""How files were moved that may only have passed through a process: in which order, and what of them it kept."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

from ckptprof.detect.events.candidates import Candidate, is_traced
from ckptprof.detect.events.knowledge import Knowledge
from ckptprof.detect.transfers.part import Part, is_mapped
from ckptprof.detect.transfers.streams import Stream
from ckptprof.detect.transfers.traced import Traced
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.process_counters import Interval, ProcessHistory
from ckptprof.frameworks.runtimes import GPU_RUNTIMES
from ckptprof_collectors.samples import OperationKind

SMALL_BYTES = 64 << 10  # manifests and the like are read at once by whoever reads them
_AFTER_NS = 150_000_000  # memory is looked at a little later than the bytes are counted
_PIECES = 8
_EVEN = 0.9  # of the operations have one size
_PAGE_BYTES = 4096  # there are no smaller ones
_PIECE_BYTES = 4096
_WHOLE = 0.95
_NEAR = (
    0.8,
    1.02,
)  # of a power of two: the last piece of each file is shorter, and the one that meets its end is empty
_ALIKE = (0.85, 1.15)
_MOST = 0.8
_LOOKS = 4
_SEEN = 0.7  # of the bytes must have been counted while memory was looked at
_MAX_PROCESSES = 64
_GRID_BYTES = 64 << 10  # positions at which pieces end; those of arrays hardly ever do
_ENDS_NS = 2_000_000_000  # a library of machine learning takes a second to unload where others compute, too
_POURED_BYTES = 16 << 20  # at most, of one piece: what hubs' clients and trackers hold at a time
_UNLIKE = OperationKind.AIO | OperationKind.URING  # who reads in this way fills memory that it made before


def is_straight(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether every big file was read from its begin to its end, in pieces of one size."""
    big = big_parts(candidate)
    if candidate.writes or not big:
        return False
    if is_traced(candidate):
        gpu = bool((known.world.runtimes(candidate.processes) or frozenset()) & GPU_RUNTIMES)
        return all(_is_straight(part, pooled=not gpu) for part in big)
    if len(candidate.processes) > 1 or known.world.jobs.rank(candidate.processes[0]) is not None:
        return False  # a rank may put arrays of one size into memory that is there
    history = known.world.histories.get(candidate.processes[0])
    over = ends_at_once(candidate, known)
    if history is None or not _goes_ahead(big, over=over):
        return False
    return _is_even(history.between(candidate.start_ns, candidate.end_ns)) or _is_on_grid(big, least=1 if over else 2)


def ends_at_once(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether all its processes were over as soon as they had moved it, or before anybody looked at them."""
    return all(_ends(process, candidate, known) for process in candidate.processes)


def is_poured(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether every big file was written from its begin, in pieces of one size, page upon page.

    So is written what comes in pieces from elsewhere. The arrays of a model, and what stands before them, differ.
    """
    big = big_parts(candidate)
    if not candidate.writes or not big:
        return False
    if is_traced(candidate):
        traces = [part.stream.trace for part in big]
        return all(trace is not None and trace.sessions and _is_poured(trace) for trace in traces)
    history = known.world.histories.get(candidate.processes[0])
    if len(candidate.processes) > 1 or history is None:
        return False
    pieces: dict[float, int] = {}
    for one in history.between(candidate.start_ns, candidate.end_ns):
        if one.writes > 0 and one.written_bytes >= SMALL_BYTES:
            piece = one.written_bytes / one.writes
            pieces[piece] = pieces.get(piece, 0) + one.writes
    piece = max(pieces, key=lambda size: pieces[size] * size, default=0.0)
    return _is_piece(piece) and pieces[piece] >= _PIECES and pieces[piece] * piece >= _MOST * _bytes(big)


def kept_share(candidate: Candidate, known: Knowledge) -> float | None:
    """Return by how much of what they read the memory of its processes grew; None: not seen.

    Polled, memory that was touched for the first time counts, too: it may have been given back by the next look. In the
    interval in which it began, what was read bounds it: before it, libraries may have been loaded.
    """
    total = sum(part.bytes for part in candidate.parts)
    if not total or any(is_mapped(part) for part in candidate.parts):
        return None
    kept = seen = 0
    for process in candidate.processes[:_MAX_PROCESSES]:
        history = known.world.histories.get(process)
        if history is None or not _shows_memory(history):
            continue
        intervals = history.between(candidate.start_ns, candidate.end_ns + _AFTER_NS)
        if is_traced(candidate):
            kept += sum(_grown(one) for one in intervals)
        else:
            first, rest = _kept(intervals[:1]), _kept(intervals[1:])
            kept += rest + (min(first, intervals[0].returned_bytes) if intervals[1:] else first)
        seen += sum(interval.returned_bytes for interval in intervals)
    return kept / total if seen >= _SEEN * total else None


def big_parts(candidate: Candidate) -> list[Part]:
    """Return the parts that are no manifests."""
    return [part for part in candidate.parts if part.bytes >= SMALL_BYTES]


def is_whole(trace: Traced, *, pooled: bool) -> bool:
    """Return whether the sessions of a stream are in order from its begin, by operations of one size."""
    operations = biggest = 0
    together = pooled and trace.totals.pooled and trace.totals.low_offset == 0
    for session in trace.sessions.values():
        if session.faulted_bytes or session.direct_bytes or session.kinds & _UNLIKE:
            return False
        if not together and (session.consecutive_operations != session.operations or session.first_offset):
            return False
        operations += session.operations
        biggest += max((count for _, count, _ in session.sizes), default=0)
    return operations >= _PIECES and biggest >= _EVEN * operations


def _is_poured(trace: Traced) -> bool:
    """Return whether it was written from end to end, and nearly all in the pieces of which there were most."""
    if not is_whole(trace, pooled=False):
        return False
    _, operations, moved = max(
        (size for session in trace.sessions.values() for size in session.sizes), key=lambda size: size[2]
    )
    return _is_piece(moved / operations) and moved >= _MOST * trace.totals.bytes


def _is_piece(size: float) -> bool:
    """Return whether a buffer may have this size."""
    return _PIECE_BYTES <= size <= _POURED_BYTES and size % _PAGE_BYTES == 0


def _bytes(parts: Iterable[Part]) -> int:
    return sum(part.bytes for part in parts)


def _is_straight(part: Part, *, pooled: bool) -> bool:
    stream = part.stream
    if stream.trace is None or not stream.trace.sessions or part.bytes < stream.size:
        return False
    return is_whole(stream.trace, pooled=pooled)


def _grown(interval: Interval) -> int:
    return max(0, interval.grown_bytes) + max(0, interval.resident_bytes)


def _kept(intervals: Iterable[Interval]) -> int:
    """Return what memory grew by, or what was touched of it for the first time, if that is more."""
    pairs = [(_grown(one), one.minor_faults * _PAGE_BYTES) for one in intervals]
    return max(sum(grown for grown, _ in pairs), sum(touched for _, touched in pairs))


def _ends(process: ProcessKey, candidate: Candidate, known: Knowledge) -> bool:
    if known.world.jobs.info(process) is None:
        return True
    ended_ns = known.world.ended.get(process)
    return ended_ns is not None and ended_ns - candidate.end_ns < _ENDS_NS


def _shows_memory(history: ProcessHistory) -> bool:
    stat = history.last_stat
    return stat is not None and stat.rss_bytes is not None and stat.rss_file_bytes is not None


def _goes_ahead(parts: Iterable[Part], *, over: bool) -> bool:
    """Return whether each file was seen to be read to its end, none backwards, and all by positions that move.

    Of a process that was over before the next look nobody saw the end.
    """
    seen = False
    for part in parts:
        stream = part.stream
        if stream.is_mapping or stream.direct or not _rises(stream):
            return False
        if part.bytes < _WHOLE * stream.size and not over:
            return False
        seen = seen or any(look.position > 0 for look in stream.looks)
    return seen


def _rises(stream: Stream) -> bool:
    positions = [look.position for look in stream.looks]
    if len(positions) > 1 and not positions[-1]:
        return False
    return all(before <= after for before, after in itertools.pairwise(positions))


def _is_on_grid(parts: Iterable[Part], *, least: int) -> bool:
    """Return whether at each look the process stood at the end of an even piece."""
    inside = {
        (part.stream.file, look.position)
        for part in parts
        for look in part.stream.looks
        if 0 < look.position < part.stream.size
    }
    return len(inside) >= least and all(position % _GRID_BYTES == 0 for _, position in inside)


def _is_even(intervals: list[Interval]) -> bool:
    """Return whether a process read in pieces of one size: a power of two, or the same in each interval."""
    looks = [
        (one.returned_bytes, one.reads) for one in intervals if one.returned_bytes >= SMALL_BYTES and one.reads > 0
    ]
    rest = looks[1:]  # what it imported before is in the first one
    return (
        _is_power_of_two(looks) or (_moved(rest) * 2 > _moved(looks) and _is_power_of_two(rest)) or _is_one_size(looks)
    )


def _moved(looks: list[tuple[int, int]]) -> int:
    return sum(size for size, _ in looks)


def _is_power_of_two(looks: list[tuple[int, int]]) -> bool:
    operations = sum(count for _, count in looks)
    piece = _moved(looks) / max(1, operations)
    if operations < _PIECES or piece < _PIECE_BYTES:
        return False
    return _NEAR[0] <= piece / 2.0 ** math.ceil(math.log2(piece / _NEAR[1])) <= _NEAR[1]


def _is_one_size(looks: list[tuple[int, int]]) -> bool:
    if len(looks) < _LOOKS or sum(count for _, count in looks) < _PIECES:
        return False
    middle = sorted(size / count for size, count in looks)[len(looks) // 2]
    alike = sum(size for size, count in looks if _ALIKE[0] <= size / count / middle <= _ALIKE[1])
    return middle >= _PIECE_BYTES and alike >= _MOST * _moved(looks)
