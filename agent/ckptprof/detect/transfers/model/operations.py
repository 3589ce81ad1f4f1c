"""Sums over the operations of one transfer, over the sessions of all its threads: exact, in bounded memory."""

from __future__ import annotations

import heapq
from functools import lru_cache
from typing import NamedTuple, TypeVar

import msgspec

from ckptprof.detect.tolerances import ALL_SHARE, MAX_PER_ITEM
from ckptprof_collectors.samples import FileActivity, OperationKind

LARGE_BYTES = 1 << 20
_COUNTER_FIELDS = (
    "operations", "bytes", "consecutive_operations", "consecutive_bytes", "sequential_operations", "sequential_bytes",
    "large_bytes", "direct_bytes", "timed_operations", "faulted_bytes", "failed_operations",
)  # fmt: skip


class OperationSums(NamedTuple):
    """The sums over all sessions; times are CLOCK_MONOTONIC."""

    number: int
    bytes: int  # by calls and by page faults
    unevented_bytes: int  # of a mapping, without an event; excluded from orders and sizes
    consecutive_operations: int
    consecutive_bytes: int
    sequential_operations: int
    sequential_bytes: int
    large_bytes: int
    direct_bytes: int
    faulted_bytes: int
    timed_operations: int
    call_ns: int | None
    first_ns: int
    last_ns: int
    low_offset: int
    high_offset: int
    gap_bytes: int  # skipped within the stretches that were transferred
    kinds: int
    is_shared_by_threads: bool  # threads that filled the file together: each leaves gaps, all of them leave none
    error: int | None  # errno of a call after which its thread transferred no more bytes


_SUMMED_FIELDS = (
    "number", "bytes", "unevented_bytes", "consecutive_operations", "consecutive_bytes", "sequential_operations",
    "sequential_bytes", "large_bytes", "direct_bytes", "faulted_bytes", "timed_operations", "gap_bytes",
)  # fmt: skip
_UNMAPPED = OperationKind.UNMAPPED.value  # a flag's own `&` takes ten times as long
_IN_KERNEL = (OperationKind.COPY_RANGE | OperationKind.SENDFILE | OperationKind.SPLICE).value
FAULT_AROUND_BYTES = 64 << 10  # one fault maps up to so much of a file (mm/memory.c: fault_around_bytes)
T = TypeVar("T")


@lru_cache(maxsize=MAX_PER_ITEM, typed=True)
def shared(value: T) -> T:
    """Return one object for equal values: thousands of files that wait have most of theirs in common."""
    return value


def session_sums(session: FileActivity) -> OperationSums:
    """Return the sums of a transfer with one session, as nearly all are."""
    unevented_bytes = unevented_bytes_of(session)
    has_unevented = unevented_bytes > 0
    last_ns = max(session.first_ns, session.last_ns)
    sums = OperationSums(
        number=session.operations - has_unevented,
        bytes=session.bytes,
        unevented_bytes=unevented_bytes,
        consecutive_operations=session.consecutive_operations - has_unevented,
        consecutive_bytes=session.consecutive_bytes - unevented_bytes,
        sequential_operations=session.sequential_operations - has_unevented,
        sequential_bytes=session.sequential_bytes - unevented_bytes,
        large_bytes=session.large_bytes - unevented_bytes,
        direct_bytes=session.direct_bytes,
        faulted_bytes=session.faulted_bytes,
        timed_operations=session.timed_operations,
        call_ns=session.call_ns,
        first_ns=session.first_ns,
        last_ns=last_ns,
        low_offset=session.low_offset,
        high_offset=session.high_offset,
        gap_bytes=max(0, session.high_offset - session.low_offset - session.bytes),
        kinds=session.kinds,
        is_shared_by_threads=False,
        error=session.error if (session.failed_ns or 0) > session.last_ns else None,
    )
    return OperationSums._make(map(shared, sums))


