"""All transfers, polled and traced, with the facts of their files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ckptprof.detect.tolerances import COMMIT_NS, LATE_TICK_NS, POLL_INTERVAL_NS, STAMP_TOLERANCE_NS
from ckptprof.detect.transfers.estimates import TransferEstimates
from ckptprof.detect.transfers.file_facts import FileFacts
from ckptprof.detect.transfers.model.phase import Phase
from ckptprof.detect.transfers.model.traced_transfer import TracedTransfer
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.observed.file_events import is_temporary
from ckptprof.detect.transfers.observed.openings import FileOpenings
from ckptprof.detect.transfers.observed.polled_transfers import PolledTransfers
from ckptprof.detect.transfers.observed.sent_transfers import SentTransfers
from ckptprof.detect.transfers.observed.traced_books import TracedTransfers
from ckptprof.detect.transfers.recent_files import RecentTransfers, Removals, SavedFiles, Writeback
from ckptprof.detect.transfers.unobserved_reads import find_unobserved_reads
from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.detect.world.keys import FileKey, ProcessKey
from ckptprof.detect.world.world import World
from ckptprof.frameworks.file_names import parse_name
from ckptprof.model import Level
from ckptprof_collectors.samples import FileActivity, FileEvent, FileFact, FileLifeEvent, FileScan, ProcessExit

QUIET_NS = 2_600_000_000  # of a candidate, then it is classified: longer than until the sampler's second sample
_INFERRED = ("directory", "opening")  # the process was not observed with the file: credited by bytes and times


class TransferTracker:
    """Open transfers, ended ones that wait for their decision, and recent ones. Times are CLOCK_MONOTONIC."""

    def __init__(self, world: World, saved_paths: tuple[str, ...] = ()) -> None:
        self._world = world
        self._is_traced = world.header.level == Level.TRACE.value
        self.saved = SavedFiles(saved_paths)
        self.openings = FileOpenings()
        self.polled = PolledTransfers(world, self.openings)
        self.traced = TracedTransfers()
        self.sent = SentTransfers(world)
        self.facts = FileFacts(world, self.traced, self.openings)
        self.writeback = Writeback()
        self.removals = Removals(world.jobs)
        self.recent = RecentTransfers(self.polled, self.traced)
        self.estimates = TransferEstimates(world, self.openings, self.traced, self.recent)
        self.waiting: list[Transfer] = []  # ended, not classified yet
        self._polled_open: list[Transfer] = []  # without traced counterpart
        self._closed_files: set[FileKey] = set()  # after writes, since the last update
        self._frame_ns = world.header.at_ns

    @property
    def active(self) -> bool:
        """Whether a transfer is in progress that may become a checkpoint."""
        since_ns = self._frame_ns - QUIET_NS
        return bool(self.waiting or self.polled.open_transfers() or self.traced.is_active_since(since_ns))

    def ingest(self, samples: FrameSamples, at_ns: int) -> None:
        """Ingest a frame's samples of files, after the world has."""
        self._ingest_events(samples.by_kind(FileEvent))
        for scan in samples.by_kind(FileScan):
            self.polled.ingest(at_ns, scan)
        for activity in samples.by_kind(FileActivity):
            self.traced.ingest(activity, self._frame_ns)
        for life in samples.by_kind(FileLifeEvent):
            self.traced.ingest_event(life)
            if life.kind == "unlinked":
                by, is_guessed = (life.pid, life.start_ticks), life.is_guessed
                self.removals.record(life.at_ns, life.path, by, life.duration_ns, is_guessed=is_guessed)
        self.sent.ingest(samples)
        self._frame_ns = at_ns
        for exit_sample in samples.by_kind(ProcessExit):
            process = (exit_sample.pid, exit_sample.start_ticks)
            self.polled.close_all(process, at_ns)
            self.traced.record_exit(process, at_ns)
        for fact in samples.by_kind(FileFact):
            self.writeback.record(at_ns, fact)
            self.facts.record(at_ns, fact)
            if fact.is_missing and not self._is_traced:  # a temporary name goes with a rename, too
                self.removals.record(at_ns, fact.path, is_guessed=is_temporary(fact.path))

    def _ingest_events(self, events: Sequence[FileEvent]) -> None:
        """Ingest events of watched folders; a file is followed into one, under any earlier name.

        A trace shows renames itself. A file with one step's name never gets that of another: it is deleted and its
        inode reused.
        """
        renamed = [event for event in events if event.kind == "renamed"]
        written: dict[FileKey, list[Transfer]] = {(event.device, event.inode): [] for event in renamed}
        for transfer in (*self.waiting, *self.polled.ended, *self.polled.open_transfers()) if renamed else ():
            if transfer.file in written and transfer.writes and transfer.operations is None:
                written[transfer.file].append(transfer)
        for event in events:
            self.openings.record(event)
            if event.kind == "deleted" and not self._is_traced:
                self.removals.record(event.at_ns, event.path)
        self._closed_files.update((one.device, one.inode) for one in events if one.kind == "closed-written")
        for event in renamed:
            step = parse_name(event.path).step
            for transfer in written[event.device, event.inode]:
                if transfer.path != event.path and not _is_moved_away(transfer, event.at_ns, step):
                    transfer.rename(event.path, event.at_ns)

    def update(self, now_ns: int) -> None:
        """Update waiting and open transfers."""
        self.polled.close_unpolled(now_ns, QUIET_NS)
        ended = self.polled.take_ended()
        self.waiting.extend(ended)
        self.recent.record(ended)
        polled_open = self._polled_open = self._prefer_traced(now_ns)
        self._merge_truncated(now_ns)
        known_ids = {id(transfer) for transfer in self.waiting}
        self.waiting = self.facts.apply(self.waiting, polled_open, now_ns)
        self.recent.record(one for one in self.waiting if id(one) not in known_ids)  # found in their folders
        closed, self._closed_files = self._closed_files, set()
        for transfer in (*ended, *(one for one in self.waiting if one.file in closed)):
            is_unsure = transfer.samples and (transfer.closed_ns is None or transfer.fact is None)
            if transfer.writes and is_unsure and (closing := self.openings.closing_of(transfer)) is not None:
                transfer.set_closing(closing.at_ns, closing.size)
        if not self._is_traced:  # else every read was counted, with its process
            known = [*self.waiting, *polled_open]
            found = find_unobserved_reads(self.openings, known, self._world, self.saved, now_ns)
            self.waiting += found
            self.recent.record(found)

    def _merge_truncated(self, now_ns: int) -> None:
        """Merge what a process wrote to a file, truncated and wrote again without closing it."""
        closed_ns: dict[str, int] | None = None
        joined: set[int] = set()
        known = (*self.waiting, *self.polled.open_transfers())
        for later, earlier in [(one, before) for one in known if (before := one.before_truncation) is not None]:
            if now_ns - later.first_ns < LATE_TICK_NS:  # inotify events arrive later
                continue
            closed_ns = self.openings.first_close_by_folder() if closed_ns is None else closed_ns
            stayed_open = self.openings.stayed_open(earlier, later.first_ns, closed_ns)
            later.resolve_truncation(stayed_open=stayed_open)
            if stayed_open:
                joined.add(id(earlier))
        if joined:
            self.waiting = [one for one in self.waiting if id(one) not in joined]

    def still_open(self) -> list[Transfer]:
        """Return what was open at the last update."""
        return [*self._polled_open, *self.traced.open_transfers()]

    def _prefer_traced(self, now_ns: int) -> list[Transfer]:
        """Replace polled transfers by traced ones of the same files; return the open ones that remain."""
        polled_open = self.polled.open_transfers()
        if not self.traced:
            return polled_open
        polled_open = _unexplained(polled_open, self.traced)
        self.waiting = _unexplained(self.waiting, self.traced)
        ended = self.traced.take_ended(now_ns)
        if ended:
            waiting = {id(transfer) for transfer in self.waiting}
            self.waiting += [transfer for transfer in ended if id(transfer) not in waiting]
        # one that was opened again is open again
        self.waiting = [one for one in self.waiting if one.phase is Phase.ENDED]
        return polled_open

    def written_paths(self, job: str, paths: Collection[str]) -> set[str]:
        """Return which of some files the job was observed writing, or any process by the file system's facts."""
        own = (process for process in self._world.histories if self._world.jobs.job_of(process) == job)
        transfers = (transfer for process in own for transfer in self.traced.transfers_of(process))
        written = {transfer.path for transfer in transfers if transfer.writes and transfer.path in paths}
        return written | {path for path in self.facts.paths() if path in paths}

    def observed_since_ns(self, processes: Iterable[ProcessKey]) -> int:
        """Return since when the transfers of some processes are known: the start of the recording, or later."""
        since_ns = self._world.header.at_ns
        if self._is_traced:
            return since_ns
        first = [self._world.histories[process].first_ns for process in processes]
        return max(since_ns, min(filter(None, first), default=since_ns))

    def was_written_since(self, path: str, since_ns: int) -> bool:
        """Return True if a file fact shows a write to the file at that time or later."""
        changed_ns = self.facts.modified_ns(path)
        return changed_ns is not None and self._world.clock.mono(changed_ns) >= since_ns - STAMP_TOLERANCE_NS

    def is_nameless(self, transfer: Transfer) -> bool:
        """Return True if its file had no name while it had content; at trace by its observed deletion."""
        if isinstance(transfer, TracedTransfer) and transfer.created_ns is not None:
            removed_ns = self.removals.removed_ns(transfer.path, transfer.created_ns - 1)
            if removed_ns is not None and removed_ns <= transfer.first_ns:
                return True
        return transfer.is_nameless

    def in_use(self) -> list[tuple[ProcessKey, int]]:
        """Return the processes with open files, and since when their activity is still needed."""
        return [(transfer.process, transfer.first_ns - COMMIT_NS) for transfer in self.polled.open_transfers()]

    def oldest_ns(self, now_ns: int) -> int:
        """Return since when waiting transfers still need data."""
        first_ns = min((transfer.first_ns for transfer in self.waiting), default=now_ns)
        return min(first_ns, self.sent.oldest_ns(now_ns)) - COMMIT_NS

    def forget_before(self, at_ns: int, counted_since_ns: int) -> None:
        """Drop what is older; `counted_since_ns`: since when process counters are retained."""
        self.traced.forget_before(at_ns)
        self.facts.forget_before(at_ns)
        self.recent.forget_before(at_ns)
        self.openings.forget_before(min(at_ns, counted_since_ns))


