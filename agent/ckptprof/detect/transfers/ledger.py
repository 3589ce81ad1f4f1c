"""The ledger of a process: the bytes that its counters show, less those that its known transfers explain.

Theory of operation. A file that was never observed open can still be credited to a process that wrote as much in that
time (`unobserved_writes`, `unobserved_reads`), but only if those bytes do not belong to its other files. Counters
name no file,
and samples give a transfer only the longest time that it can have taken. So each known transfer is spread over that
time at an even rate, and what remains of each interval of the counters is unexplained.

The even rate may be wrong: a burst at the end of a transfer leaves its first intervals over-explained and its last one
unexplained. So there is a second limit: over the whole time of all transfers alongside, the sum of what was counted
less all of their bytes. The smaller of both is used. Files under 1 MiB do not extend that time: a log is open for
hours.

Invariant: every byte is explained once. A credited file is added to the ledger before the next one is tried, and none
of the transfers changes while the ledger is in use. Transfers first observed in one moment are summed: a save may have
thousands of files, and each of them is tried against all.

Example: a process wrote 100 MiB in one second, and one file of 60 MiB was observed open in that second. A file of
40 MiB found in a folder, born and last written then, is credited; another one of 40 MiB is not.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ckptprof.detect.tolerances import CONCURRENT_NS, SIGNIFICANT_BYTES, STAMP_TOLERANCE_NS
from ckptprof.detect.transfers.model.transfer import Transfer, share_within
from ckptprof.detect.transfers.observed.openings import FileOpenings
from ckptprof.detect.transfers.transferred_bytes import estimate_bytes
from ckptprof.detect.world.jobs import Jobs
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.process_counters import ProcessHistories, ProcessHistory, ProcessInterval
from ckptprof.detect.world.spans import Span, SpanIndex
from ckptprof.frameworks.file_names import path_shape

_NO_SPAN: Span = (sys.maxsize, 0)  # merging with it changes nothing


def evenly_counted_bytes(history: ProcessHistory, start_ns: int, end_ns: int, *, writes: bool) -> int:
    """Return the bytes that a process transferred in a time, at an even rate in each interval."""
    return sum(
        share_within(interval.transferred(writes=writes), (interval.start_ns, interval.end_ns), (start_ns, end_ns))
        for interval in history.between(start_ns, end_ns)
    )


class _WrittenBytes(NamedTuple):
    """The bytes of one transfer that writes, or of several together."""

    first_ns: int  # first observed, of several the first
    last_ns: int  # last observed, of several the last
    span: Span  # from its earliest possible start to its latest possible end
    bytes: int
    search_span: Span  # the time over which counters are summed for it

    def merged_with(self, other: _WrittenBytes) -> _WrittenBytes:
        """Return the sum of two writes, from the first to the last of both."""
        span = min(self.span[0], other.span[0]), max(self.span[1], other.span[1])
        first_ns, last_ns = min(self.first_ns, other.first_ns), max(self.last_ns, other.last_ns)
        search_span = min(self.search_span[0], other.search_span[0]), max(self.search_span[1], other.search_span[1])
        return _WrittenBytes(first_ns, last_ns, span, self.bytes + other.bytes, search_span)


class _ProcessWrites:
    """The writes of one process, and their sums by the moment of first observation."""

    def __init__(self, history: ProcessHistory) -> None:
        self.bytes = 0
        self._history = history
        self._moments: dict[int, list[_WrittenBytes]] = {}
        self._sums: dict[int, _WrittenBytes] = {}
        self._explained: dict[int, int] = {}  # bytes by the end of the interval, once computed

    def add(self, transfer: Transfer) -> None:
        """Add one transfer."""
        size = transfer.stored_size
        search_span = transfer.span if size >= SIGNIFICANT_BYTES else _NO_SPAN  # a log is open for hours
        write = _WrittenBytes(transfer.first_ns, transfer.last_ns, transfer.span, size, search_span)
        self.bytes += write.bytes
        moment = write.first_ns // STAMP_TOLERANCE_NS
        self._moments.setdefault(moment, []).append(write)
        self._sums[moment] = self._sums[moment].merged_with(write) if moment in self._sums else write
        for interval in self._history.between(*write.span) if self._explained else ():
            if interval.end_ns in self._explained:
                self._explained[interval.end_ns] += share_within(write.bytes, write.span, interval[:2])

    def explained_bytes(self, interval: ProcessInterval) -> int:
        """Return the bytes of an interval that the transfers explain, each at an even rate."""
        window = interval[:2]
        if interval.end_ns not in self._explained:
            nearby = (
                write
                for moment, total in self._sums.items()
                if total.span[1] > window[0] and total.span[0] < window[1]
                for write in self._moments[moment]
            )
            self._explained[interval.end_ns] = sum(share_within(write.bytes, write.span, window) for write in nearby)
        return self._explained[interval.end_ns]

    def observed_between(self, low_ns: int, high_ns: int) -> Iterator[_WrittenBytes]:
        """Yield what was observed being written in a time, as one sum where all of a moment is inside."""
        for moment, total in self._sums.items():
            if total.last_ns < low_ns or total.first_ns > high_ns:
                continue
            # a credited one may be first observed a tick after its last write
            if (
                low_ns + STAMP_TOLERANCE_NS <= moment * STAMP_TOLERANCE_NS
                and (moment + 1) * STAMP_TOLERANCE_NS <= high_ns
            ):
                yield total
            else:
                yield from (one for one in self._moments[moment] if one.last_ns >= low_ns and one.first_ns <= high_ns)


class Ledger:
    """Known transfers by process, summed so that a save of very many files is not compared one by one."""

    def __init__(self, histories: ProcessHistories, transfers: Iterable[Transfer] = ()) -> None:
        self._histories = histories
        self._transfers: dict[tuple[ProcessKey, bool], list[Transfer]] = {}
        self._writes: dict[ProcessKey, _ProcessWrites] = {}  # computed when first used
        self._reads: dict[ProcessKey, SpanIndex[Transfer]] = {}  # by calls, computed when first used
        self._observed_writes: dict[tuple[ProcessKey, str], SpanIndex[None]] = {}  # by folder, observed writes
        for transfer in transfers:
            self.add(transfer)

    def add(self, transfer: Transfer) -> None:
        """Add one transfer; none of them changes while the ledger is in use."""
        self._transfers.setdefault((transfer.process, transfer.writes), []).append(transfer)
        if transfer.writes and transfer.process in self._writes:
            self._writes[transfer.process].add(transfer)
        if transfer.writes and (transfer.samples or transfer.operations is not None):
            spans = self._observed_writes.setdefault((transfer.process, transfer.folder), SpanIndex())
            spans.add((transfer.first_ns, transfer.last_ns), None)
        if not transfer.writes and transfer.process in self._reads:
            _add_read(self._reads[transfer.process], transfer)

    def _writes_of(self, process: ProcessKey) -> _ProcessWrites:
        if process not in self._writes:
            known = self._writes[process] = _ProcessWrites(self._histories[process])
            for transfer in self._transfers.get((process, True), ()):
                known.add(transfer)
        return self._writes[process]

    def shapes(self, jobs: Jobs) -> Counter[tuple[str, str]]:
        """Return how many files of each shape each job wrote."""
        written = ((jobs.job_of(process), known) for (process, writes), known in self._transfers.items() if writes)
        return Counter((job, path_shape(transfer.path)) for job, known in written for transfer in known)

    def was_writing_in_folder(self, folder: str, process: ProcessKey, start_ns: int, end_ns: int) -> bool:
        """Return True if the process was observed writing a file of the folder then, within a second."""
        spans = self._observed_writes.get((process, folder))
        return spans is not None and any(True for _ in spans.find(start_ns - CONCURRENT_NS, end_ns + CONCURRENT_NS))

    def unexplained_written_bytes(self, process: ProcessKey, start_ns: int, end_ns: int) -> int:
        """Return what a process wrote between two times in excess of its known transfers."""
        history = self._histories[process]
        intervals = history.between(min(start_ns, end_ns) - STAMP_TOLERANCE_NS, end_ns + STAMP_TOLERANCE_NS)
        if not intervals:
            return 0
        known = self._writes_of(process)
        remaining = sum(
            max(0, one.new_written_bytes - known.explained_bytes(one)) for one in intervals if one.new_written_bytes
        )
        concurrent = list(known.observed_between(start_ns - CONCURRENT_NS, end_ns + CONCURRENT_NS))
        first_ns = min([start_ns, *(other.search_span[0] for other in concurrent)])
        last_ns = max([end_ns, *(other.search_span[1] for other in concurrent)])
        total_bytes = history.wrote_bytes(first_ns - STAMP_TOLERANCE_NS, last_ns + STAMP_TOLERANCE_NS)
        return min(remaining, total_bytes - sum(other.bytes for other in concurrent))

    def unexplained_bytes_since_start(self, process: ProcessKey) -> int:
        """Return what a process wrote in all its life in excess of its known transfers."""
        counters = self._histories[process].last_io
        return counters.write_chars - self._writes_of(process).bytes if counters is not None else 0

    def unexplained_read_bytes(self, process: ProcessKey, start_ns: int, end_ns: int, openings: FileOpenings) -> int:
        """Return what a process read by calls between two times in excess of its known transfers.

        Observations of one tick share one time: `openings` know when within it a file was opened.
        """
        history = self._histories[process]
        window, explained = (start_ns, end_ns + 1), 0
        if process not in self._reads:
            reads = self._reads[process] = SpanIndex()
            for one in self._transfers.get((process, False), ()):
                _add_read(reads, one)
        for one in self._reads[process].find(start_ns, end_ns + 1):
            first_ns, last_ns = one.span
            opened_ns = openings.opened_between(one.file, first_ns, one.first_ns + STAMP_TOLERANCE_NS)
            first_ns = first_ns if opened_ns is None else min(opened_ns, one.first_ns)
            if one.samples and one.samples[-1].position == 0:  # nothing was read by then
                first_ns = one.last_ns
            span = first_ns, max(last_ns, first_ns + 1)
            explained += share_within(estimate_bytes(one, history, span) if one.samples else one.size, span, window)
        return history.bulk_returned_bytes(start_ns, end_ns) - explained


def _add_read(reads: SpanIndex[Transfer], transfer: Transfer) -> None:
    if not transfer.is_mapped and transfer.operations is None:
        reads.add(transfer.span, transfer)
