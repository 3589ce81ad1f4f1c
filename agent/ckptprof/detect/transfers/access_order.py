"""The order and the sizes of a group's operations: as the trace counted them, else from file positions.

An operation is consecutive if it starts where the previous one of the same process on the same file ended (Darshan's
word). In a polled file only a position that goes back shows another order: skipped gaps are not observed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from ckptprof.detect.tolerances import CONCURRENT_NS, HEADER_BYTES, NEARLY_ALL
from ckptprof.detect.transfers.edges import is_born_within
from ckptprof.detect.transfers.model.group import edges_of, intervals_of, level_of
from ckptprof.detect.transfers.model.operations import LARGE_BYTES, OperationSums, unevented_bytes_of
from ckptprof.detect.transfers.model.position_samples import PositionSample
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.process_counters import ProcessHistories
from ckptprof.model import Level
from ckptprof_collectors.samples import FileActivity


@dataclass(slots=True)
class AccessOrder:
    """Bytes of a group by their position relative to the bytes before them."""

    consecutive: int = 0  # directly after the bytes before
    jumped_forward: int = 0  # after a skipped gap; not observed by polling
    jumped_back: int = 0  # after a jump back
    inferred: int = 0  # order not observed, but each byte was transferred once, in large operations
    large: int = 0  # in consecutive runs of 1 MiB or more
    gap_bytes: int | None = None  # skipped; None: not observed

    @property
    def observed_bytes(self) -> int:
        """The bytes whose order was observed."""
        return self.consecutive + self.jumped_forward + self.jumped_back

    @property
    def known_bytes(self) -> int:
        """The bytes whose order was observed or inferred."""
        return self.observed_bytes + self.inferred

    def add_counted(self, sums: OperationSums) -> None:
        """Add the bytes of a traced transfer."""
        sequential = max(sums.sequential_bytes, sums.consecutive_bytes)
        self.consecutive += sums.consecutive_bytes
        self.jumped_forward += sequential - sums.consecutive_bytes
        self.jumped_back += max(0, sums.bytes - sums.unevented_bytes - sequential)
        self.large += sums.large_bytes
        self.gap_bytes = (self.gap_bytes or 0) + sums.gap_bytes

    def add(self, other: AccessOrder) -> None:
        """Add the bytes of another order."""
        self.consecutive += other.consecutive
        self.jumped_forward += other.jumped_forward
        self.jumped_back += other.jumped_back
        self.inferred += other.inferred
        self.large += other.large
        self.gap_bytes = None if other.gap_bytes is None else (self.gap_bytes or 0) + other.gap_bytes


@dataclass(slots=True)
class OperationSizes:
    """The operations of a group by size; None: not observed."""

    number: int | None = None
    mean_bytes: float | None = None
    median_bytes: float | None = None  # by bytes
    called_median_bytes: float | None = None  # without page faults, whose size the kernel decides
    sequential_share: float | None = None
    consecutive_share: float | None = None
    histogram: dict[int, tuple[int, int]] | None = None  # lower bound in bytes -> (operations, bytes)


def measure_layout(group: Sequence[Transfer], histories: ProcessHistories) -> tuple[AccessOrder, OperationSizes]:
    """Return the order and the sizes of the operations of a group."""
    order = AccessOrder()
    traced = level_of(group) is Level.TRACE
    with_stages = chain.from_iterable((one, *one.stands_for) for one in group)
    significant = [transfer for transfer in with_stages if transfer.bytes >= HEADER_BYTES]
    writers = Counter(file for file, _ in {(one.file, one.process) for one in significant if one.writes})
    for transfer in group:
        if (sums := transfer.operations) is not None:
            order.add_counted(sums)
        elif not traced:
            order.add(_polled_order(transfer, shared=writers[transfer.file] > 1))
    if traced:
        return order, measure_sizes(group)
    sizes = _sizes_by_counters(group, histories)
    unordered_bytes = sum(one.bytes for one in group if one.is_mapped or writers[one.file] > 1)
    _infer_order(order, sum(transfer.bytes for transfer in group) - unordered_bytes, sizes)
    order.gap_bytes = None
    return order, sizes


def share_or_none(part: int, whole: int) -> float | None:
    """Return the share of a part, None of nothing."""
    return min(1.0, max(0.0, part / whole)) if whole > 0 else None


def measure_sizes(group: Iterable[Transfer]) -> OperationSizes:
    """Return the sizes of the operations that the trace counted."""
    counted = [(transfer, sums) for transfer in group if (sums := transfer.operations) is not None]
    transferred = sum(sums.bytes - sums.unevented_bytes for _, sums in counted)
    number = sum(sums.number for _, sums in counted)
    histogram = _histogram(session for transfer, _ in counted for session in transfer.threads)
    median_bytes = _median_bytes(histogram.values())
    faulted = any(sums.faulted_bytes for _, sums in counted)
    return OperationSizes(
        number=number,
        mean_bytes=transferred / number if number else None,
        median_bytes=median_bytes,
        called_median_bytes=called_median_bytes(transfer for transfer, _ in counted) if faulted else median_bytes,
        sequential_share=share_or_none(sum(sums.sequential_operations for _, sums in counted), number),
        consecutive_share=share_or_none(sum(sums.consecutive_operations for _, sums in counted), number),
        histogram=histogram,
    )


def called_median_bytes(group: Iterable[Transfer]) -> float | None:
    """Return the median operation by bytes of the transfers without page faults; None: there is none."""
    called = (one for one in group if (sums := one.operations) is not None and not sums.faulted_bytes)
    return _median_bytes(_histogram(session for one in called for session in one.threads).values())


def _histogram(sessions: Iterable[FileActivity]) -> dict[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for session in sessions:
        unevented = unevented_bytes_of(session)
        for low, operations, transferred in session.sizes:
            if unevented and transferred == unevented:
                continue  # no operation
            before = found.get(low, (0, 0))
            found[low] = (before[0] + operations, before[1] + transferred)
    return dict(sorted(found.items()))


def _median_bytes(pieces: Iterable[tuple[int, int]]) -> float | None:
    """Return the median operation by bytes, of (operations, bytes) that are of about one size each."""
    sizes = sorted((transferred / number, transferred) for number, transferred in pieces if number)
    half = sum(transferred for _, transferred in sizes) / 2
    cumulative = 0
    for mean, transferred in sizes:
        cumulative += transferred
        if transferred and cumulative >= half:
            return mean
    return None


def _infer_order(order: AccessOrder, total: int, sizes: OperationSizes) -> None:
    """Count bytes of unobserved order as consecutive, if they were transferred once, in operations of 1 MiB and more.

    Within one operation all bytes are consecutive: a few large ones are nearly consecutive in any order.
    """
    unobserved = total - order.known_bytes
    if sizes.number is None or sizes.mean_bytes is None or unobserved <= 0 or order.jumped_back or order.jumped_forward:
        return
    if sizes.mean_bytes >= LARGE_BYTES and sizes.number * sizes.mean_bytes * NEARLY_ALL <= total:
        order.inferred += unobserved
        order.large += unobserved


def _polled_order(transfer: Transfer, *, shared: bool) -> AccessOrder:
    """Return the order that position samples show: bytes after a position that goes back, all others consecutive.

    A jump ahead that is undone at the next sample is a header patched or read. `shared`: several processes write the
    file, whose size grows by the bytes of all.
    """
    order, samples = AccessOrder(), transfer.samples
    if transfer.is_mapped:
        return order
    if samples and uses_position(samples, transfer.bytes):
        positions = [sample.position for sample in samples]
        if not transfer.writes:  # the directory of a zip file (torch, npz) is at its end
            end = transfer.size - HEADER_BYTES
            positions = [*(position for position in positions[:-1] if position < end), positions[-1]]
        steps = zip([0, *positions], positions, positions[1:], strict=False)
        back = sum(
            here - after for before, here, after in steps if min(here - after, abs(after - before)) > HEADER_BYTES
        )
        order.jumped_back = min(back, transfer.bytes)
        order.consecutive = transfer.bytes - order.jumped_back
    elif samples and transfer.writes and not shared and 2 * samples[0].size < transfer.bytes <= 2 * samples[-1].size:
        order.consecutive = transfer.bytes
    elif transfer.writes and not shared and is_born_within(transfer.fact, edges_of([transfer]), CONCURRENT_NS):
        order.inferred = transfer.bytes
    sequential = order.consecutive + order.inferred
    order.large = sequential if sequential >= LARGE_BYTES else 0
    return order


def uses_position(samples: Sequence[PositionSample], total: int) -> bool:
    """Return True if positions follow the bytes: with pread and pwrite, or until a call returns, they stay at 0."""
    most = max(sample.position for sample in samples)
    return most > 0.02 * total or (len(samples) <= 2 and most > 0)


def _sizes_by_counters(group: Sequence[Transfer], histories: ProcessHistories) -> OperationSizes:
    """Estimate the sizes from the call counters of the processes during the group.

    The last call for a file is shorter than the others, so one call per file is left out.
    """
    calls = [
        (one.writes, one.written_bytes) if group[0].writes else (one.reads, one.returned_bytes)
        for one in intervals_of(group, histories)
    ]
    calls = [(number, transferred) for number, transferred in calls if number > 0 and transferred > 0]
    if not calls:
        return OperationSizes()
    operations = sum(number for number, _ in calls)
    median = _median_bytes(calls)
    whole = operations / max(1, operations - len({transfer.file for transfer in group}))
    called = None if median is None else median * whole
    return OperationSizes(operations, sum(transferred for _, transferred in calls) / operations, median, called)