def _is_moved_away(transfer: Transfer, at_ns: int, step: int | None) -> bool:
    """Recognise a file that already had its final name: it gets that of another step, or late, as in log rotation.

    In a hidden folder none has: its number may be that of a process.
    """
    name, is_late = parse_name(transfer.path), at_ns - transfer.last_ns > POLL_INTERVAL_NS
    is_other = is_late or (None not in {name.step, step} and name.step != step)
    return is_other and "/." not in transfer.path and not is_temporary(transfer.path)


def _unexplained(transfers: Sequence[Transfer], traced_transfers: TracedTransfers) -> list[Transfer]:
    """Return the polled transfers without a traced counterpart; the others pass on what only samples show."""
    remaining = []
    for transfer in transfers:
        traced = [] if isinstance(transfer, TracedTransfer) else _explaining(transfer, traced_transfers)
        if not traced:
            remaining.append(transfer)
        for counted in (one for one in traced if one.phase is not Phase.CLASSIFIED):
            counted.adopt_mapping(transfer)
            if counted.process == transfer.process and counted.writes == transfer.writes:
                counted.adopt_polled(transfer)
                if transfer.closed_ns is not None:
                    traced_transfers.record_close(counted, transfer.closed_ns)
    return remaining


def _explaining(polled: Transfer, traced_transfers: TracedTransfers) -> list[TracedTransfer]:
    """Return the traced transfers of its file and time: of its own process, or of any if it was only credited."""
    by_whom = None if polled.observed_by in _INFERRED and not polled.is_mapped else polled.process
    nearby = traced_transfers.transfers_near(polled.file, *polled.span, by_whom)
    if polled.is_mapped:
        return [exact for exact in nearby if exact.faulted_bytes > 0]
    return [exact for exact in nearby if by_whom or exact.process == polled.process or exact.writes == polled.writes]
