"""Estimates edges and bytes of transfers: by their operations where these were counted, else by their process's."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from ckptprof.detect.tolerances import (
    BESIDE_NS,
    LATE_NS,
    LITTLE_SHARE,
    PATIENCE_NS,
    STAMP_NS,
    TELLING_BYTES,
    WHOLE_SHARE,
    is_like,
)
from ckptprof.detect.transfers.edges import read_edges, write_edges
from ckptprof.detect.transfers.model.traced import TracedTransfer
from ckptprof.detect.transfers.model.transfer import NOTHING, Estimate, Transfer
from ckptprof.detect.transfers.moved_bytes import leapt_bytes_of, mapped_openings, part_bytes
from ckptprof.detect.transfers.observed.file_events import is_temporary
from ckptprof.detect.transfers.observed.openings import Openings
from ckptprof.detect.transfers.observed.traced_transfers import TracedTransfers
from ckptprof.detect.transfers.remembered import RecentTransfers, grown_span
from ckptprof.detect.transfers.staging import join_stages
from ckptprof.detect.world.keys import FileKey, ProcessKey
from ckptprof.detect.world.spans import Overlaps, Span
from ckptprof.detect.world.world import World
from ckptprof.frameworks.formats import COMPRESSED, file_format
from ckptprof_collectors.samples import OperationKind


def untangle(written: Iterable[Transfer]) -> None:
    """Let a file that a process wrote after another one begin after that: the file's birth is that of the first.

    Two that were seen at it at one time wrote it together.
    """
    last: dict[FileKey, Transfer] = {}
    polled = (transfer for transfer in written if not isinstance(transfer, TracedTransfer))
    for transfer in sorted(polled, key=lambda transfer: transfer.first_ns):
        before = last.get(transfer.file)
        was_over = before is not None and before.last_ns < transfer.first_ns
        if before is not None and before.closed_ns is not None and was_over and transfer.start_ns < before.end_ns:
            transfer.begin_after(before)
        last[transfer.file] = transfer


def is_nothing(transfer: Transfer) -> bool:
    """Return whether its name says that it is no checkpoint, and its first bytes do not say otherwise.

    What is written may be looked into later. Nobody looks into what is only read: a word for checkpoints must show it.
    """
    name, fact = transfer.name, transfer.fact
    if not name.never or name.commit:
        return False
    if name.framework is None:
        return True
    if fact is None:
        return not transfer.writes and not name.hint
    kind = file_format(fact.magic, transfer.path)
    return kind == COMPRESSED or kind not in name.framework.formats


class Estimates:
    """Makes the best estimate of the transfers that wait anew, as far as something was observed of them since."""

    def __init__(self, world: World, openings: Openings, traced: TracedTransfers, recent: RecentTransfers) -> None:
        self._recent = recent
        self._world = world
        self._openings = openings
        self._traced = traced
        # what each process touched by mappings, in all and by file: of thousands each asks for it in a round
        self._touched: dict[ProcessKey, tuple[Overlaps, dict[FileKey, list[TracedTransfer]]]] = {}

    def begin_round(self) -> None:
        """Take note that what was observed may be more than when the last estimate was made."""
        self._touched.clear()

    def estimate(self, transfer: Transfer) -> bool:
        """Estimate edges and bytes; return False if it carries nothing that could be of a checkpoint."""
        transfer.begin_round(is_open=False)
        state = self._state_of(transfer)
        if state is not None and state == transfer.estimated_from:
            transfer.conclude(transfer.estimate)
        else:
            is_counted = isinstance(transfer, TracedTransfer)
            transfer.take_name(state, temporary=is_counted and is_temporary(transfer.path))
            if is_nothing(transfer):
                return False
            if isinstance(transfer, TracedTransfer):
                transfer.conclude(self._counted(transfer))
            else:
                transfer.conclude(self._bracketed(transfer))
        return transfer.bytes > 0

    def _counted(self, transfer: TracedTransfer) -> Estimate:
        """Return (start, end, bytes) as the operations tell; pages of a mapping count once, however often it is opened.

        Large folios come in without an event each: the end of the mapping counts how many. Until then, if those are a
        part of it to speak of, memory shows when the last came in; else the last event does: a mapping is kept for as
        long as anything points into it.
        """
        start_ns, end_ns = transfer.edges()
        size, sums = transfer.counted_bytes, transfer.operations
        if transfer.writes or not transfer.faulted_bytes or sums is None:
            return start_ns, end_ns, size
        openings = mapped_openings(transfer, self._traced)
        earlier = itertools.takewhile(lambda other: other is not transfer, openings)
        if before := sum(other.faulted_bytes for other in earlier):
            return start_ns, end_ns, min(size, max(0, transfer.size - before))
        if sums.kinds & OperationKind.UNMAPPED:
            return start_ns, end_ns, size  # it has ended, and all its pages are counted
        history = self._world.histories.get(transfer.process)
        elsewhere = sum(other.counted_bytes for other in openings[1:])
        if transfer.mapping is None or history is None:  # it was gone before anybody looked
            return start_ns, end_ns, max(size, leapt_bytes_of(transfer) - elsewhere)
        edges = read_edges(transfer.mapping, history, self._openings, self._world.threads)
        elsewhere += self._touched_beside(transfer, edges)
        touched = part_bytes(transfer.mapping, history, edges) - elsewhere
        if size < WHOLE_SHARE * touched:
            end_ns = max(end_ns, edges[1])
        return start_ns, end_ns, max(size, touched)

    def _touched_beside(self, transfer: TracedTransfer, edges: Span) -> int:
        """Return what its process was seen to touch of other files meanwhile: its memory tells no file."""
        process = transfer.process
        if process not in self._touched:
            own = [one for one in self._traced.moved_by(process) if one.faulted_bytes]
            every = Overlaps(((one.first_ns, one.last_ns + 1), one.counted_bytes) for one in own)
            by_file: dict[FileKey, list[TracedTransfer]] = {}
            for one in own:
                by_file.setdefault(one.file, []).append(one)
            self._touched[process] = every, by_file
        every, by_file = self._touched[process]
        same = Overlaps(((one.first_ns, one.last_ns + 1), one.counted_bytes) for one in by_file.get(transfer.file, ()))
        frame = edges[0], edges[1] + 1
        return every.weight(frame) - same.weight(frame)

    def _bracketed(self, transfer: Transfer) -> Estimate:
        history = self._world.histories.get(transfer.process)
        if history is None:
            return NOTHING
        if transfer.writes:
            edges = write_edges(transfer, history, self._world, self._openings)
        else:
            edges = read_edges(transfer, history, self._openings, self._world.threads)
        return *edges, part_bytes(transfer, history, edges)

    def _state_of(self, transfer: Transfer) -> tuple[object, ...] | None:
        """Return what the estimate of a file depends on that was counted, or found by its times long enough ago.

        None: on more. Of tens of thousands of files none is estimated anew at each round.
        """
        if isinstance(transfer, TracedTransfer):
            return None if transfer.mapping is not None else (transfer.version,)
        last_ns, history = transfer.span[1], self._world.histories[transfer.process]
        if not transfer.is_credited or history.last_ns < last_ns + LATE_NS:
            return None
        fact = transfer.fact
        stamps = fact and (fact.size, fact.birth_ns, fact.modified_ns, fact.changed_ns)
        sent = self._world.threads.met_until(transfer.process, "close", last_ns)
        synced = self._world.threads.met_until(transfer.process, "sync", last_ns)
        return (transfer.path, transfer.first_ns, transfer.before_ns, transfer.last_ns, transfer.closed_ns, stamps,
                sent, synced)  # fmt: skip

    def await_sizes(self, waiting: Iterable[Transfer], now_ns: int) -> tuple[list[Transfer], list[Transfer]]:
        """Return (what still waits for its file system to say how large it is, the rest).

        A server gets no more than a minute. Then what its process wrote meanwhile, and to no other file, is its size.
        """
        unsized: list[Transfer] = []
        sized: list[Transfer] = []
        grown = _Grown(self._recent)
        for transfer in waiting:
            written = self._unsaid_bytes(transfer)
            if written and now_ns - transfer.last_ns < PATIENCE_NS:
                unsized.append(transfer)
                continue
            if written:
                grown.take_size(transfer, written)
            sized.append(transfer)
        return unsized, sized

    def _unsaid_bytes(self, transfer: Transfer) -> int:
        """Return what a process wrote while a file was open that is empty as far as polling saw; 0: it is not empty.

        A server gets what was written as late as in close(2), and asked for the size only later: what it said before
        tells nothing. Of a process whose calls are counted, a file is empty that none was counted of.
        """
        if isinstance(transfer, TracedTransfer) or not transfer.writes or transfer.is_mapped:
            return 0
        if self._traced.has_moved(transfer.process):
            return 0
        if transfer.fact is None:  # it may be deleted since
            size = max(transfer.size, self._openings.size_when_closed(transfer))
            transfer.take_size(size, said=transfer.is_size_said)
        elif transfer.fact.size or transfer.fact_at_ns >= (transfer.closed_ns or transfer.last_ns):
            return 0
        if transfer.size:
            return 0
        history = self._world.histories[transfer.process]
        written = history.wrote_bytes(transfer.before_ns - BESIDE_NS, transfer.span[1])
        return written if written >= TELLING_BYTES else 0

    def estimate_open(self, transfer: Transfer) -> bool:
        """Take what is known by now of one that goes on; return False if it is nothing of a checkpoint's."""
        transfer.begin_round(is_open=True)
        transfer.take_name(None)
        if is_nothing(transfer):
            return False
        transfer.conclude((transfer.first_ns, transfer.last_ns, transfer.counted_bytes or transfer.size))
        return True

    def join(self, written: list[Transfer], read: list[Transfer]) -> tuple[list[Transfer], list[Transfer]]:
        """Hold what a job wrote and read against each other; return it without stages and the reading of them."""
        untangle(written)
        self.divide(written)
        self.bound(read)
        return join_stages(written, read)

    def divide(self, written: list[Transfer]) -> None:
        """Give each of several processes that filled one file what it wrote, where their counters explain just that.

        Polled only. A file that was born meanwhile seems to be written whole by each of them.
        """
        by_file: dict[FileKey, list[Transfer]] = {}
        for transfer in written:
            if transfer.operations is None and not transfer.is_open and not transfer.is_mapped:
                by_file.setdefault(transfer.file, []).append(transfer)
        for own in by_file.values():
            if len({transfer.process for transfer in own}) < 2:
                continue
            moved = [self._world.histories[one.process].wrote_bytes(one.start_ns, one.end_ns + STAMP_NS) for one in own]
            size = max(transfer.stored_size for transfer in own)
            if sum(moved) >= WHOLE_SHARE * size and is_like(sum(moved), size):
                for transfer, wrote in zip(own, moved, strict=True):
                    transfer.take_away(max(0, transfer.bytes - max(1, wrote)))

    def bound(self, read: list[Transfer]) -> None:
        """Take from files what their process cannot have read of them: it read less in all than they seem to be.

        Polled only. Who seeks to a file's last piece stands near its end, as who read all of it does; the counters tell
        them apart.
        """
        by_process: dict[ProcessKey, list[Transfer]] = {}
        for transfer in read:
            if transfer.operations is None and not transfer.is_open and not transfer.mapped_bytes:
                by_process.setdefault(transfer.process, []).append(transfer)
        for process, own in by_process.items():
            history = self._world.histories[process]
            end_ns = max(transfer.end_ns for transfer in own)
            if len(own) < 2 or history.last_ns <= end_ns:
                continue  # what it read last was not counted
            over = sum(transfer.bytes for transfer in own)
            over -= history.returned_bytes(min(transfer.start_ns for transfer in own), end_ns + STAMP_NS)
            # nothing speaks for the reading of a file in which no position advanced, least of all a single look
            doubtful = [one for one in own if one.looks and one.looks[-1].position <= one.looks[0].position]
            for transfer in sorted(doubtful, key=lambda one: len(one.looks)) if over > 0 else ():
                taken = min(transfer.bytes - 1, over)
                transfer.take_away(taken)
                over -= taken


class _Grown:
    """What processes can have written of files that grew, with those that are given a size meanwhile."""

    def __init__(self, recent: RecentTransfers) -> None:
        self._recent = recent
        self._of: dict[ProcessKey, Overlaps] = {}
        self._sized: list[Transfer] = []  # few: each has a tenth of what its process wrote at least

    def take_size(self, transfer: Transfer, written: int) -> None:
        """Give a file what of the unsaid bytes no other file got; 0 if it is next to nothing.

        A job that says nothing may have an empty file open for its output all the time.
        """
        process, span = transfer.process, (transfer.before_ns - BESIDE_NS, transfer.span[1] + 1)
        if process not in self._of:
            self._of[process] = self._recent.grown(process)
        left = written - self._of[process].weight(span)
        left -= Overlaps(grown_span(one) for one in self._sized if one.process == process).weight(span)
        transfer.take_size(left if left >= max(TELLING_BYTES, LITTLE_SHARE * written) else 0, said=False)
        if transfer.size:
            self._sized.append(transfer)
