"""Estimates the start, the end and the bytes of transfers, in each round that they wait.

Theory of operation. Two levels, two ways. Traced, every operation has a time and a size: the sums are the estimate.
Only mappings need more, for the kernel brings in large folios without an event each: until the mapping ends, the growth
of the process's memory shows how much came in. Polled, a sample shows a position and a size twice a second or less, and
the counters of the process show all its bytes, of all its files. `edges` narrows the time within the samples by the
file's stamps, by inotify and by threads observed in a call; `transferred_bytes` limits the bytes by position, size and
counters.

Then a job's transfers are compared, for counters name no file. Several processes that filled one file share it by what
each wrote. If the files that a process read sum to more than it read, the excess is removed from those whose position
never advanced. What was written only to be copied on is a staging file (`staging`).

Invariant: no process wrote or read more than was counted, and each round starts from observations alone, never from the
previous estimate. An estimate is reused if all its inputs are final: tens of thousands of files may wait.

Example: a process opens two files of 30 MiB and its counters show 30 MiB read. The first one's position went from 0 to
the end, the second one's stood at 10 MiB, where a seek had left it. The sum exceeds the counters by 30 MiB, so the
second file is left with one byte.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from ckptprof.detect.tolerances import (
    CONCURRENT_NS,
    LATE_COUNTER_NS,
    LATE_TICK_NS,
    LITTLE_SHARE,
    PATIENCE_NS,
    SIGNIFICANT_BYTES,
    STAMP_TOLERANCE_NS,
    WHOLE_SHARE,
    is_similar_size,
)
from ckptprof.detect.transfers.edges import estimate_read_edges, estimate_write_edges
from ckptprof.detect.transfers.model.traced_transfer import TracedTransfer
from ckptprof.detect.transfers.model.transfer import NO_ESTIMATE, Transfer, TransferEstimate
from ckptprof.detect.transfers.observed.file_events import is_in_temporary
from ckptprof.detect.transfers.observed.openings import FileOpenings
from ckptprof.detect.transfers.observed.traced_books import TracedTransfers
from ckptprof.detect.transfers.recent_files import RecentTransfers, grown_span
from ckptprof.detect.transfers.staging import merge_staging_files
from ckptprof.detect.transfers.transferred_bytes import estimate_bytes, leaping_read_bytes, mapped_openings
from ckptprof.detect.world.keys import FileKey, ProcessKey
from ckptprof.detect.world.process_counters import ProcessInterval
from ckptprof.detect.world.spans import OverlapWeights, Span
from ckptprof.detect.world.world import World
from ckptprof.frameworks.file_formats import COMPRESSED, identify_format
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


def is_no_checkpoint(transfer: Transfer) -> bool:
    """Return True if its name excludes a checkpoint, and its first bytes do not contradict that.

    A written file may be inspected later. A file only read is not: its name needs a word for checkpoints.
    """
    name, fact = transfer.name, transfer.fact
    if not name.never_checkpoint or name.commit:
        return False
    if name.framework is None:
        return True
    if fact is None:
        return not transfer.writes and not name.hint
    kind = identify_format(fact.magic, transfer.path)
    return kind == COMPRESSED or kind not in name.framework.formats


class TransferEstimates:
    """The best estimates of waiting transfers, repeated only when an input has changed."""

    def __init__(self, world: World, openings: FileOpenings, traced: TracedTransfers, recent: RecentTransfers) -> None:
        self._recent = recent
        self._world = world
        self._openings = openings
        self._traced = traced
        # bytes that each process touched by mappings, in all and by file: thousands of files need them in a round
        self._mapped_bytes: dict[ProcessKey, tuple[OverlapWeights, dict[FileKey, list[TracedTransfer]]]] = {}

    def begin_round(self) -> None:
        """Start a round: observations may have changed since the last one."""
        self._mapped_bytes.clear()

    def estimate(self, transfer: Transfer) -> bool:
        """Estimate edges and bytes; return False if it has nothing of a checkpoint."""
        transfer.start_round(is_open=False)
        state = self._inputs_of(transfer)
        if state is not None and state == transfer.estimate_inputs:
            transfer.set_estimate(transfer.estimate)
        else:
            is_counted = isinstance(transfer, TracedTransfer)  # polling may miss the rename of a folder
            transfer.update_name(state, in_temporary=is_counted and is_in_temporary(transfer.folder))
            if is_no_checkpoint(transfer):
                return False
            if isinstance(transfer, TracedTransfer):
                transfer.set_estimate(self._estimate_counted(transfer))
            else:
                transfer.set_estimate(self._estimate_polled(transfer))
        return transfer.bytes > 0

    def _estimate_counted(self, transfer: TracedTransfer) -> TransferEstimate:
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
        if transfer.mapping is None or history is None:  # it was unmapped before a sample
            return start_ns, end_ns, max(size, leaping_read_bytes(transfer) - elsewhere)
        edges = estimate_read_edges(transfer.mapping, history, self._openings, self._world.threads)
        elsewhere += self._touched_elsewhere(transfer, edges)
        touched = estimate_bytes(transfer.mapping, history, edges) - elsewhere
        if size < WHOLE_SHARE * touched:
            end_ns = max(end_ns, edges[1])
        return start_ns, end_ns, max(size, touched)

    def _touched_elsewhere(self, transfer: TracedTransfer, edges: Span) -> int:
        """Return the bytes of other files that the process touched in the same time: memory names no file."""
        process = transfer.process
        if process not in self._mapped_bytes:
            own = [one for one in self._traced.transfers_of(process) if one.faulted_bytes]
            all_weights = OverlapWeights(((one.first_ns, one.last_ns + 1), one.counted_bytes) for one in own)
            by_file: dict[FileKey, list[TracedTransfer]] = {}
            for one in own:
                by_file.setdefault(one.file, []).append(one)
            self._mapped_bytes[process] = all_weights, by_file
        all_weights, by_file = self._mapped_bytes[process]
        same = by_file.get(transfer.file, ())
        file_weights = OverlapWeights(((one.first_ns, one.last_ns + 1), one.counted_bytes) for one in same)
        window = edges[0], edges[1] + 1
        return all_weights.weight(window) - file_weights.weight(window)

    def _estimate_polled(self, transfer: Transfer) -> TransferEstimate:
        history = self._world.histories.get(transfer.process)
        if history is None:
            return NO_ESTIMATE
        if transfer.writes:
            edges = estimate_write_edges(transfer, history, self._world, self._openings)
        else:
            edges = estimate_read_edges(transfer, history, self._openings, self._world.threads)
            if self._may_be_of_child(transfer, history.between(*edges)):
                return NO_ESTIMATE
        return *edges, estimate_bytes(transfer, history, edges)

    def _may_be_of_child(self, transfer: Transfer, around: Sequence[ProcessInterval]) -> bool:
        """Recognise a file that was open without being read, while the counters of an ended child were added."""
        if not around or transfer.is_mapped or any(sample.position for sample in transfer.samples):
            return False
        span = around[0].start_ns - LATE_TICK_NS, around[-1].end_ns + LATE_TICK_NS
        has_waited = self._world.histories[transfer.process].had_child_exit(*span)
        return has_waited and not self._world.may_restore(transfer.process)

    def _inputs_of(self, transfer: Transfer) -> int | None:
        """Return a hash of final inputs of an estimate: counted, or stamped long enough ago. None: others matter.

        Tens of thousands of waiting files are not estimated again in each round.
        """
        if isinstance(transfer, TracedTransfer):
            return None if transfer.mapping is not None else transfer.version
        last_ns, history = transfer.span[1], self._world.histories[transfer.process]
        if not transfer.is_credited or history.last_ns < last_ns + LATE_COUNTER_NS:
            return None
        fact = transfer.fact
        stamps = fact and (fact.size, fact.birth_ns, fact.modified_ns, fact.changed_ns)
        close_end_ns = self._world.threads.state_end_ns(transfer.process, "close", last_ns)
        sync_end_ns = self._world.threads.state_end_ns(transfer.process, "sync", last_ns)
        return hash((transfer.path, transfer.first_ns, transfer.before_ns, transfer.last_ns, transfer.closed_ns, stamps,
                     close_end_ns, sync_end_ns))  # fmt: skip

    def await_sizes(self, waiting: Sequence[Transfer], now_ns: int) -> tuple[list[Transfer], list[Transfer]]:
        """Return (transfers whose size or bytes have not been reported yet, the rest).

        A server, or a sampler that is late, gets a minute. After that the size of an empty file is what its process
        wrote in that time, and to no other file.
        """
        unsized: list[Transfer] = []
        sized: list[Transfer] = []
        grown, world = _GrownFiles(self._recent), self._world
        for transfer in waiting:
            if isinstance(transfer, TracedTransfer):
                sized.append(transfer)
                continue
            written, process = self._unsized_bytes(transfer), transfer.process
            is_counted = process in world.ended or world.histories[process].last_ns >= (transfer.closed_ns or 0)
            if (written or not is_counted) and now_ns - transfer.last_ns < PATIENCE_NS:
                unsized.append(transfer)
                continue
            if written:
                grown.assign_size(transfer, written)
            sized.append(transfer)
        return unsized, sized

    def _unsized_bytes(self, transfer: Transfer) -> int:
        """Return the bytes that a process wrote while polling found its open file empty; 0: it is not empty.

        A server may get the data as late as in close(2), and report the size later: earlier sizes are no evidence. If
        the calls of a process are counted, a file without a counted call is empty.
        """
        if not transfer.writes or transfer.is_mapped or self._traced.has_transfers(transfer.process):
            return 0
        fact, closing = transfer.fact, self._world.threads.state_end_ns(transfer.process, "close", transfer.last_ns)
        closed_ns = max(transfer.closed_ns or transfer.last_ns, closing or 0)  # its descriptor is gone before its data
        if transfer.size or (fact is not None and (fact.size or transfer.fact_at_ns >= closed_ns)):
            return 0
        history = self._world.histories[transfer.process]
        written = history.wrote_bytes(transfer.before_ns - CONCURRENT_NS, transfer.span[1])
        return written if written >= SIGNIFICANT_BYTES else 0

    def estimate_open(self, transfer: Transfer) -> bool:
        """Estimate an open transfer from what is known; return False if it has nothing of a checkpoint."""
        transfer.start_round(is_open=True)
        transfer.update_name(None)
        if is_no_checkpoint(transfer):
            return False
        transfer.set_estimate((transfer.first_ns, transfer.last_ns, transfer.counted_bytes or transfer.size))
        return True

    def reconcile(self, written: list[Transfer], read: list[Transfer]) -> tuple[list[Transfer], list[Transfer]]:
        """Reconcile what a job wrote and read; return both without staging files and the reads of them."""
        untangle(written)
        self.limit_reads(read)
        return merge_staging_files(written, read)

    def divide_shared_files(self, written: list[Transfer]) -> None:
        """Give each process that filled one file the bytes it wrote, if their counters add up to the file.

        Polled only. A file born in that time seems to be written whole by each of them.
        """
        untangle(written)
        by_file: dict[FileKey, list[Transfer]] = {}
        for transfer in written:
            if transfer.operations is None and not transfer.is_open and not transfer.is_mapped:
                by_file.setdefault(transfer.file, []).append(transfer)
        for every in by_file.values():
            own = [one for one in every if not self._opened_for_child(one, every)]
            if len({transfer.process for transfer in own}) < 2:
                continue
            size = max(transfer.stored_size for transfer in own)
            spans = ((self._world.histories[one.process], one.start_ns, one.end_ns) for one in own)
            by_each = [history.wrote_bytes(low_ns, high_ns + STAMP_TOLERANCE_NS) for history, low_ns, high_ns in spans]
            if sum(by_each) >= WHOLE_SHARE * size and is_similar_size(sum(by_each), size):
                for transfer, written_bytes in zip(own, by_each, strict=True):
                    transfer.subtract_bytes(max(0, transfer.bytes - max(1, written_bytes)))

    def _opened_for_child(self, opener: Transfer, every: list[Transfer]) -> bool:
        """Return True, and leave it nothing, if it dirtied no page until the exit of a child that has the file open."""
        history, parent = self._world.histories[opener.process], self._world.jobs.parent
        children = [one for one in every if one.process != opener.process and parent(one.process) == opener.process]
        dirtied = (self._world.histories[one.process].dirtied_bytes(one.start_ns, one.end_ns) for one in children)
        around = history.between(opener.start_ns, opener.end_ns) if children else ()
        alone = (one.dirtied_bytes for one in around if not history.had_child_exit(one.start_ns, one.end_ns))
        if not children or sum(dirtied) < LITTLE_SHARE * opener.stored_size or sum(alone) >= SIGNIFICANT_BYTES:
            return False
        opener.subtract_bytes(opener.bytes)
        children[-1].extend_back_to(opener)
        return True

    def limit_reads(self, read: list[Transfer]) -> None:
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
            start_ns = min(transfer.start_ns for transfer in own)
            returned_bytes = history.returned_bytes(start_ns, end_ns + STAMP_TOLERANCE_NS)
            excess_bytes = sum(transfer.bytes for transfer in own) - returned_bytes
            # a file whose position never advanced has no evidence of being read, least of all with a single sample
            doubtful = [one for one in own if one.samples and one.samples[-1].position <= one.samples[0].position]
            for transfer in sorted(doubtful, key=lambda one: len(one.samples)) if excess_bytes > 0 else ():
                removed_bytes = min(transfer.bytes - 1, excess_bytes)
                transfer.subtract_bytes(removed_bytes)
                excess_bytes -= removed_bytes


class _GrownFiles:
    """The bytes that processes can have written to files that grew, and the sizes assigned so far."""

    def __init__(self, recent: RecentTransfers) -> None:
        self._recent = recent
        self._by_process: dict[ProcessKey, OverlapWeights] = {}
        self._sized: list[Transfer] = []  # few: each has a tenth of what its process wrote at least

    def assign_size(self, transfer: Transfer, written: int) -> None:
        """Assign a file the unreported bytes that no other file got; 0 if they are negligible.

        A silent job may have an empty output file open all the time.
        """
        process, span = transfer.process, (transfer.before_ns - CONCURRENT_NS, transfer.span[1] + 1)
        if process not in self._by_process:
            self._by_process[process] = self._recent.grown_weights(process)
        remaining = written - self._by_process[process].weight(span)
        remaining -= OverlapWeights(grown_span(one) for one in self._sized if one.process == process).weight(span)
        is_large = remaining >= max(SIGNIFICANT_BYTES, LITTLE_SHARE * written)
        transfer.set_size(remaining if is_large else 0, reported=False)
        if transfer.size:
            self._sized.append(transfer)
