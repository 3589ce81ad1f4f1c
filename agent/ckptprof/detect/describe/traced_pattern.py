"""The pattern of what was traced: every operation counted, nothing inferred."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.transfers.part import is_mapped
from ckptprof.detect.transfers.traced import Traced, silent_of
from ckptprof.model import Pattern, PatternClass

SMALL_MEDIAN_BYTES = 64 << 10
_SEQUENTIAL_SHARE = 0.9
_LARGE_SHARE = 0.5
_DENSE_SHARE = 0.1  # gaps of less than so much of the bytes are those of headers and of alignment
_RANDOM_SEQUENTIAL = 0.75  # of random operations every other one goes ahead
_RANDOM_CONSECUTIVE = 0.25


def histogram(traces: Iterable[Traced]) -> dict[int, tuple[int, int]]:
    """Return lower bound in bytes -> (operations, bytes)."""
    found: dict[int, tuple[int, int]] = {}
    for trace in traces:
        for session in trace.sessions.values():
            silent = silent_of(session)
            for low, operations, moved in session.sizes:
                if silent and moved == silent:
                    continue  # no operation
                before = found.get(low, (0, 0))
                found[low] = (before[0] + operations, before[1] + moved)
    return dict(sorted(found.items()))


def median_bytes(sizes: dict[int, tuple[int, int]]) -> float | None:
    """Return the median operation by bytes: the mean of the operations of its kind of size."""
    half = sum(moved for _, moved in sizes.values()) / 2
    passed = 0
    for operations, moved in sizes.values():
        passed += moved
        if moved and operations and passed >= half:
            return moved / operations
    return None


def class_of(traces: Sequence[Traced]) -> PatternClass | None:
    """Return the class, by bytes (design section 5); None if nothing was moved."""
    totals = [trace.totals for trace in traces]
    moved = sum(total.bytes - total.silent_bytes for total in totals)
    if moved <= 0:
        return None
    consecutive = sum(total.consecutive_bytes for total in totals) / moved
    sequential = max(consecutive, sum(total.sequential_bytes for total in totals) / moved)
    if sequential >= _SEQUENTIAL_SHARE:
        dense = sum(total.gap_bytes for total in totals) <= _DENSE_SHARE * moved
        if consecutive < _SEQUENTIAL_SHARE and not dense:
            return PatternClass.STRIDED
        large = sum(total.large_bytes for total in totals) >= _LARGE_SHARE * moved
        return PatternClass.SEQUENTIAL_LARGE if large and not _is_small(traces) else PatternClass.SEQUENTIAL_SMALL
    if sequential < _RANDOM_SEQUENTIAL and consecutive < _RANDOM_CONSECUTIVE:
        return PatternClass.RANDOM
    return PatternClass.MIXED


def _is_small(traces: Sequence[Traced]) -> bool:
    """Return whether the operations are small; by how much a page fault brings in, the kernel decides."""
    median = median_bytes(histogram(trace for trace in traces if not trace.totals.faulted_bytes))
    return median is not None and median < SMALL_MEDIAN_BYTES


def exact_pattern(candidate: Candidate) -> Pattern:
    """Return the pattern of a candidate of which nearly everything was traced."""
    traces = [part.stream.trace for part in candidate.parts if part.stream.trace is not None]
    totals = [trace.totals for trace in traces]
    moved = sum(total.bytes - total.silent_bytes for total in totals)
    operations = sum(total.operations for total in totals)
    everything = sum(part.bytes for part in candidate.parts)
    mapped = sum(part.bytes for part in candidate.parts if is_mapped(part))
    direct = sum(total.direct_bytes for total in totals)
    direct += sum(part.bytes for part in candidate.parts if part.stream.trace is None and part.stream.direct)
    sizes = histogram(traces)
    consecutive = sum(total.consecutive_bytes for total in totals)
    sequential = max(consecutive, sum(total.sequential_bytes for total in totals))
    return Pattern(
        class_=class_of(traces) if moved >= everything / 2 else None,  # the rest: mappings, what was only polled
        sequential_share_bytes=_share(sequential, moved),
        consecutive_share_bytes=_share(consecutive, moved),
        large_share_bytes=_share(sum(total.large_bytes for total in totals), moved),
        sequential_share_operations=_share(sum(total.sequential_operations for total in totals), operations),
        consecutive_share_operations=_share(sum(total.consecutive_operations for total in totals), operations),
        order_seen_share_bytes=_share(moved, everything),
        operations=operations,
        mean_operation_bytes=moved / operations if operations else None,
        median_operation_bytes=median_bytes(sizes),
        size_histogram={str(low): list(pair) for low, pair in sizes.items()},
        buffered_share_bytes=_share(everything - direct - mapped, everything),
        direct_share_bytes=_share(direct, everything),
        mapped_share_bytes=_share(mapped, everything),
    )


def _share(part: int, whole: int) -> float | None:
    return min(1.0, max(0.0, part / whole)) if whole > 0 else None
