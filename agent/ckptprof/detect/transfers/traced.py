"""What the trace tells of one stream: exact sums over its threads' sessions, and the events of its file's life."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ckptprof_collectors.samples import FileActivity, OperationKind

LARGE_BYTES = 1 << 20
CREATED_NS = 2_000_000_000  # a file is created so long before its first operation, at most
COMMIT_NS = 30_000_000_000  # a sync or a rename is part of a save for as long
CLOSE_NS = 500_000_000  # a close that comes so soon after the last operation or sync ends the save
_WHOLE = 0.99
_MAX_POINTS = 1200
MAX_SYNCS = 64  # only the last ones matter


class Totals(NamedTuple):
    """The sums over all sessions; times are CLOCK_MONOTONIC."""

    operations: int
    bytes: int  # by calls and by page faults
    silent_bytes: int  # of them: of a mapping, without an event; all that tells of order and size is without these
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


FAULT_AROUND_BYTES = 64 << 10  # one fault maps up to so much of a file (mm/memory.c: fault_around_bytes)
_IN_KERNEL = int(OperationKind.COPY_RANGE | OperationKind.SENDFILE | OperationKind.SPLICE)


@dataclass(slots=True)
class Traced:
    """The exact part of a stream. Times are CLOCK_MONOTONIC."""

    generation: int
    comm: str
    sessions: dict[str, FileActivity] = field(default_factory=dict)
    created_ns: int | None = None
    closed_ns: int | None = None  # the latest closing, by whichever thread
    closing_ns: int | None = None  # when that began, if it was timed: NFS, FUSE and S3 send all of it there
    renamed_ns: int | None = None
    syncs: list[tuple[int, int]] = field(default_factory=list)  # (start, end), the last ones, by its own process
    other_syncs: list[tuple[int, int]] = field(
        default_factory=list
    )  # by others: it is durable then, and was over before
    points: list[tuple[int, int, int]] = field(default_factory=list)  # (start, end, bytes)
    version: int = 0  # rises with everything that is learnt
    is_open: bool = True
    over_ns: int = 0  # up to here it is taken as over, whether all its threads told that they closed it or not
    told: bool = False  # judged: what comes later is another stream
    _totals: Totals | None = None
    _active_ns: int = 0

    def take(self, activity: FileActivity, before_ns: int) -> None:
        """Take a later sample of a session, or the first one; `before_ns` is the time of the look before."""
        earlier = self.sessions.get(activity.session)
        moved = activity.bytes - (earlier.bytes if earlier else 0)
        if moved > 0:
            since_ns = since(earlier, activity, before_ns) if earlier else activity.first_ns
            self._point(min(since_ns, activity.last_ns), activity.last_ns, moved)
        self.sessions[activity.session] = activity
        self._active_ns = max(self._active_ns, activity.first_ns, activity.last_ns)
        if activity.closed_ns is not None and activity.closed_ns > (self.closed_ns or 0):
            self.closed_ns = self.closing_ns = activity.closed_ns
        if activity.tid == activity.pid:
            self.comm = activity.comm
        self.changed()

    def changed(self) -> None:
        """Take note that something was learnt."""
        self.version += 1
        self._totals = None
        unclosed = any(session.closed_ns is None for session in self.sessions.values())
        self.is_open = unclosed and self._active_ns > max(self.closed_ns or 0, self.over_ns)

    def _point(self, start_ns: int, end_ns: int, moved: int) -> None:
        if len(self.points) >= _MAX_POINTS:
            pairs = zip(self.points[::2], self.points[1::2], strict=True)
            self.points = [(min(a[0], b[0]), max(a[1], b[1]), a[2] + b[2]) for a, b in pairs]
        self.points.append((start_ns, max(end_ns, start_ns + 1), moved))

    def tell(self) -> None:
        """Take note that it was judged: only its sums and edges are asked for from now on."""
        self.told = True
        if self.sessions:
            self._totals = self.totals
            self.sessions = {}
        self.points = []

    @property
    def moved(self) -> bool:
        """Whether any operation was counted, so that it has totals and edges."""
        return bool(self.sessions) or self._totals is not None

    @property
    def active_ns(self) -> int:
        """When its last operation ended."""
        return self._active_ns

    @property
    def totals(self) -> Totals:
        """The sums, computed once for each change."""
        if self._totals is None:
            self._totals = _sum(list(self.sessions.values()))
        return self._totals

    @property
    def last_sign_ns(self) -> int:
        """When it last showed any sign of life: an operation, a sync, a closing, a rename."""
        synced_ns = self.syncs[-1][1] if self.syncs else 0
        return max(self._active_ns, synced_ns, self.closed_ns or 0, self.renamed_ns or 0)

    @property
    def durable_ns(self) -> int | None:
        """When everything it wrote was on stable storage: the end of a sync that began after the last write."""
        ends = [end for start, end in (*self.syncs, *self.other_syncs) if start >= self._active_ns]
        return min(ends, default=None)

    def edges(self) -> tuple[int, int]:
        """Return (start, end): from its creation or first operation to its last, sync, closing and rename included."""
        totals = self.totals
        start, end = totals.first_ns, totals.last_ns
        if self.created_ns is not None and start - CREATED_NS <= self.created_ns:
            start = min(start, self.created_ns)
        for sync_start, sync_end in self.syncs:
            if sync_start <= totals.last_ns + COMMIT_NS:
                end = max(end, sync_end)
        if self.closed_ns is not None and (self.closing_ns or self.closed_ns) <= end + CLOSE_NS:
            end = max(end, self.closed_ns)
        if self.renamed_ns is not None and self.renamed_ns <= end + COMMIT_NS:
            end = max(end, self.renamed_ns)
        return start, end


def _sum(sessions: list[FileActivity]) -> Totals:
    pooled = _is_pooled(sessions)
    moved = sum(session.bytes for session in sessions)
    operations = sum(session.operations for session in sessions)
    timed = [session.call_ns for session in sessions if session.call_ns is not None]
    kinds = 0
    for session in sessions:
        kinds |= session.kinds
    silent = [silent_of(session) for session in sessions]
    silent_bytes = sum(silent)
    unordered = sum(one > 0 for one in silent)
    operations -= unordered
    told = moved - silent_bytes
    large = told if told >= LARGE_BYTES else 0
    spans = sum(max(0, session.high_offset - session.low_offset - session.bytes) for session in sessions)
    return Totals(
        operations=operations,
        bytes=moved,
        silent_bytes=silent_bytes,
        consecutive_operations=operations if pooled else sum(s.consecutive_operations for s in sessions) - unordered,
        consecutive_bytes=told if pooled else sum(s.consecutive_bytes for s in sessions) - silent_bytes,
        sequential_operations=sum(s.sequential_operations for s in sessions) - unordered,
        sequential_bytes=sum(s.sequential_bytes for s in sessions) - silent_bytes,
        large_bytes=large if pooled else sum(s.large_bytes for s in sessions) - silent_bytes,
        direct_bytes=sum(s.direct_bytes for s in sessions),
        faulted_bytes=sum(s.faulted_bytes for s in sessions),
        timed_operations=sum(s.timed_operations for s in sessions),
        call_ns=sum(timed) if timed else None,
        first_ns=min(s.first_ns for s in sessions),
        last_ns=max(max(s.first_ns, s.last_ns) for s in sessions),
        low_offset=min(s.low_offset for s in sessions),
        high_offset=max(s.high_offset for s in sessions),
        gap_bytes=0 if pooled else spans,
        kinds=kinds,
        pooled=pooled,
    )


def silent_of(session: FileActivity) -> int:
    """Return the bytes of a mapping that no event told of: its end counts them as one operation larger than a fault."""
    if not session.kinds & OperationKind.UNMAPPED:
        return 0
    return max((moved for low, _, moved in session.sizes if low > FAULT_AROUND_BYTES), default=0)


def _is_pooled(sessions: list[FileActivity]) -> bool:
    """Return whether several threads filled one stretch of the file: none goes back, and no byte is moved twice."""
    if len({session.tid for session in sessions}) < 2:
        return False
    if any(session.sequential_operations != session.operations for session in sessions):
        return False
    moved = sum(session.bytes for session in sessions)
    stretch = max(s.high_offset for s in sessions) - min(s.low_offset for s in sessions)
    return moved > 0 and _WHOLE * stretch <= moved <= stretch / _WHOLE


def since(earlier: FileActivity, later: FileActivity, before_ns: int) -> int:
    """Return when that began which is new in a later sample; `before_ns` is the look at which it was not counted.

    A call is counted when it returns: one that takes long began before that look.
    """
    if later.call_ns is None or earlier.call_ns is None:
        return earlier.last_ns
    in_calls_ns = max(0, later.call_ns - earlier.call_ns)
    return max(earlier.last_ns, min(before_ns, later.last_ns - in_calls_ns))


def minus(later: FileActivity, earlier: FileActivity, since_ns: int) -> FileActivity:
    """Return what a session did after an earlier sample of it; offsets before and after cannot be told apart."""
    sizes = {low: (operations, moved) for low, operations, moved in later.sizes}
    for low, operations, moved in earlier.sizes:
        after = sizes.get(low, (0, 0))
        sizes[low] = (max(0, after[0] - operations), max(0, after[1] - moved))
    timed = (later.call_ns or 0) - (earlier.call_ns or 0)
    return FileActivity(
        session=later.session,
        pid=later.pid,
        start_ticks=later.start_ticks,
        tid=later.tid,
        comm=later.comm,
        device=later.device,
        inode=later.inode,
        generation=later.generation,
        writes=later.writes,
        path=later.path,
        size=later.size,
        operations=max(0, later.operations - earlier.operations),
        bytes=max(0, later.bytes - earlier.bytes),
        consecutive_operations=max(0, later.consecutive_operations - earlier.consecutive_operations),
        consecutive_bytes=max(0, later.consecutive_bytes - earlier.consecutive_bytes),
        sequential_operations=max(0, later.sequential_operations - earlier.sequential_operations),
        sequential_bytes=max(0, later.sequential_bytes - earlier.sequential_bytes),
        large_bytes=max(0, later.large_bytes - earlier.large_bytes),
        direct_bytes=max(0, later.direct_bytes - earlier.direct_bytes),
        call_ns=None if later.call_ns is None else max(0, timed),
        timed_operations=max(0, later.timed_operations - earlier.timed_operations),
        first_ns=min(since_ns, later.last_ns),
        last_ns=later.last_ns,
        first_offset=earlier.end_offset,
        end_offset=later.end_offset,
        low_offset=later.low_offset,
        high_offset=later.high_offset,
        kinds=later.kinds,
        sizes=tuple((low, *pair) for low, pair in sorted(sizes.items()) if pair[0] > 0),
        faulted_bytes=max(0, later.faulted_bytes - earlier.faulted_bytes),
        closed_ns=later.closed_ns,
    )


def copies_in_kernel(kinds: int) -> bool:
    """Return whether bytes went from file to file without passing through the process."""
    return bool(kinds & _IN_KERNEL)