class SessionTotals:
    """Sums over several sessions; the cost of a sample does not grow with their number: threads may be short-lived."""

    __slots__ = ("_added", "_backward", "_failures", "_last_transfer_ns", "_sums", "_timed")

    def __init__(self, session: FileActivity) -> None:
        self._sums = session_sums(session)
        self._added = [getattr(self._sums, name) for name in _SUMMED_FIELDS]
        self._last_transfer_ns: dict[int, int] = {}  # by thread: time of its last byte
        self._failures: list[tuple[int, int, int]] = []  # a heap, the last one first: (-time, thread, errno)
        self._backward = self._timed = 0  # sessions that go back; sessions with measured durations
        self._observe(None, session)

    def ingest(self, earlier: FileActivity | None, later: FileActivity) -> None:
        """Ingest a later sample of a session, or its first one."""
        sums, one = self._sums, session_sums(later)
        before = None if earlier is None else session_sums(earlier)
        for at, name in enumerate(_SUMMED_FIELDS):
            self._added[at] += getattr(one, name) - (0 if before is None else getattr(before, name))
        self._sums = sums._replace(
            call_ns=(sums.call_ns or 0) + (one.call_ns or 0) - (0 if before is None else before.call_ns or 0),
            first_ns=min(sums.first_ns, one.first_ns), last_ns=max(sums.last_ns, one.last_ns),
            low_offset=min(sums.low_offset, one.low_offset), high_offset=max(sums.high_offset, one.high_offset),
            kinds=sums.kinds | one.kinds,
        )  # fmt: skip
        self._observe(earlier, later)

    def _observe(self, earlier: FileActivity | None, later: FileActivity) -> None:
        self._last_transfer_ns[later.tid] = max(self._last_transfer_ns.get(later.tid, 0), later.last_ns)
        self._backward += _goes_back(later) - (earlier is not None and _goes_back(earlier))
        self._timed += (later.call_ns is not None) - (earlier is not None and earlier.call_ns is not None)
        if later.failed_ns is not None and (earlier is None or later.failed_ns != earlier.failed_ns):
            heapq.heappush(self._failures, (-later.failed_ns, later.tid, later.error or 0))
            if len(self._failures) > 2 * len(self._last_transfer_ns):  # the last one of each thread is enough
                last = {tid: (failed_ns, tid, error) for failed_ns, tid, error in sorted(self._failures, reverse=True)}
                self._failures = sorted(last.values())

    def sums(self) -> OperationSums:
        """Return the sums so far."""
        sums = self._sums._replace(**dict(zip(_SUMMED_FIELDS, self._added, strict=True)))
        sums = sums._replace(call_ns=sums.call_ns if self._timed else None, error=self._last_error())
        if not self._is_shared_by_threads(sums):
            return sums
        ordered = sums.bytes - sums.unevented_bytes
        return sums._replace(
            consecutive_operations=sums.number, consecutive_bytes=ordered, gap_bytes=0, is_shared_by_threads=True,
            large_bytes=ordered if ordered >= LARGE_BYTES else 0,
        )  # fmt: skip

    def _last_error(self) -> int | None:
        """Return the last error after which its thread transferred no more; otherwise it has retried."""
        while self._failures and -self._failures[0][0] <= self._last_transfer_ns[self._failures[0][1]]:
            heapq.heappop(self._failures)
        return (self._failures[0][2] or None) if self._failures else None

    def _is_shared_by_threads(self, sums: OperationSums) -> bool:
        """Recognise several threads filling one stretch of the file: none goes back, no byte is transferred twice."""
        stretch = sums.high_offset - sums.low_offset
        return (
            len(self._last_transfer_ns) > 1
            and not self._backward
            and sums.bytes > 0
            and ALL_SHARE * stretch <= sums.bytes <= stretch / ALL_SHARE
        )


def _goes_back(session: FileActivity) -> bool:
    return session.sequential_operations != session.operations


def unevented_bytes_of(session: FileActivity) -> int:
    """Return the bytes of a mapping without an event: its end counts them as one operation larger than a fault."""
    if not session.kinds & _UNMAPPED:
        return 0
    return max((transferred for low, _, transferred in session.sizes if low > FAULT_AROUND_BYTES), default=0)


def start_of_new_ns(earlier: FileActivity, later: FileActivity, before_ns: int) -> int:
    """Return the start of the operations that are new in a later sample; `before_ns`: the last sample without them.

    A call is counted when it returns: a long one started before that sample.
    """
    if later.call_ns is None or earlier.call_ns is None:
        return earlier.last_ns
    in_calls_ns = max(0, later.call_ns - earlier.call_ns)
    return max(earlier.last_ns, min(before_ns, later.last_ns - in_calls_ns))


def subtract(later: FileActivity, earlier: FileActivity, since_ns: int) -> FileActivity:
    """Return a session's operations since an earlier sample; the order at the boundary is unknown."""
    sizes = {low: (operations, transferred) for low, operations, transferred in later.sizes}
    for low, operations, transferred in earlier.sizes:
        remaining = sizes.get(low, (0, 0))
        sizes[low] = (max(0, remaining[0] - operations), max(0, remaining[1] - transferred))
    counts = {name: max(0, getattr(later, name) - getattr(earlier, name)) for name in _COUNTER_FIELDS}
    failed = counts["failed_operations"] > 0
    return msgspec.structs.replace(
        later,
        **counts,
        call_ns=None if later.call_ns is None else max(0, later.call_ns - (earlier.call_ns or 0)),
        first_ns=min(since_ns, later.last_ns),
        first_offset=earlier.end_offset,
        sizes=tuple((low, *pair) for low, pair in sorted(sizes.items()) if pair[0] > 0),
        failed_ns=later.failed_ns if failed else None,
        error=later.error if failed else None,
    )


def copies_in_kernel(kinds: int) -> bool:
    """Return True if bytes went from file to file without passing through the process."""
    return bool(kinds & _IN_KERNEL)
