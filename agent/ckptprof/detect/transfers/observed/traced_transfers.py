"""From the sessions that the kernel counts to transfers: one process, one file, one direction, one opening."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from ckptprof.detect.tolerances import BESIDE_NS, FEW, LOOK_NS, MAX_FILES, NEARLY_ALL, PATIENCE_NS
from ckptprof.detect.transfers.model.operations import Operations, minus, since
from ckptprof.detect.transfers.model.phase import Phase
from ckptprof.detect.transfers.model.traced import TracedTransfer
from ckptprof.detect.transfers.observed.file_events import FileEvents, TransfersOf, is_of_all
from ckptprof.detect.world.bounded import Bounded
from ckptprof.detect.world.keys import FileKey, ProcessKey
from ckptprof_collectors.samples import FileActivity, FileLifeEvent


@dataclass(slots=True)
class _Session:
    raw: FileActivity  # its last sample
    transfer: TracedTransfer
    base: FileActivity | None = None  # what belongs to an earlier transfer
    since_ns: int = 0  # when what is beyond it began


class TracedTransfers:
    """Follows the sessions of all processes; only those that moved are looked at."""

    def __init__(self) -> None:
        self._sessions: Bounded[str, _Session] = Bounded(8 * MAX_FILES)  # that nobody closed
        self._gone: dict[ProcessKey, int] = {}  # processes that have ended, and when
        self._files: dict[tuple[FileKey, bool], TransfersOf] = {}
        self._open: dict[int, TracedTransfer] = {}  # by identity, those that moved longest ago first
        self._streams_of: dict[ProcessKey, dict[int, TracedTransfer]] = {}
        # what each process wrote of each device that a sync of everything may store, by identity
        self._unsynced: dict[ProcessKey, dict[int, dict[int, TracedTransfer]]] = {}
        self._done: dict[int, TracedTransfer] = {}
        self._over: dict[int, TracedTransfer] = {}
        self.lives = FileEvents()

    def __bool__(self) -> bool:
        """Whether anything was traced of late."""
        return bool(self._over) or bool(self._open)

    def take(self, activity: FileActivity, before_ns: int) -> None:
        """Take one sample of a session; `before_ns` is the time of the frame before."""
        known = self._sessions.get(activity.session)
        if known is None:
            if activity.operations <= 0:
                return
            transfer = self._transfer_for(activity)
            known = self._sessions[activity.session] = _Session(activity, transfer)
        elif activity.operations < known.raw.operations:
            return  # older than what is known
        part = self._part(known, activity, before_ns)
        if part is not None:
            self._give(known.transfer, part, before_ns)
        if activity.closed_ns is not None:
            del self._sessions[activity.session]

    def _part(self, known: _Session, activity: FileActivity, before_ns: int) -> FileActivity | None:
        """Return what the session did in its transfer, which is a new one if the last was over; None: nothing."""
        moved = activity.operations > known.raw.operations
        transfer = known.transfer
        is_judged = transfer.phase is Phase.JUDGED
        if is_judged and not moved:
            return None
        again_ns = _reads_again_ns(transfer, known.raw, activity, before_ns) if moved else None
        if moved and (is_judged or again_ns is not None or _begins_anew(transfer, known.raw, activity)):
            known.base = known.raw
            known.since_ns = max(since(known.raw, activity, before_ns), transfer.closed_ns or 0, again_ns or 0)
            part = minus(activity, known.base, known.since_ns)
            known.transfer = self._transfer_for(part, but=transfer)
        else:
            part = minus(activity, known.base, known.since_ns) if known.base is not None else activity
        known.raw = activity
        return part

    def _transfer_for(self, activity: FileActivity, but: TracedTransfer | None = None) -> TracedTransfer:
        """Return the transfer that a session belongs to, `but` not that one; a new one if there is none."""
        process, file = (activity.pid, activity.start_ticks), (activity.device, activity.inode)
        same = self._files.setdefault((file, activity.writes), {}).setdefault(process, [])
        if same:
            if same[-1] is not but and _continues(same[-1], activity):
                return same[-1]
            if same[-1].phase is Phase.OPEN:  # truncated, or begun again, by another thread
                self._finish(same[-1])
        transfer = TracedTransfer(
            process=process,
            file=file,
            writes=activity.writes,
            path=activity.path or f"(path not seen)/device {file[0]}/inode {file[1]}",
            first_ns=activity.first_ns,
            last_ns=activity.last_ns,
            before_ns=activity.first_ns,
            seen_by="trace",
            generation=activity.generation,
        )
        same.append(transfer)
        self._streams_of.setdefault(process, {})[id(transfer)] = transfer
        self.lives.adopt(transfer)
        return transfer

    def _give(self, transfer: TracedTransfer, part: FileActivity, before_ns: int) -> None:
        if part.last_ns >= transfer.active_ns:
            transfer.size = part.size
        transfer.take(part, before_ns)
        if transfer.writes:
            unsynced = self._unsynced.setdefault(transfer.process, {})
            unsynced.setdefault(transfer.file[0], {})[id(transfer)] = transfer
        if part.path is not None and part.path not in (transfer.path, transfer.earlier_path):
            if not transfer.path.startswith("/"):  # it was not known yet
                transfer.path = part.path
                self.lives.places.place(transfer)
            else:
                self.lives.rename(transfer, part.path)
        self._settle(transfer)

    def _settle(self, transfer: TracedTransfer) -> None:
        transfer.last_ns = transfer.last_sign_ns
        for book in (self._open, self._over, self._done):
            book.pop(id(transfer), None)
        if transfer.phase is Phase.OPEN:
            self._open[id(transfer)] = transfer
        elif transfer.phase is Phase.OVER:
            self._finish(transfer)
        else:  # a sync came late: nobody is to judge it again
            self._over[id(transfer)] = transfer

    def _finish(self, transfer: TracedTransfer) -> None:
        transfer.finish()
        self._open.pop(id(transfer), None)
        self._done[id(transfer)] = self._over[id(transfer)] = transfer

    def observe(self, event: FileLifeEvent) -> None:
        """Take an event of a file's life; the sessions of the same frame are to be learnt before."""
        writers: TransfersOf = {}
        if event.device is not None and event.inode is not None:
            writers = self._files.get(((event.device, event.inode), True), {})
        unsynced = self._unsynced.get((event.pid, event.start_ticks), {}) if is_of_all(event) else {}
        relatives = [one for device, own in unsynced.items() if event.device in (None, device) for one in own.values()]
        observed = self.lives.observe(event, writers, relatives)
        for transfer in observed:
            self._settle(transfer)
        synced = set(map(id, observed)) if relatives else ()
        for transfer in relatives:  # of thousands of files none is synced with each that follows
            is_stored = transfer.durable_ns is not None and id(transfer) not in synced
            if is_stored or transfer.phase is Phase.JUDGED or len(transfer.syncs) >= FEW:
                del unsynced[transfer.file[0]][id(transfer)]

    def close(self, transfer: TracedTransfer, at_ns: int) -> None:
        """Take note that polling saw the file closed: not every thread that used it tells so."""
        if transfer.phase is Phase.OPEN and at_ns >= transfer.active_ns:
            self._finish(transfer)

    def end(self, process: ProcessKey, at_ns: int) -> None:
        """Take note that a process has ended; the last samples of its sessions may still come."""
        for transfer in self.moved_by(process):
            if id(transfer) in self._open:
                self._finish(transfer)
        if self._sessions:
            self._gone[process] = at_ns

    def take_done(self, now_ns: int) -> list[TracedTransfer]:
        """Return the transfers that are over since the last call, and those that stand still for long."""
        while self._open:
            transfer = next(iter(self._open.values()))
            if now_ns - transfer.last_ns < PATIENCE_NS:
                break
            self._finish(transfer)
        done, self._done = list(self._done.values()), {}
        return done

    def is_moving(self, since_ns: int) -> bool:
        """Return whether any open file was used after that."""
        return bool(self._open) and next(reversed(self._open.values())).last_ns > since_ns

    def open_transfers(self) -> list[TracedTransfer]:
        """Return all transfers whose files are still open."""
        return list(self._open.values())

    def written(self) -> list[TracedTransfer]:
        """Return what was written of late, by whomever, judged or not."""
        return [one for one in (*self._over.values(), *self._open.values()) if one.writes]

    def near(
        self, file: FileKey, low_ns: int, high_ns: int, process: ProcessKey | None = None
    ) -> Iterator[TracedTransfer]:
        """Yield the transfers of a file, by that process or by all, in either direction, that overlap a time about."""
        for writes in (True, False):
            by_process = self._files.get((file, writes), {})
            of = by_process.values() if process is None else (by_process.get(process, ()),)
            for transfer in itertools.chain.from_iterable(of):
                if transfer.edges()[0] - LOOK_NS <= high_ns and low_ns <= transfer.last_ns + LOOK_NS:
                    yield transfer

    def has_moved(self, process: ProcessKey) -> bool:
        """Return whether a process did anything of late."""
        return process in self._streams_of

    def moved_by(self, process: ProcessKey) -> list[TracedTransfer]:
        """Return what a process did of late."""
        return list(self._streams_of.get(process, {}).values())

    def forget_before(self, at_ns: int) -> None:
        """Drop the transfers that were over before `at_ns`."""
        for transfer in list(itertools.takewhile(lambda transfer: transfer.last_ns < at_ns, self._over.values())):
            self._forget(transfer)
        for transfer in self._over.values():
            if transfer.phase is Phase.JUDGED:
                self.lives.places.forget(transfer)  # no renaming counts for what was judged
        self.cut(1.0)
        gone = {process for process, ended_ns in self._gone.items() if ended_ns < at_ns}
        for session in [key for key, known in self._sessions.items() if known.transfer.process in gone] if gone else ():
            del self._sessions[session]
        for process in gone:
            del self._gone[process]
        self.lives.forget_before(at_ns)

    def __len__(self) -> int:
        """Return how many transfers are known, open and over."""
        return len(self._open) + len(self._over)

    def cut(self, share: float) -> None:
        """Keep so many of the latest that are over, as a share of the bound; one that still waits keeps no others."""
        crowd = max(0, len(self._over) - int(share * MAX_FILES))
        for transfer in list(itertools.islice(self._over.values(), crowd)):
            if transfer.phase is Phase.JUDGED:
                self._forget(transfer)

    def _forget(self, transfer: TracedTransfer) -> None:
        del self._over[id(transfer)]
        self._done.pop(id(transfer), None)
        key = (transfer.file, transfer.writes)
        by_process = self._files[key]
        by_process[transfer.process].remove(transfer)
        if not by_process[transfer.process]:
            del by_process[transfer.process]
        if not by_process:
            del self._files[key]
        self._unsynced.get(transfer.process, {}).get(transfer.file[0], {}).pop(id(transfer), None)
        siblings = self._streams_of.get(transfer.process, {})
        siblings.pop(id(transfer), None)
        if not siblings:
            self._streams_of.pop(transfer.process, None)
            self._unsynced.pop(transfer.process, None)
        if transfer.phase is not Phase.JUDGED:
            transfer.judged()
        self.lives.places.forget(transfer)


