"""A transfer whose operations the trace counted: its edges and the events of its file are exact."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import msgspec

from ckptprof.detect.tolerances import AT_ONCE_NS, COMMIT_NS
from ckptprof.detect.transfers.model.movement import Movement, measure_movement, merge_movements
from ckptprof.detect.transfers.model.operations import OperationSums, SessionTotals, session_sums, start_of_new_ns
from ckptprof.detect.transfers.model.phase import Phase
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.recording_clock import RecordingClock
from ckptprof_collectors.samples import FileActivity, OperationKind

_MAX_POINTS = 1200
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(FileActivity).decode
_APPEND = OperationKind.APPEND.value  # a flag's own `&` takes ten times as long


@dataclass(slots=True, eq=False)
class TracedTransfer(Transfer):
    """The sessions of all threads of a process on one file. Times are CLOCK_MONOTONIC."""

    generation: int = 0
    created_ns: int | None = None  # the file's creation, or the start of the open that truncated it
    emptied_ns: int | None = None  # end of the open that truncated it, if it existed before
    closing_ns: int | None = None  # start of close(2), if timed: NFS, FUSE and S3 send the data there
    syncs: Sequence[tuple[int, int]] = ()  # (start, end) of the last ones by its own process
    other_syncs: Sequence[tuple[int, int]] = ()  # by other processes: it had ended before, and was durable then
    storing_error: int | None = None  # errno of a sync or a close of it
    mapping: Transfer | None = None  # for page faults: the polled transfer of the mapping
    version: int = 0  # rises with everything that is observed
    ended_until_ns: int = 0  # ended up to here, even if not all threads closed the file
    active_ns: int = 0  # when its last operation ended
    end_offset: int | None = None  # of the last operation; None once it is classified, as all below but the sums
    _unclosed: dict[str, FileActivity] | None = None  # sessions whose file is still open
    _closed: tuple[bytes, ...] | None = None  # the others, packed: of thousands that wait each would have 2 KB
    _points: list[Movement] | None = None  # None: as of the only sample
    _sums: OperationSums | None = None
    _totals: SessionTotals | None = None  # of more than one session

    def ingest(self, activity: FileActivity, before_ns: int) -> None:
        """Ingest a later sample of a session, or the first one; `before_ns`: time of the sample before."""
        unclosed = self._unclosed or {}
        earlier = unclosed.get(activity.session)
        if unclosed or self._closed:
            self._add_point(earlier, activity, before_ns)
            if self._totals is None and earlier is None:
                self._totals = SessionTotals(*self.threads)
            if self._totals is not None:
                self._totals.ingest(earlier, activity)
        self._sums = session_sums(activity) if self._totals is None else None  # at once: they share its numbers
        unclosed[activity.session] = activity
        if activity.closed_ns is not None:
            packed = _pack(msgspec.structs.replace(unclosed.pop(activity.session), session="", path=None))
            self._closed = (*(self._closed or ()), packed)
        self._unclosed = unclosed or None
        if self.end_offset is None or activity.last_ns > self.active_ns:
            self.end_offset = activity.end_offset
        self.append = self.append or bool(activity.kinds & _APPEND)
        self.active_ns = max(self.active_ns, activity.first_ns, activity.last_ns)
        if activity.closed_ns is not None and activity.closed_ns > (self.closed_ns or 0):
            self.closed_ns = self.closing_ns = activity.closed_ns
        self.mark_changed()

    def mark_changed(self) -> None:
        """Determine its phase again after an observation; a classified transfer stays so."""
        self.version += 1
        if self.phase is Phase.CLASSIFIED:
            return
        is_ongoing = self._unclosed is not None and self.active_ns > max(self.closed_ns or 0, self.ended_until_ns)
        self.phase = Phase.OPEN if is_ongoing else Phase.ENDED

    def finish(self) -> None:
        """End it, even if not all threads closed the file."""
        self.phase = Phase.ENDED
        self.ended_until_ns = self.active_ns

    def adopt_mapping(self, polled: Transfer) -> None:
        """Adopt the touched bytes of a polled mapping: large folios come in without an event."""
        if polled.is_mapped and self.mapped_bytes < polled.mapped_bytes:
            self.mapping, self.mapped_bytes = polled, polled.mapped_bytes

    def adopt_polled(self, polled: Transfer) -> None:
        """Adopt what only polling shows: a name that the trace missed, file facts, the flags of the open."""
        if not self.path.startswith("/"):
            self.path = polled.path
            self.earlier_path = polled.earlier_path
            self.version += 1
        self.append = self.append or polled.append
        if polled.fact is not None and polled.fact_at_ns >= self.fact_at_ns:
            self.fact, self.fact_at_ns = polled.fact, polled.fact_at_ns

    def rename(self, path: str, at_ns: int | None = None) -> None:
        """Set the new name of its file, or the first known one."""
        earlier_path = self.earlier_path if not self.path.startswith("/") else self.path
        Transfer.rename(self, path, self.name_given_ns or at_ns)
        self.earlier_path = earlier_path
        self.version += 1

    def _add_point(self, earlier: FileActivity | None, activity: FileActivity, before_ns: int) -> None:
        points = self.points
        if activity.bytes > (earlier.bytes if earlier else 0):
            since_ns = start_of_new_ns(earlier, activity, before_ns) if earlier else activity.first_ns
            if len(points) >= _MAX_POINTS:
                by_thread = sorted(points, key=lambda one: (one.tid or 0, one.start_ns))
                points = [merge_movements(*pair) for pair in zip(by_thread[::2], by_thread[1::2], strict=True)]
            points.append(measure_movement(earlier, activity, min(since_ns, activity.last_ns)))
        self._points = points

    def mark_classified(self) -> None:
        """Mark it as classified: only its sums and edges are needed from now on."""
        self.phase = Phase.CLASSIFIED
        self._sums = self.operations
        self._unclosed = self._closed = self._points = self._totals = self.end_offset = None
        self.estimate_inputs = None

    @property
    def operations(self) -> OperationSums | None:
        """The sums over its operations, computed once for each change; None before the first one."""
        if self._sums is None and self._totals is not None:
            self._sums = self._totals.sums()
        return self._sums

    @property
    def points(self) -> list[Movement]:
        """Times and offsets of its bytes, until it is classified."""
        if self._points is not None:
            return self._points
        return [measure_movement(None, one, min(one.first_ns, one.last_ns)) for one in self.threads if one.bytes > 0]

    @property
    def error(self) -> int | None:
        """The errno of the call that ended its writing, or of a failed sync or close after which data may be lost."""
        is_whole = self.fact is not None and self.fact.is_complete
        return self.storing_error or (sums.error if (sums := self.operations) is not None and not is_whole else None)

    @property
    def threads(self) -> Collection[FileActivity]:
        """The sessions of its threads, until it is classified."""
        return [*map(_unpack, self._closed or ()), *(self._unclosed or {}).values()]

    @property
    def faulted_bytes(self) -> int:
        """The bytes read by page faults, until it is classified."""
        sums = self.operations
        return sums.faulted_bytes if sums is not None and self.phase is not Phase.CLASSIFIED else 0

    @property
    def is_mapped(self) -> bool:
        """Its bytes were transferred by page faults."""
        return (sums := self.operations) is not None and sums.faulted_bytes > 0

    def last_data_ns(self, clock: RecordingClock) -> int:  # noqa: ARG002 - its operations have monotonic times
        """Return when the last byte was transferred."""
        sums = self.operations
        return self.end_ns if sums is None else sums.last_ns

    def written_ns(self, clock: RecordingClock) -> int:  # noqa: ARG002 - as above
        """Return when its last write ended."""
        return self.active_ns

    @property
    def synced_ns(self) -> int | None:
        """When its own process had synced it, as a part of its save."""
        sums = self.operations if self.syncs else None
        if sums is None:
            return None
        return max((end for _, end in self.syncs if end <= sums.last_ns + COMMIT_NS), default=None)

    @property
    def durable_ns(self) -> int | None:
        """When all its data was on stable storage: the end of a sync that started after the last write.

        After a failed sync the next one succeeds even if the pages were lost (mm/filemap.c, errseq_t).
        """
        if self.storing_error is not None or not (self.syncs or self.other_syncs):
            return None
        return min((end for start, end in (*self.syncs, *self.other_syncs) if start >= self.active_ns), default=None)

    @property
    def last_sign_ns(self) -> int:
        """The latest operation, sync, close or rename."""
        synced_ns = self.syncs[-1][1] if self.syncs else 0
        return max(self.active_ns, synced_ns, self.closed_ns or 0, self.name_given_ns or 0)

    def edges(self) -> tuple[int, int]:
        """Return (start, end): from its creation or first operation to its last operation, sync, close or rename."""
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
