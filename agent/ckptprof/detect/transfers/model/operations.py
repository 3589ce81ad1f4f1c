"""The operations of one transfer in sums: over the sessions of its threads, exact, in bounded memory."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import msgspec

from ckptprof.detect.tolerances import ALL_SHARE
from ckptprof_collectors.samples import FileActivity, OperationKind

LARGE_BYTES = 1 << 20
_COUNTS = (
    "operations",
    "bytes",
    "consecutive_operations",
    "consecutive_bytes",
    "sequential_operations",
    "sequential_bytes",
    "large_bytes",
    "direct_bytes",
    "timed_operations",
    "faulted_bytes",
    "failed_operations",
)


class Operations(NamedTuple):
    """The sums over all sessions; times are CLOCK_MONOTONIC."""

    number: int
    bytes: int  # by calls and by page faults
    silent_bytes: int  # of them: of a mapping, without an event; all that shows order and size is without these
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
    gap_bytes: int  # of the files' stretches that were passed, what was not moved
    kinds: int
    pooled: bool  # threads that filled the file together: each goes ahead with gaps, all of them leave none
    error: int | None  # errno of a call after which the thread that made it moved nothing more


_UNMAPPED = OperationKind.UNMAPPED.value  # a flag's own `&` takes ten times as long
_IN_KERNEL = (OperationKind.COPY_RANGE | OperationKind.SENDFILE | OperationKind.SPLICE).value
FAULT_AROUND_BYTES = 64 << 10  # one fault maps up to so much of a file (mm/memory.c: fault_around_bytes)


def sums_of(sessions: Collection[FileActivity]) -> Operations:
    """Return the sums over all sessions of a transfer."""
    alone = [_sums_of_one(session) for session in sessions]
    return alone[0] if len(alone) == 1 else _together(alone, sessions)


def _sums_of_one(session: FileActivity) -> Operations:
    """Return the sums of one session, as nearly all files have only one."""
    silent_bytes = silent_of(session)
    unordered = silent_bytes > 0
    last_ns = max(session.first_ns, session.last_ns)
    return Operations(
        number=session.operations - unordered,
        bytes=session.bytes,
        silent_bytes=silent_bytes,
        consecutive_operations=session.consecutive_operations - unordered,
        consecutive_bytes=session.consecutive_bytes - silent_bytes,
        sequential_operations=session.sequential_operations - unordered,
        sequential_bytes=session.sequential_bytes - silent_bytes,
        large_bytes=session.large_bytes - silent_bytes,
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
        pooled=False,
        error=session.error if (session.failed_ns or 0) > session.last_ns else None,
    )


def _together(alone: list[Operations], sessions: Collection[FileActivity]) -> Operations:
    pooled = _is_pooled(sessions)
    moved, silent_bytes = sum(one.bytes for one in alone), sum(one.silent_bytes for one in alone)
    operations, ordered = sum(one.number for one in alone), moved - silent_bytes
    large = ordered if ordered >= LARGE_BYTES else 0
    timed = [one.call_ns for one in alone if one.call_ns is not None]
    kinds = 0
    for one in alone:
        kinds |= one.kinds
    return Operations(
        number=operations,
        bytes=moved,
        silent_bytes=silent_bytes,
        consecutive_operations=operations if pooled else sum(one.consecutive_operations for one in alone),
        consecutive_bytes=ordered if pooled else sum(one.consecutive_bytes for one in alone),
        sequential_operations=sum(one.sequential_operations for one in alone),
        sequential_bytes=sum(one.sequential_bytes for one in alone),
        large_bytes=large if pooled else sum(one.large_bytes for one in alone),
        direct_bytes=sum(one.direct_bytes for one in alone),
        faulted_bytes=sum(one.faulted_bytes for one in alone),
        timed_operations=sum(one.timed_operations for one in alone),
        call_ns=sum(timed) if timed else None,
        first_ns=min(one.first_ns for one in alone),
        last_ns=max(one.last_ns for one in alone),
        low_offset=min(one.low_offset for one in alone),
        high_offset=max(one.high_offset for one in alone),
        gap_bytes=0 if pooled else sum(one.gap_bytes for one in alone),
        kinds=kinds,
        pooled=pooled,
        error=_broke_off(sessions),
    )


def _broke_off(sessions: Collection[FileActivity]) -> int | None:
    """Return the last error that no thread got over: one that goes on has tried again, or has written elsewhere."""
    moved_ns: dict[int, int] = {}
    for session in sessions:
        moved_ns[session.tid] = max(moved_ns.get(session.tid, 0), session.last_ns)
    failed = [one for one in sessions if (one.failed_ns or 0) > moved_ns[one.tid]]
    return max(failed, key=lambda one: one.failed_ns or 0).error if failed else None


def silent_of(session: FileActivity) -> int:
    """Return the bytes of a mapping without an event: its end counts them as one operation larger than a fault."""
    if not session.kinds & _UNMAPPED:
        return 0
    return max((moved for low, _, moved in session.sizes if low > FAULT_AROUND_BYTES), default=0)


def _is_pooled(sessions: Collection[FileActivity]) -> bool:
    """Return whether several threads filled one stretch of the file: none goes back, and no byte is moved twice."""
    if len({session.tid for session in sessions}) < 2:
        return False
    if any(session.sequential_operations != session.operations for session in sessions):
        return False
    moved = sum(session.bytes for session in sessions)
    stretch = max(s.high_offset for s in sessions) - min(s.low_offset for s in sessions)
    return moved > 0 and ALL_SHARE * stretch <= moved <= stretch / ALL_SHARE


def since(earlier: FileActivity, later: FileActivity, before_ns: int) -> int:
    """Return when that began which is new in a later sample; `before_ns` is the look at which it was not counted.

    A call is counted when it returns: one that takes long began before that look.
    """
    if later.call_ns is None or earlier.call_ns is None:
        return earlier.last_ns
    in_calls_ns = max(0, later.call_ns - earlier.call_ns)
    return max(earlier.last_ns, min(before_ns, later.last_ns - in_calls_ns))


def minus(later: FileActivity, earlier: FileActivity, since_ns: int) -> FileActivity:
    """Return what a session did after an earlier sample of it; offsets before and after cannot be ordered apart."""
    sizes = {low: (operations, moved) for low, operations, moved in later.sizes}
    for low, operations, moved in earlier.sizes:
        after = sizes.get(low, (0, 0))
        sizes[low] = (max(0, after[0] - operations), max(0, after[1] - moved))
    counts = {name: max(0, getattr(later, name) - getattr(earlier, name)) for name in _COUNTS}
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
    """Return whether bytes went from file to file without passing through the process."""
    return bool(kinds & _IN_KERNEL)
