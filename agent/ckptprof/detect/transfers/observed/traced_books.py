"""From traced sessions to transfers: one process, one file, one direction, one open."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from ckptprof.detect.tolerances import CONCURRENT_NS, FEW, MAX_FILES, NEARLY_ALL, PATIENCE_NS, POLL_INTERVAL_NS
from ckptprof.detect.transfers.model.operations import OperationSums, start_of_new_ns, subtract
from ckptprof.detect.transfers.model.phase import Phase
from ckptprof.detect.transfers.model.traced_transfer import TracedTransfer
from ckptprof.detect.transfers.observed.file_events import FileEvents, TransferSet, is_sync_of_all, remove_from
from ckptprof.detect.world.bounded import Bounded
from ckptprof.detect.world.keys import FileKey, ProcessKey
from ckptprof_collectors.samples import FileActivity, FileLifeEvent


@dataclass(slots=True)
class _KnownSession:
    last_sample: FileActivity  # its last sample
    transfer: TracedTransfer
    offset_sample: FileActivity | None = None  # the part that belongs to an earlier transfer
    since_ns: int = 0  # start of the part after it


class TracedTransfers:
    """Follows the sessions of all processes; only changed ones cost time."""

    def __init__(self) -> None:
        self._sessions: Bounded[str, _KnownSession] = Bounded(8 * MAX_FILES)  # not closed
        self._exited: dict[ProcessKey, int] = {}  # processes that have ended, and when
        self._files: dict[tuple[FileKey, bool], tuple[TracedTransfer, ...]] = {}  # the earliest first
        self._open: TransferSet = {}  # the least recently active first
        self._by_process: dict[ProcessKey, TransferSet] = {}
        self._unsynced: dict[ProcessKey, dict[int, TransferSet]] = {}  # by device: what a sync of all may store
        self._newly_ended: TransferSet = {}
        self._ended: TransferSet = {}
        self.file_events = FileEvents()

    def __bool__(self) -> bool:
        """Whether a transfer was traced recently."""
        return bool(self._ended) or bool(self._open)

    def ingest(self, activity: FileActivity, before_ns: int) -> None:
        """Ingest one sample of a session; `before_ns`: time of the frame before."""
        known = self._sessions.get(activity.session)
        if known is None:
            if activity.operations <= 0:
                return
            transfer = self._transfer_for(activity)
            known = self._sessions[activity.session] = _KnownSession(activity, transfer)
        elif activity.operations < known.last_sample.operations:
            return  # older than the known one
        part = self._part_of_transfer(known, activity, before_ns)
        if part is not None:
            self._ingest_part(known.transfer, part, before_ns)
        if activity.closed_ns is not None:
            del self._sessions[activity.session]

    def _part_of_transfer(self, known: _KnownSession, activity: FileActivity, before_ns: int) -> FileActivity | None:
        """Return the part of a session that belongs to its current transfer; None: there is none."""
        has_moved_on = activity.operations > known.last_sample.operations
        transfer = known.transfer
        is_classified = transfer.phase is Phase.CLASSIFIED
        if is_classified and not has_moved_on:
            return None
        reread_ns = _reread_start_ns(transfer, known.last_sample, activity, before_ns) if has_moved_on else None
        if has_moved_on and (
            is_classified or reread_ns is not None or _starts_again(transfer, known.last_sample, activity)
        ):
            known.offset_sample = known.last_sample
            known.since_ns = max(
                start_of_new_ns(known.last_sample, activity, before_ns), transfer.closed_ns or 0, reread_ns or 0
            )
            part = subtract(activity, known.offset_sample, known.since_ns)
            known.transfer = self._transfer_for(part, excluded=transfer)
        else:
            part = activity if (offset := known.offset_sample) is None else subtract(activity, offset, known.since_ns)
        known.last_sample = activity
        return part

    def _transfer_for(self, activity: FileActivity, excluded: TracedTransfer | None = None) -> TracedTransfer:
        """Return the transfer of a session, a new one if there is none; never the `excluded` one."""
        process, file = (activity.pid, activity.start_ticks), (activity.device, activity.inode)
        if siblings := self._by_process.get(process):
            process = next(reversed(siblings)).process  # one key for all of them
        transfers = self._files.get((file, activity.writes), ())
        last = next((one for one in reversed(transfers) if one.process == process), None)
        if last is not None:
            if last is not excluded and _continues(last, activity):
                return last
            if last.phase is Phase.OPEN:  # truncated, or started again, by another thread
                self._finish(last)
        transfer = TracedTransfer(
            process=process,
            file=file,
            writes=activity.writes,
            path=activity.path or f"(path not seen)/device {file[0]}/inode {file[1]}",
            first_ns=activity.first_ns,
            last_ns=activity.last_ns,
            before_ns=activity.first_ns,
            observed_by="trace",
            generation=activity.generation,
        )
        self._files[file, activity.writes] = (*transfers, transfer)
        self._by_process.setdefault(process, {})[transfer] = None
        self.file_events.adopt(transfer)
        return transfer

    def _ingest_part(self, transfer: TracedTransfer, part: FileActivity, before_ns: int) -> None:
        if part.last_ns >= transfer.active_ns:
            transfer.size = part.size
        transfer.ingest(part, before_ns)
        if transfer.writes:
            unsynced = self._unsynced.setdefault(transfer.process, {})
            unsynced.setdefault(transfer.file[0], {})[transfer] = None
        if part.path is not None and part.path not in (transfer.path, transfer.earlier_path):
            if not transfer.path.startswith("/"):  # it was not known yet
                transfer.path = part.path
                self.file_events.paths.add(transfer)
            else:
                self.file_events.rename(transfer, part.path)
        self._file_by_phase(transfer)

    def _file_by_phase(self, transfer: TracedTransfer) -> None:
        transfer.last_ns = transfer.last_sign_ns
        for book in (self._open, self._ended, self._newly_ended):
            book.pop(transfer, None)
        if transfer.phase is Phase.OPEN:
            self._open[transfer] = None
        elif transfer.phase is Phase.ENDED:
            self._finish(transfer)
        else:  # a late sync: it is not classified again
            self._ended[transfer] = None

    def _finish(self, transfer: TracedTransfer) -> None:
        transfer.finish()
        self._open.pop(transfer, None)
        self._newly_ended[transfer] = self._ended[transfer] = None

    def ingest_event(self, event: FileLifeEvent) -> None:
        """Ingest an event of a file, after the sessions of the same frame."""
        writers: tuple[TracedTransfer, ...] = ()
        if event.device is not None and event.inode is not None:
            writers = self._files.get(((event.device, event.inode), True), ())
        unsynced = self._unsynced.get((event.pid, event.start_ticks), {}) if is_sync_of_all(event) else {}
        relatives = [one for device, own in unsynced.items() if event.device in (None, device) for one in own]
        observed = self.file_events.ingest(event, writers, relatives)
        for transfer in observed:
            self._file_by_phase(transfer)
        synced = set(observed) if relatives else ()
        for transfer in relatives:  # thousands of files must not be searched for each event
            is_stored = transfer.durable_ns is not None and transfer not in synced
            if is_stored or transfer.phase is Phase.CLASSIFIED or len(transfer.syncs) >= FEW:
                del unsynced[transfer.file[0]][transfer]

    def record_close(self, transfer: TracedTransfer, at_ns: int) -> None:
        """Record a close observed by polling: not every thread's session reports it."""
        if transfer.phase is Phase.OPEN and at_ns >= transfer.active_ns:
            self._finish(transfer)

    def record_exit(self, process: ProcessKey, at_ns: int) -> None:
        """Record the end of a process; the last samples of its sessions may still arrive."""
        for transfer in self.transfers_of(process):
            if transfer in self._open:
                self._finish(transfer)
        if self._sessions:
            self._exited[process] = at_ns

    def take_ended(self, now_ns: int) -> list[TracedTransfer]:
        """Return the transfers that ended since the last call, and those without activity for long."""
        while self._open and now_ns - (transfer := next(iter(self._open))).last_ns >= PATIENCE_NS:
            self._finish(transfer)
        ended, self._newly_ended = list(self._newly_ended), {}
        return ended

    def is_active_since(self, since_ns: int) -> bool:
        """Return True if any open file was used after `since_ns`."""
        return bool(self._open) and next(reversed(self._open)).last_ns > since_ns

    def open_transfers(self) -> list[TracedTransfer]:
        """Return all transfers whose files are still open."""
        return list(self._open)

    def written(self) -> list[TracedTransfer]:
        """Return recent writes of all processes, classified or not."""
        return [one for one in (*self._ended, *self._open) if one.writes]

    def transfers_near(
        self, file: FileKey, low_ns: int, high_ns: int, process: ProcessKey | None = None
    ) -> Iterator[TracedTransfer]:
        """Yield the transfers of a file, in both directions, that roughly overlap a time; of one process or of all."""
        for writes in (True, False):
            for transfer in (one for one in self._files.get((file, writes), ()) if process in (None, one.process)):
                if transfer.edges()[0] - POLL_INTERVAL_NS <= high_ns and low_ns <= transfer.last_ns + POLL_INTERVAL_NS:
                    yield transfer

    def has_transfers(self, process: ProcessKey) -> bool:
        """Return True if a process has recent transfers."""
        return process in self._by_process

    def transfers_of(self, process: ProcessKey) -> list[TracedTransfer]:
        """Return the recent transfers of a process."""
        return list(self._by_process.get(process, ()))

    def forget_before(self, at_ns: int) -> None:
        """Drop the transfers that ended before `at_ns`."""
        for transfer in list(itertools.takewhile(lambda transfer: transfer.last_ns < at_ns, self._ended)):
            self._forget(transfer)
        for transfer in self._ended:
            if transfer.phase is Phase.CLASSIFIED:
                self.file_events.paths.remove(transfer)  # renames do not change classified transfers
        self.shrink(1.0)
        if exited := {process for process, ended_ns in self._exited.items() if ended_ns < at_ns}:
            for session in [key for key, known in self._sessions.items() if known.transfer.process in exited]:
                del self._sessions[session]
        for process in exited:
            del self._exited[process]
        self.file_events.forget_before(at_ns)

    def __len__(self) -> int:
        """Return the number of known transfers, open and ended."""
        return len(self._open) + len(self._ended)

    def shrink(self, share: float) -> None:
        """Retain the latest ended ones, up to a share of the bound; a waiting one stays, and retains no later ones."""
        excess = max(0, len(self._ended) - int(share * MAX_FILES))
        for transfer in list(itertools.islice(self._ended, excess)):
            if transfer.phase is Phase.CLASSIFIED:
                self._forget(transfer)

    def _forget(self, transfer: TracedTransfer) -> None:
        del self._ended[transfer]
        self._newly_ended.pop(transfer, None)
        remove_from(self._files, (transfer.file, transfer.writes), transfer)
        self._unsynced.get(transfer.process, {}).get(transfer.file[0], {}).pop(transfer, None)
        siblings = self._by_process.get(transfer.process, {})
        siblings.pop(transfer, None)
        if not siblings:
            self._by_process.pop(transfer.process, None)
            self._unsynced.pop(transfer.process, None)
        if transfer.phase is not Phase.CLASSIFIED:
            transfer.mark_classified()
        self.file_events.paths.remove(transfer)