def _continues(transfer: TracedTransfer, activity: FileActivity) -> bool:
    """Return whether a new session belongs to the transfer that was the last of its process, file and direction."""
    sums = transfer.operations
    if sums is None or transfer.phase is Phase.JUDGED or transfer.generation != activity.generation:
        return False
    if transfer.phase is Phase.OVER and (transfer.closed_ns is None or activity.first_ns >= transfer.closed_ns):
        ended_ns = sums.last_ns if transfer.closed_ns is None else transfer.closed_ns
        ends = {sums.high_offset, *(() if (last := transfer.last_session) is None else (last.end_offset,))}
        goes_on = activity.first_offset in ends and activity.first_offset > 0
        return goes_on and activity.first_ns - ended_ns <= BESIDE_NS
    if activity.first_ns <= sums.last_ns:
        return True
    if activity.writes and activity.size < sums.high_offset:
        return False  # truncated meanwhile
    again = activity.first_offset == sums.low_offset and _covers(sums)
    return not (again and activity.first_ns - sums.last_ns > BESIDE_NS)


def _covers(sums: Operations) -> bool:
    """Return whether all of the stretch that it was in was moved."""
    return sums.bytes >= NEARLY_ALL * (sums.high_offset - sums.low_offset)


def _begins_anew(transfer: TracedTransfer, before: FileActivity, after: FileActivity) -> bool:
    """Return whether a session that nobody closes goes over its file again, after the file itself was closed."""
    if not transfer.writes or transfer.phase is Phase.OPEN:
        return False
    if transfer.closed_ns is None or after.last_ns <= transfer.closed_ns:
        return False
    sums = transfer.operations
    return sums is not None and _covers(sums) and after.high_offset <= before.high_offset


def _reads_again_ns(transfer: TracedTransfer, before: FileActivity, after: FileActivity, before_ns: int) -> int | None:
    """Return when a thread began to read again what it had read or mapped, after a pause; None: it did not.

    The kernel's session goes on if nobody closed it: a mapping is let go of without a sign, and who reads by calls
    after a pause has opened the file again.
    """
    begun_ns = min(before_ns, after.last_ns - max(0, (after.call_ns or 0) - (before.call_ns or 0)))
    if transfer.writes or begun_ns - transfer.active_ns <= BESIDE_NS or (sums := transfer.operations) is None:
        return None
    mapped = sums.faulted_bytes * 2 > sums.bytes and after.faulted_bytes == before.faulted_bytes
    again = mapped or (_covers(sums) and after.high_offset <= before.high_offset)
    return begun_ns if again else None
