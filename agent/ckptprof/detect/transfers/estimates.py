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
    """Start a file's second writing after its first by that process: the birth is that of the first.

    Two transfers that overlap wrote it together.
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
    """Return whether its name excludes a checkpoint, and its first bytes do not contradict that.

    A written file may be inspected later. A file only read is not: its name needs a word for checkpoints.
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
    """The best estimates of waiting transfers, repeated only when an input has changed."""

    def __init__(self, world: World, openings: Openings, traced: TracedTransfers, recent: RecentTransfers) -> None:
        self._recent = recent
        self._world = world
        self._openings = openings
        self._traced = traced
        # what each process touched by mappings, in all and by file: of thousands each asks for it in a round
        self._touched: dict[ProcessKey, tuple[Overlaps, dict[FileKey, list[TracedTransfer]]]] = {}

    def begin_round(self) -> None:
        """Start a round: observations may have changed since the last one."""
        self._touched.clear()

    def estimate(self, transfer: Transfer) -> bool:
        """Estimate edges and bytes; return False if it has nothing of a checkpoint."""
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
        """Return (start, end, bytes) by operations; pages of a mapping count once, however often it is opened.

        Large folios come in without an event each; the end of the mapping counts them. Until then memory shows when the
        last came in, if they are a significant part; else the last event does: a mapping lives as long as any pointer
        into it.
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
        """Return the bytes of other files that the process touched in the same time: memory names no file."""
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
        """Return the inputs of an estimate that are final: counted, or stamped long enough ago. None: others matter.

        Tens of thousands of waiting files are not estimated again in each round.
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
        """Return (transfers whose file system has not reported a size yet, the rest).

        A server gets a minute. After that the size is what its process wrote in that time, and to no other file.
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
        """Return the bytes that a process wrote while polling found its open file empty; 0: it is not empty.

        A server may get the data as late as in close(2), and report the size later: earlier sizes are no evidence. If
        the calls of a process are counted, a file without a counted call is empty.
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
        """Estimate an open transfer from what is known; return False if it has nothing of a checkpoint."""
        transfer.begin_round(is_open=True)
        transfer.take_name(None)
        if is_nothing(transfer):
            return False
        transfer.conclude((transfer.first_ns, transfer.last_ns, transfer.counted_bytes or transfer.size))
        return True

    def join(self, written: list[Transfer], read: list[Transfer]) -> tuple[list[Transfer], list[Transfer]]:
        """Reconcile what a job wrote and read; return both without staging files and the reads of them."""
        untangle(written)
        self.divide(written)
        self.bound(read)
        return join_stages(written, read)

    def divide(self, written: list[Transfer]) -> None:
        """Give each process that filled one file the bytes it wrote, if their counters add up to the file.

        Polled only. A file born in that time seems to be written whole by each of them.
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
        """Remove bytes that a process cannot have read: its counters show less in all.

        Polled only. A seek to a file's last piece leaves the position near its end, as reading all of it does.
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
    """The bytes that processes can have written to files that grew, and the sizes assigned so far."""

    def __init__(self, recent: RecentTransfers) -> None:
        self._recent = recent
        self._of: dict[ProcessKey, Overlaps] = {}
        self._sized: list[Transfer] = []  # few: each has a tenth of what its process wrote at least

    def take_size(self, transfer: Transfer, written: int) -> None:
        """Assign a file the unreported bytes that no other file got; 0 if they are negligible.

        A silent job may have an empty output file open all the time.
        """
        process, span = transfer.process, (transfer.before_ns - BESIDE_NS, transfer.span[1] + 1)
        if process not in self._of:
            self._of[process] = self._recent.grown(process)
        left = written - self._of[process].weight(span)
        left -= Overlaps(grown_span(one) for one in self._sized if one.process == process).weight(span)
        transfer.take_size(left if left >= max(TELLING_BYTES, LITTLE_SHARE * written) else 0, said=False)
        if transfer.size:
            self._sized.append(transfer)