def _continues(transfer: TracedTransfer, activity: FileActivity) -> bool:
    """Decide whether a new session belongs to the last transfer of its process, file and direction."""
    sums = transfer.operations
    if sums is None or transfer.phase is Phase.CLASSIFIED or transfer.generation != activity.generation:
        return False
    if transfer.phase is Phase.ENDED and (transfer.closed_ns is None or activity.first_ns >= transfer.closed_ns):
        ended_ns = sums.last_ns if transfer.closed_ns is None else transfer.closed_ns
        is_adjacent = activity.first_offset in (sums.high_offset, transfer.end_offset) and activity.first_offset > 0
        return is_adjacent and activity.first_ns - ended_ns <= CONCURRENT_NS
    if activity.first_ns <= sums.last_ns:
        return True
    if activity.writes and activity.size < sums.high_offset:
        return False  # truncated in between
    starts_again = activity.first_offset == sums.low_offset and _covers_range(sums)
    return not (starts_again and activity.first_ns - sums.last_ns > CONCURRENT_NS)


def _covers_range(sums: OperationSums) -> bool:
    """Return True if the transferred range has no gaps."""
    return sums.bytes >= NEARLY_ALL * (sums.high_offset - sums.low_offset)


def _starts_again(transfer: TracedTransfer, before: FileActivity, after: FileActivity) -> bool:
    """Recognise an unclosed session that rereads or rewrites its file, after the file was closed."""
    if not transfer.writes or transfer.phase is Phase.OPEN:
        return False
    if transfer.closed_ns is None or after.last_ns <= transfer.closed_ns:
        return False
    sums = transfer.operations
    return sums is not None and _covers_range(sums) and after.high_offset <= before.high_offset


def _reread_start_ns(transfer: TracedTransfer, before: FileActivity, after: FileActivity, before_ns: int) -> int | None:
    """Return when a thread started to reread what it had read or mapped, after a pause; None: it did not.

    The kernel's session continues until a close: unmapping has no event, and a read by calls after a pause means that
    the file was opened again.
    """
    start_ns = min(before_ns, after.last_ns - max(0, (after.call_ns or 0) - (before.call_ns or 0)))
    if transfer.writes or start_ns - transfer.active_ns <= CONCURRENT_NS or (sums := transfer.operations) is None:
        return None
    mapped = sums.faulted_bytes * 2 > sums.bytes and after.faulted_bytes == before.faulted_bytes
    is_reread = mapped or (_covers_range(sums) and after.high_offset <= before.high_offset)
    return start_ns if is_reread else None
