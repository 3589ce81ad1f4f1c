"""How the bytes of a candidate were laid out, from positions, file sizes and counters: what poll level can tell.

An operation is consecutive if it begins where the previous one of the same process on the same file ended (Darshan's
word); bytes, not operations, decide the class (design section 5). Between two looks the position of a consecutive
writer moves by as much as the process wrote; where positions are not used (pwrite), a new file grows by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ckptprof.detect.describe.traced_pattern import SMALL_MEDIAN_BYTES, exact_pattern
from ckptprof.detect.events.candidates import Candidate, is_traced
from ckptprof.detect.transfers.part import Part
from ckptprof.detect.transfers.streams import Look
from ckptprof.detect.transfers.traced import LARGE_BYTES, Traced
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.process_counters import ProcessHistory
from ckptprof.model import Pattern, PatternClass

SEQUENTIAL_SHARE = 0.9
SEEN_SHARE = 0.5  # of the bytes must have shown their order before a class is named
_BACK_BYTES = 64 << 10  # shorter steps back are headers rewritten, directories of a zip file probed
_SKEW_BYTES = 32 << 20  # counters and positions are read one after the other, and a busy machine may come in between
_LOOK_NS = 60_000_000
_ONCE = 1.05  # times the bytes of the files, at most, if they were moved once


@dataclass(slots=True)
class _Order:
    followed: int = 0  # bytes at positions that follow
    jumped: int = 0  # bytes after a jump forward
    back: int = 0  # bytes at positions that went back or did not move with what was moved
    inferred: int = 0  # bytes of unseen order that were moved once: of new files, or in large operations
    large: int = 0  # bytes of `followed` in runs of 1 MiB or more

    def add(self, other: _Order) -> None:
        self.followed += other.followed
        self.jumped += other.jumped
        self.back += other.back
        self.inferred += other.inferred
        self.large += other.large


def pattern_of(candidate: Candidate, histories: dict[ProcessKey, ProcessHistory]) -> Pattern:
    """Return the pattern of a candidate; None wherever it could not be seen."""
    if is_traced(candidate):
        return exact_pattern(candidate)
    total = sum(part.bytes for part in candidate.parts)
    order = _Order()
    telling = [part for part in candidate.parts if part.bytes >= _BACK_BYTES]
    for part in candidate.parts:
        order.add(_order(part, histories.get(part.stream.process), alone=_is_alone(part, telling)))
    operations, mean, median = _sizes(candidate, histories)
    mapped = sum(part.bytes for part in candidate.parts if part.stream.is_mapping)
    _infer(order, total - mapped, operations, mean)
    direct = sum(part.bytes for part in candidate.parts if part.stream.direct)
    seen = order.followed + order.jumped + order.back
    judged = seen + order.inferred
    return Pattern(
        class_=_class(order, total, median),
        sequential_share_bytes=(order.followed + order.jumped + order.inferred) / judged if judged else None,
        consecutive_share_bytes=(order.followed + order.inferred) / judged if judged else None,
        large_share_bytes=order.large / judged if judged else None,
        order_seen_share_bytes=min(1.0, seen / total) if total else None,
        operations=operations,
        mean_operation_bytes=mean,
        median_operation_bytes=median,
        buffered_share_bytes=max(0, total - direct - mapped) / total if total else None,
        direct_share_bytes=direct / total if total else None,
        mapped_share_bytes=mapped / total if total else None,
    )


def _infer(order: _Order, total: int, operations: int | None, mean: float | None) -> None:
    """Take bytes of unseen order as consecutive, if they were moved once, in operations of 1 MiB and more.

    Within one operation all bytes are consecutive, so that few large ones leave little room for another order.
    """
    unseen = total - order.followed - order.jumped - order.back - order.inferred
    if operations is None or mean is None or unseen <= 0 or order.back or order.jumped:
        return
    if mean >= LARGE_BYTES and operations * mean <= _ONCE * total:
        order.inferred += unseen
        order.large += unseen


def _class(order: _Order, total: int, median: float | None) -> PatternClass | None:
    judged = order.followed + order.jumped + order.back + order.inferred
    if not total or judged < SEEN_SHARE * total:
        return None
    if (order.followed + order.inferred) / judged >= SEQUENTIAL_SHARE:
        small = median is not None and median < SMALL_MEDIAN_BYTES
        large = order.large >= 0.5 * judged
        return PatternClass.SEQUENTIAL_LARGE if large and not small else PatternClass.SEQUENTIAL_SMALL
    if order.back <= (1 - SEQUENTIAL_SHARE) * judged:
        return PatternClass.STRIDED
    # of positions all over a file every other step goes back
    if order.back > 0.25 * judged and order.back + order.jumped > 0.5 * judged:
        return PatternClass.RANDOM
    return PatternClass.MIXED


def _is_alone(part: Part, parts: Sequence[Part]) -> bool:
    """Return whether its process moved no other file of the candidate at the same time, give or take a look."""
    return not any(
        other is not part
        and other.stream.process == part.stream.process
        and other.start_ns - _LOOK_NS < part.end_ns
        and part.start_ns < other.end_ns + _LOOK_NS
        for other in parts
    )


def _order(part: Part, history: ProcessHistory | None, *, alone: bool) -> _Order:
    stream = part.stream
    writes = stream.writes
    order = _Order()
    if stream.trace is not None or stream.is_mapping:
        return order if stream.trace is None else _exact_order(stream.trace)
    if not stream.looks:
        if writes and _whole_and_new(part):
            order.inferred = part.bytes
            order.large = part.bytes if part.bytes >= LARGE_BYTES else 0
        return order
    looks = stream.looks if writes else _after_the_probe(stream.looks)
    values = _witness(looks, part.bytes, writes=writes)
    if values is None:
        if writes and _whole_and_new(part):
            order.inferred = part.bytes
            order.large = part.bytes if part.bytes >= LARGE_BYTES else 0
        return order
    previous_at, previous = part.start_ns, 0 if stream.before_ns < stream.first_ns or not stream.append else values[0]
    ahead = 0
    for look, value in zip(looks, values, strict=True):
        moved = _moved(history, previous_at, look.at_ns, writes=writes)
        if not alone and moved is not None:  # the rest of what its process moved is the other files'
            moved = min(moved, max(value - previous, 0))
        ahead = _judge(order, value - previous, moved, ahead, part.bytes)
        previous_at, previous = look.at_ns, value
    rest = part.bytes - max(values)
    if rest > 0 and not order.back:  # written or read after the last look, up to the end of the file
        order.followed += rest
    unseen = part.bytes - order.followed
    if unseen > 0 and not order.back and not order.jumped and writes and _whole_and_new(part):
        order.inferred = unseen  # a call that was still running at the last look
    sequential = order.followed + order.inferred
    order.large = sequential if sequential >= LARGE_BYTES else 0
    return order


def _exact_order(trace: Traced) -> _Order:
    exact = trace.totals
    sequential = max(exact.sequential_bytes, exact.consecutive_bytes)
    back = max(0, exact.bytes - sequential)
    return _Order(exact.consecutive_bytes, sequential - exact.consecutive_bytes, back, 0, exact.large_bytes)


def _judge(order: _Order, step: int, moved: int | None, ahead: int, total: int) -> int:
    """Put what was moved between two looks where the position says that it belongs.

    `ahead` is by how much the positions have outrun the bytes so far, the new value is returned: gaps too small to be
    told from noise between two looks add up over many, noise does not.
    """
    tolerance = _SKEW_BYTES + total // 8
    if step < -_BACK_BYTES:
        order.back += min(moved if moved is not None else -step, total)
        return 0
    if moved is None:
        order.followed += max(0, step)
        return 0
    ahead = max(0, ahead + step - moved)
    if ahead > tolerance:
        order.jumped += moved
        return tolerance
    order.followed += max(0, step)
    if moved > step + tolerance:
        order.back += moved - step
    return ahead


def _witness(looks: Sequence[Look], total: int, *, writes: bool) -> list[int] | None:
    """Return what shows the order: positions if they are used, else the growth of the file; None if neither tells."""
    positions = [look.position for look in looks]
    if max(positions) > 0.02 * total or (len(looks) <= 2 and max(positions) > 0):
        return positions  # at 0 all the time: pread and pwrite, or a call that had not returned yet
    sizes = [look.size for look in looks]
    if writes and sizes[0] < 0.5 * total <= max(sizes):
        return sizes
    return None


def _after_the_probe(looks: list[Look]) -> list[Look]:
    """Leave out first looks at the end of a file that was then read from its begin: its directory is there.

    Zip files (torch, npz), HDF5 and Parquet are read in this way; a few kilobytes, met by a slow reader's look, are no
    sign of another order of the rest.
    """
    first = 0
    while first < len(looks) - 1 and looks[first].position >= looks[first].size - _BACK_BYTES > _BACK_BYTES:
        first += 1
    return looks[first:] if first and looks[first].position < looks[first - 1].position else looks


def _whole_and_new(part: Part) -> bool:
    """Whether the file was born in this stream, so that its size is what was written to it."""
    fact = part.stream.fact
    if fact is None or fact.birth_ns is None:
        return False
    return fact.modified_ns - fact.birth_ns <= part.end_ns - part.start_ns + 1_000_000_000


def _moved(history: ProcessHistory | None, start_ns: int, end_ns: int, *, writes: bool) -> int | None:
    if history is None:
        return None
    total = 0
    for interval in history.between(start_ns, end_ns):
        span = interval.end_ns - interval.start_ns
        inside = min(interval.end_ns, end_ns) - max(interval.start_ns, start_ns)
        moved = interval.written_bytes if writes else interval.returned_bytes
        total += moved * inside // span if span > 0 else moved
    return total


def _sizes(
    candidate: Candidate, histories: dict[ProcessKey, ProcessHistory]
) -> tuple[int | None, float | None, float | None]:
    """Return (operations, mean bytes, median bytes weighted by bytes) of the processes while the candidate lasted."""
    weights: list[tuple[float, int]] = []
    operations = moved = 0
    for process in candidate.processes:
        history = histories.get(process)
        for interval in history.between(candidate.start_ns, candidate.end_ns) if history else ():
            count = interval.writes if candidate.writes else interval.reads
            size = interval.written_bytes if candidate.writes else interval.returned_bytes
            if count <= 0 or size <= 0:
                continue
            operations += count
            moved += size
            weights.append((size / count, size))
    if not operations:
        return None, None, None
    weights.sort()
    half, passed = moved / 2, 0
    median = weights[-1][0]
    for mean, size in weights:
        passed += size
        if passed >= half:
            median = mean
            break
    return operations, moved / operations, median
