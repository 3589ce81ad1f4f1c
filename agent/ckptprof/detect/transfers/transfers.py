"""Everything that is known of who moved what: polled and traced, joined with what the file systems say."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ckptprof.detect.tolerances import COMMIT_NS, LATE_TICK_NS, STAMP_NS
from ckptprof.detect.transfers.estimates import Estimates
from ckptprof.detect.transfers.file_facts import FileFacts
from ckptprof.detect.transfers.model.phase import Phase
from ckptprof.detect.transfers.model.traced import TracedTransfer
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.observed.openings import Openings
from ckptprof.detect.transfers.observed.polled_transfers import PolledTransfers
from ckptprof.detect.transfers.observed.sent_transfers import SentTransfers
from ckptprof.detect.transfers.observed.traced_transfers import TracedTransfers
from ckptprof.detect.transfers.remembered import RecentTransfers, Removals, SavedFiles, Writeback
from ckptprof.detect.transfers.unseen_reads import unseen_reads
from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.detect.world.keys import FileKey, ProcessKey
from ckptprof.detect.world.world import World
from ckptprof.frameworks.names import read_name
from ckptprof.model import Level
from ckptprof_collectors.samples import FileActivity, FileEvent, FileFact, FileLifeEvent, FileScan, ProcessExit

QUIET_NS = 2_600_000_000  # after its last sign of life a candidate is judged: later than the sampler's second look
_INFERRED = ("directory", "opening")  # nobody saw the process at the file: it is credited by bytes and times


class Transfers:
    """What is open, what is over and waits to be judged, and what was moved of late. Times are CLOCK_MONOTONIC."""

    def __init__(self, world: World, saved_paths: tuple[str, ...] = ()) -> None:
        self._world = world
        self._is_traced = world.header.level == Level.TRACE.value
        self.saved = SavedFiles(saved_paths)
        self.openings = Openings()
        self.polled = PolledTransfers(world, self.openings)
        self.traced = TracedTransfers()
        self.sent = SentTransfers(world)
        self.facts = FileFacts(world, self.traced, self.openings)
        self.writeback = Writeback()
        self.removals = Removals(world.jobs)
        self.recent = RecentTransfers(self.polled, self.traced)
        self.estimates = Estimates(world, self.openings, self.traced, self.recent)
        self.waiting: list[Transfer] = []  # over, and not judged yet
        self._polled_open: list[Transfer] = []  # of it, what no trace tells of
        self._frame_ns = world.header.at_ns

    @property
    def active(self) -> bool:
        """Whether something is going on that may become a checkpoint."""
        return (
            bool(self.waiting) or bool(self.polled.open_transfers()) or self.traced.is_moving(self._frame_ns - QUIET_NS)
        )

    def take(self, samples: FrameSamples, at_ns: int) -> None:
        """Take what a frame tells of files; the world is to take the frame before."""
        self._take_events(samples.of(FileEvent))
        for scan in samples.of(FileScan):
            self.polled.scan(at_ns, scan)
        for activity in samples.of(FileActivity):
            self.traced.take(activity, self._frame_ns)
        for life in samples.of(FileLifeEvent):
            self.traced.observe(life)
            self.removals.note(life)
        self.sent.take(samples)
        self._frame_ns = at_ns
        for gone in samples.of(ProcessExit):
            process = (gone.pid, gone.start_ticks)
            self.polled.end(process, at_ns)
            self.traced.end(process, at_ns)
        for fact in samples.of(FileFact):
            self.writeback.note(at_ns, fact)
            self.facts.note(at_ns, fact)

    def _take_events(self, events: Sequence[FileEvent]) -> None:
        """Take what was heard of watched folders; a file is followed into one, under whatever name it was written.

        A trace tells of that itself. A file that has the name of one step never gets that of another: it is deleted,
        and its inode is the next one's.
        """
        renamed = [event for event in events if event.kind == "renamed"]
        written: dict[FileKey, list[Transfer]] = {(event.device, event.inode): [] for event in renamed}
        for transfer in (*self.waiting, *self.polled.done, *self.polled.open_transfers()) if renamed else ():
            if transfer.file in written and transfer.writes and transfer.operations is None:
                written[transfer.file].append(transfer)
        for event in events:
            self.openings.note(event)
        for event in renamed:
            step = read_name(event.path).step
            for transfer in written[event.device, event.inode]:
                if transfer.path != event.path and not _is_of_other_step(transfer.path, step):
                    transfer.rename(event.path)

    def update(self, now_ns: int) -> None:
        """Bring what waits, and what is still open, up to date."""
        self.polled.close_idle(now_ns, QUIET_NS)
        over = self.polled.take_done()
        self.waiting.extend(over)
        self.recent.note(over)
        polled_open = self._polled_open = self._without_traced(now_ns)
        self._join_retries(now_ns)
        noted = {id(transfer) for transfer in self.waiting}
        self.waiting = self.facts.attach(self.waiting, polled_open, now_ns)
        self.recent.note([transfer for transfer in self.waiting if id(transfer) not in noted])  # found in their folders
        if not self._is_traced:  # else every reading was counted, and by whom
            known = [*self.waiting, *polled_open]
            found = unseen_reads(self.openings, known, self._world, self.saved, now_ns)
            self.waiting += found
            self.recent.note(found)

    def _join_retries(self, now_ns: int) -> None:
        """Take as one what a process wrote of a file, emptied and wrote anew while it had it open."""
        closed_ns: dict[str, int] | None = None
        joined: set[int] = set()
        for later in (*self.waiting, *self.polled.open_transfers()):
            earlier = later.retried
            if earlier is None or now_ns - later.first_ns < LATE_TICK_NS:  # what was heard comes later
                continue
            closed_ns = self.openings.first_closed_ns() if closed_ns is None else closed_ns
            stayed_open = self.openings.stayed_open(earlier, later.first_ns, closed_ns)
            later.settle_retried(stayed_open=stayed_open)
            if stayed_open:
                joined.add(id(earlier))
        if joined:
            self.waiting = [one for one in self.waiting if id(one) not in joined]

    def still_open(self) -> list[Transfer]:
        """Return what was not over at the last update."""
        return [*self._polled_open, *self.traced.open_transfers()]

    def _without_traced(self, now_ns: int) -> list[Transfer]:
        """Take what the trace saw in place of what polling saw of the same; return the open transfers that are left."""
        polled_open = self.polled.open_transfers()
        if not self.traced:
            return polled_open
        polled_open = _unexplained(polled_open, self.traced)
        self.waiting = _unexplained(self.waiting, self.traced)
        done = self.traced.take_done(now_ns)
        if done:
            waiting = {id(transfer) for transfer in self.waiting}
            self.waiting += [transfer for transfer in done if id(transfer) not in waiting]
        # one that was opened again goes back to those that are open
        self.waiting = [one for one in self.waiting if one.phase is Phase.OVER]
        return polled_open

    def written_of(self, job: str, paths: Collection[str]) -> set[str]:
        """Return which of some files a job was seen writing of late, or somebody, as far as the file system tells."""
        own = (process for process in self._world.histories if self._world.jobs.job_of(process) == job)
        transfers = (transfer for process in own for transfer in self.traced.moved_by(process))
        written = {transfer.path for transfer in transfers if transfer.writes and transfer.path in paths}
        return written | {path for path in self.facts.paths() if path in paths}

    def seen_since_ns(self, processes: Iterable[ProcessKey]) -> int:
        """Return from when on what some processes moved is known: since the watch began, or they were first counted."""
        since_ns = self._world.header.at_ns
        if self._is_traced:
            return since_ns
        first = [self._world.histories[process].first_ns for process in processes]
        return max(since_ns, min(filter(None, first), default=since_ns))

    def is_changed(self, path: str, since_ns: int) -> bool:
        """Return whether the file system said of a file that it was written at that time or later."""
        changed_ns = self.facts.modified_ns(path)
        return changed_ns is not None and self._world.clock.mono(changed_ns) >= since_ns - STAMP_NS

    def is_nameless(self, transfer: Transfer) -> bool:
        """Return whether its file had no name while anything was in it; at trace its deletion was seen."""
        if isinstance(transfer, TracedTransfer) and transfer.created_ns is not None:
            removed_ns = self.removals.removed_ns(transfer.path, transfer.created_ns - 1)
            if removed_ns is not None and removed_ns <= transfer.first_ns:
                return True
        return transfer.is_nameless

    def in_use(self) -> list[tuple[ProcessKey, int]]:
        """Return the processes with files open, and from when on what they did is still asked for."""
        return [(transfer.process, transfer.first_ns - COMMIT_NS) for transfer in self.polled.open_transfers()]

    def oldest_ns(self, now_ns: int) -> int:
        """Return from when on something is still asked for by what waits."""
        first_ns = min((transfer.first_ns for transfer in self.waiting), default=now_ns)
        return min(first_ns, self.sent.oldest_ns(now_ns)) - COMMIT_NS

    def forget_before(self, at_ns: int, counted_since_ns: int) -> None:
        """Drop what is older; `counted_since_ns` is from when on the counters of processes are kept."""
        self.traced.forget_before(at_ns)
        self.facts.forget_before(at_ns)
        self.recent.forget_before(at_ns)
        self.openings.forget_before(min(at_ns, counted_since_ns))


def _is_of_other_step(path: str, step: int | None) -> bool:
    """Return whether a file has its last name already, and that tells another step than this.

    In a hidden folder nothing has: its number may be that of a process.
    """
    name = read_name(path)
    return not name.temporary and "/." not in path and None not in {name.step, step} and name.step != step


def _unexplained(transfers: Sequence[Transfer], book: TracedTransfers) -> list[Transfer]:
    """Return those that the traced ones do not explain: those are exact, what looks know besides goes to them."""
    left = []
    for transfer in transfers:
        traced = [] if isinstance(transfer, TracedTransfer) else _explaining(transfer, book)
        if not traced:
            left.append(transfer)
        for exact in (one for one in traced if one.phase is not Phase.JUDGED):
            exact.take_mapping(transfer)
            if exact.process == transfer.process and exact.writes == transfer.writes:
                exact.take_over(transfer)
                if transfer.closed_ns is not None:
                    book.close(exact, transfer.closed_ns)
    return left


def _explaining(polled: Transfer, book: TracedTransfers) -> list[TracedTransfer]:
    """Return the traced transfers of its file and time: its own process's, or anybody's if it was only credited."""
    by_whom = None if polled.seen_by in _INFERRED and not polled.is_mapped else polled.process
    near = book.near(polled.file, *polled.span, by_whom)
    if polled.is_mapped:
        return [exact for exact in near if exact.faulted_bytes > 0]
    return [exact for exact in near if by_whom or exact.process == polled.process or exact.writes == polled.writes]
