"""A transfer as its operations were counted: its bounds are points, and the events of its file's life are exact."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from ckptprof.detect.tolerances import AT_ONCE_NS, COMMIT_NS
from ckptprof.detect.transfers.model.movement import Movement, measure_movement, merge_movements
from ckptprof.detect.transfers.model.operations import OperationSums, SessionTotals, session_sums, start_of_new_ns
from ckptprof.detect.transfers.model.phase import Phase
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.recording_clock import RecordingClock
from ckptprof_collectors.samples import FileActivity, OperationKind

_MAX_POINTS = 1200
_APPEND = OperationKind.APPEND.value  # a flag's own `&` takes ten times as long


@dataclass(slots=True, eq=False)
class TracedTransfer(Transfer):
    """The sessions of all threads that a process moved a file by. Times are CLOCK_MONOTONIC."""

    generation: int = 0
    sessions: dict[str, FileActivity] = field(default_factory=dict)  # empty once it was judged
    created_ns: int | None = None  # when it was made, or when its opening began to cut off what was in it
    emptied_ns: int | None = None  # when its opening had cut off what was in it, if it was there before
    closing_ns: int | None = None  # when closing began, if it was timed: NFS, FUSE and S3 send all of it there
    name_given_ns: int | None = None
    syncs: Sequence[tuple[int, int]] = ()  # (start, end), the last ones, by its own process
    other_syncs: Sequence[tuple[int, int]] = ()  # by others: it was over before, and durable then
    storing_error: int | None = None  # errno of a sync or a close of it
    points: list[Movement] = field(default_factory=list)
    mapping: Transfer | None = None  # of one by page faults: the mapping as looks saw it
    version: int = 0  # rises with everything that is observed
    ended_until_ns: int = 0  # up to here it is taken as over, whether all its threads closed it or not
    active_ns: int = 0  # when its last operation ended
    last_session: FileActivity | None = None  # whose last operation ended last
    _sums: OperationSums | None = None
    _totals: SessionTotals | None = None  # of more than one session
    _unclosed: int = 0  # sessions whose file is still open

    def ingest(self, activity: FileActivity, before_ns: int) -> None:
        """Take a later sample of a session, or the first one; `before_ns` is the time of the look before."""
        earlier = self.sessions.get(activity.session)
        transferred = activity.bytes - (earlier.bytes if earlier else 0)
        if transferred > 0:
            since_ns = start_of_new_ns(earlier, activity, before_ns) if earlier else activity.first_ns
            self._add_point(measure_movement(earlier, activity, min(since_ns, activity.last_ns)))
        if self._totals is not None:
            self._totals.ingest(earlier, activity)
        elif self.sessions and earlier is None:
            self._totals = SessionTotals(*self.sessions.values())
            self._totals.ingest(None, activity)
        self.sessions[activity.session] = activity
        self._unclosed += (activity.closed_ns is None) - (earlier is not None and earlier.closed_ns is None)
        last = self.last_session
        if last is None or last is earlier or activity.last_ns > last.last_ns:
            self.last_session = activity
        self.append = self.append or bool(activity.kinds & _APPEND)
        self.active_ns = max(self.active_ns, activity.first_ns, activity.last_ns)
        if activity.closed_ns is not None and activity.closed_ns > (self.closed_ns or 0):
            self.closed_ns = self.closing_ns = activity.closed_ns
        self.mark_changed()

    def mark_changed(self) -> None:
        """Take note that something was observed; of one that was judged the sums stay."""
        self.version += 1
        if self.phase is Phase.CLASSIFIED:
            return
        self._sums = None
        is_ongoing = self._unclosed > 0 and self.active_ns > max(self.closed_ns or 0, self.ended_until_ns)
        self.phase = Phase.OPEN if is_ongoing else Phase.ENDED

    def finish(self) -> None:
        """Take note that it is over, whether all its threads closed its file or not."""
        self.phase = Phase.ENDED
        self.ended_until_ns = self.active_ns

    def adopt_mapping(self, polled: Transfer) -> None:
        """Take how much of it was touched, as looks saw it: large folios come in without an event."""
        if polled.is_mapped and self.mapped_bytes < polled.mapped_bytes:
            self.mapping, self.mapped_bytes = polled, polled.mapped_bytes

    def adopt_polled(self, polled: Transfer) -> None:
        """Take what only looks know: an unseen name, what the file system says, how it was opened."""
        if not self.path.startswith("/"):
            self.path = polled.path
            self.earlier_path = polled.earlier_path
            self.version += 1
        self.append = self.append or polled.append
        if polled.fact is not None and polled.fact_at_ns >= self.fact_at_ns:
            self.fact, self.fact_at_ns = polled.fact, polled.fact_at_ns

    def rename(self, path: str) -> None:
        """Take the new name of its file, or the first one that is known."""
        earlier_path = self.earlier_path if not self.path.startswith("/") else self.path
        Transfer.rename(self, path)
        self.earlier_path = earlier_path
        self.version += 1

    def _add_point(self, movement: Movement) -> None:
        if len(self.points) >= _MAX_POINTS:
            by_thread = sorted(self.points, key=lambda one: (one.tid or 0, one.start_ns))
            self.points = [merge_movements(*pair) for pair in zip(by_thread[::2], by_thread[1::2], strict=True)]
        self.points.append(movement)

    def mark_classified(self) -> None:
        """Take note that it was judged: only its sums and edges are asked for from now on."""
        self.phase = Phase.CLASSIFIED
        self._sums = self.operations
        self.sessions = {}
        self.last_session = self._totals = None
        self.points = []
        self.estimate_inputs = None

    @property
    def operations(self) -> OperationSums | None:
        """The sums over its operations, made once for each change; None before the first one."""
        if self._sums is None and self.sessions:
            totals = self._totals
            self._sums = session_sums(*self.sessions.values()) if totals is None else totals.sums()
        return self._sums

    @property
    def error(self) -> int | None:
        """The errno of the call that its writing broke off with, or without which what it wrote may be lost."""
        is_whole = self.fact is not None and self.fact.is_complete
        return self.storing_error or (sums.error if (sums := self.operations) is not None and not is_whole else None)

    @property
    def threads(self) -> Collection[FileActivity]:
        """What each thread did of it, until it is judged."""
        return self.sessions.values()

    @property
    def faulted_bytes(self) -> int:
        """The bytes that page faults brought in, until it is judged."""
        sums = self.operations if self.sessions else None
        return sums.faulted_bytes if sums is not None else 0

    @property
    def is_mapped(self) -> bool:
        """Whether its bytes were moved by page faults."""
        return (sums := self.operations) is not None and sums.faulted_bytes > 0

    def last_data_ns(self, clock: RecordingClock) -> int:  # noqa: ARG002 - its operations bear the monotonic clock
        """Return when the last byte was moved."""
        sums = self.operations
        return self.end_ns if sums is None else sums.last_ns

    def written_ns(self, clock: RecordingClock) -> int:  # noqa: ARG002 - as above
        """Return when its last write ended."""
        return self.active_ns

    def renamed_ns(self, clock: RecordingClock) -> int | None:  # noqa: ARG002 - as above
        """Return when the file got its last name."""
        return self.name_given_ns

    def retained_its_name(self, ended_ns: int) -> bool:  # noqa: ARG002 - renaming is seen as it comes
        """Return whether it is sure that the file was not renamed."""
        return self.name_given_ns is None

    @property
    def synced_ns(self) -> int | None:
        """When its own process had synced it, as a part of its save."""
        sums = self.operations if self.syncs else None
        if sums is None:
            return None
        return max((end for _, end in self.syncs if end <= sums.last_ns + COMMIT_NS), default=None)

    @property
    def durable_ns(self) -> int | None:
        """When everything it wrote was on stable storage: the end of a sync that began after the last write.

        Where one failed, the next one succeeds whatever has become of the pages (mm/filemap.c, errseq_t).
        """
        if self.storing_error is not None or not (self.syncs or self.other_syncs):
            return None
        ends = [end for start, end in (*self.syncs, *self.other_syncs) if start >= self.active_ns]
        return min(ends, default=None)

    @property
    def last_sign_ns(self) -> int:
        """When it last showed any sign of life: an operation, a sync, a closing, a rename."""
        synced_ns = self.syncs[-1][1] if self.syncs else 0
        return max(self.active_ns, synced_ns, self.closed_ns or 0, self.name_given_ns or 0)

    def edges(self) -> tuple[int, int]:
        """Return (start, end): from its creation or first operation to its last, sync, closing and rename included."""
        sums = self.operations
        if sums is None:
            return self.first_ns, self.last_ns
        start = min(sums.first_ns, self.created_ns or sums.first_ns)
        end = max([sums.last_ns, *(until for since, until in self.syncs if since <= sums.last_ns + COMMIT_NS)])
        if self.closed_ns is not None and (self.closing_ns or self.closed_ns) <= end + AT_ONCE_NS:
            end = max(end, self.closed_ns)
        if self.name_given_ns is not None and self.name_given_ns <= end + COMMIT_NS:
            end = max(end, self.name_given_ns)
        return start, end
