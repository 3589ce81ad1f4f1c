"""The ledger of a process: the bytes that its counters show, less those that its known transfers explain.

Theory of operation. A file that was never observed open can still be credited to a process that wrote as much in that
time (`unobserved_writes`, `unobserved_reads`), but only if those bytes do not belong to its other files. Counters name
no file, and samples give a transfer only the longest time that it can have taken. So each known transfer is spread over
that time at an even rate, and what remains of each interval of the counters is unexplained.

The even rate may be wrong: a burst at the end of a transfer leaves its first intervals over-explained and its last one
unexplained. So there is a second limit: over the whole time of all transfers alongside, the sum of what was counted
less all of their bytes. The smaller of both is used. Files under 1 MiB do not extend that time: a log is open for
hours.

Invariant: every byte is explained once. A credited file is added to the ledger before the next one is tried, and none
of the transfers changes while the ledger is in use. Transfers are summed: a save may have thousands of files, and each
of them is tried against all.

Example: a process wrote 100 MiB in one second, and one file of 60 MiB was observed open in that second. A file of
40 MiB found in a folder, born and last written then, is credited; another one of 40 MiB is not.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, starmap
from operator import itemgetter, mul
from typing import NamedTuple

from ckptprof.detect.tolerances import AT_ONCE_NS, CONCURRENT_NS, FEW, MOST_SHARE, SIGNIFICANT_BYTES, STAMP_TOLERANCE_NS
from ckptprof.detect.transfers.model.transfer import Transfer, share_within
from ckptprof.detect.transfers.observed.openings import FileOpenings
from ckptprof.detect.transfers.transferred_bytes import estimate_bytes
from ckptprof.detect.world.jobs import Jobs
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.process_counters import ProcessHistories, ProcessHistory
from ckptprof.detect.world.spans import LatestEnds, Span
from ckptprof.frameworks.file_names import path_shape

_BULK_CALL_BYTES = 16 << 10  # on average; smaller ones return modules, logs and /proc: PyTorch's 24 MB in 2,335 calls
_FRACTION_BITS = 64  # of a byte per nanosecond: sums of a million spans are exact to the byte
_NO_SPAN: Span = (sys.maxsize, 0)  # merging with it changes nothing


def evenly_counted_bytes(history: ProcessHistory, start_ns: int, end_ns: int, *, writes: bool) -> int:
    """Return the bytes that a process transferred in a time, at an even rate in each interval."""
    return sum(
        share_within(interval.transferred(writes=writes), (interval.start_ns, interval.end_ns), (start_ns, end_ns))
        for interval in history.between(start_ns, end_ns)
    )


class _SpreadBytes:
    """Bytes of many spans, each spread evenly over its time; O(log² n) to add one, and to sum those of a time.

    Changes of the summed rate are in sorted runs; a run is joined with a later one that is not shorter.
    """

    def __init__(self, weighed: Iterable[tuple[Span, int]] = ()) -> None:
        self._runs: list[tuple[list[Span], list[int], list[int]]] = []  # changes, sums of rates, of rate times time
        self.add(weighed)

    def add(self, weighed: Iterable[tuple[Span, int]]) -> None:
        """Add spans with their bytes; one without length lasts one nanosecond, before its end."""
        changes: list[Span] = []  # time and change of the rate
        for (start_ns, end_ns), transferred in weighed:
            first_ns = min(start_ns, end_ns - 1)
            rate = (transferred << _FRACTION_BITS) // (end_ns - first_ns)
            changes += (first_ns, rate), (end_ns, -rate)
        while self._runs and len(self._runs[-1][0]) <= len(changes):
            changes += self._runs.pop()[0]
        changes.sort()
        rates, products = ([0, *accumulate(one)] for one in (map(itemgetter(1), changes), starmap(mul, changes)))
        self._runs.append((changes, rates, products))

    def between(self, window: Span) -> int:
        """Return the bytes within a time."""
        total = 0
        for changes, rates, products in self._runs:
            for at_ns, sign in zip(window, (-1, 1), strict=True):
                before = bisect_left(changes, (at_ns,))
                total += sign * (rates[before] * at_ns - products[before])
        return (total + (1 << _FRACTION_BITS - 1)) >> _FRACTION_BITS


class _KnownBytes(NamedTuple):
    """The bytes of one transfer, or of several together."""

    first_ns: int  # first observed, of several the first
    last_ns: int  # last observed, of several the last
    bytes: int
    search_span: Span  # the time over which counters are summed for it

    def merged_with(self, other: _KnownBytes) -> _KnownBytes:
        """Return the sum of both, from the first to the last."""
        first_ns, last_ns = min(self.first_ns, other.first_ns), max(self.last_ns, other.last_ns)
        search_span = min(self.search_span[0], other.search_span[0]), max(self.search_span[1], other.search_span[1])
        return _KnownBytes(first_ns, last_ns, self.bytes + other.bytes, search_span)


class _ProcessTransfers:
    """What one process wrote or read, and the sums by the moment of first observation."""

    def __init__(self) -> None:
        self.bytes = 0
        self.explained = _SpreadBytes()
        self._moments: dict[int, list[_KnownBytes]] = {}
        self._sums: dict[int, _KnownBytes] = {}

    def add(self, transfers: Sequence[tuple[Transfer, Span, int]]) -> None:
        """Add transfers, each with its longest time and its bytes."""
        self.explained.add((span, size) for _, span, size in transfers)
        for transfer, span, size in transfers:
            search_span = span if size >= SIGNIFICANT_BYTES else _NO_SPAN  # a log is open for hours
            known = _KnownBytes(transfer.first_ns, transfer.last_ns, size, search_span)
            self.bytes += size
            moment = known.first_ns // STAMP_TOLERANCE_NS
            self._moments.setdefault(moment, []).append(known)
            self._sums[moment] = self._sums[moment].merged_with(known) if moment in self._sums else known

    def excess_bytes(self, start_ns: int, end_ns: int, counted: Callable[[int, int], int]) -> int:
        """Return what was counted over a time, and over that of all transfers alongside, less all of their bytes."""
        concurrent = list(self._observed_between(start_ns - CONCURRENT_NS, end_ns + CONCURRENT_NS))
        first_ns = min([start_ns, *(other.search_span[0] for other in concurrent)])
        last_ns = max([end_ns, *(other.search_span[1] for other in concurrent)])
        total_bytes = counted(first_ns - STAMP_TOLERANCE_NS, last_ns + STAMP_TOLERANCE_NS)
        return total_bytes - sum(other.bytes for other in concurrent)

    def _observed_between(self, low_ns: int, high_ns: int) -> Iterator[_KnownBytes]:
        """Yield what was observed in a time, as one sum where all of a moment is inside."""
        for moment, total in self._sums.items():
            if total.last_ns < low_ns or total.first_ns > high_ns:
                continue
            # a credited one may be first observed a tick after its last write
            if low_ns + STAMP_TOLERANCE_NS <= moment * STAMP_TOLERANCE_NS <= high_ns - STAMP_TOLERANCE_NS:
                yield total
            else:
                yield from (one for one in self._moments[moment] if one.last_ns >= low_ns and one.first_ns <= high_ns)


class Ledger:
    """Known transfers by process, summed so that a save of very many files is not compared one by one."""

    def __init__(self, histories: ProcessHistories, openings: FileOpenings, transfers: Iterable[Transfer]) -> None:
        """Observations of one tick share one time; `openings` show when within it a file was opened."""
        self._histories = histories
        self._openings = openings
        self._transfers: dict[tuple[ProcessKey, bool], list[Transfer]] = {}
        self._known: dict[tuple[ProcessKey, bool], _ProcessTransfers] = {}  # computed when first used
        self._has_pages: dict[int, bool] = {}  # by device, computed when first used
        self._observed_writes: dict[ProcessKey, dict[str, LatestEnds]] = {}  # by folder, computed when first used
        for transfer in transfers:
            self.add(transfer)

    def add(self, transfer: Transfer) -> None:
        """Add one transfer; none of them changes while the ledger is in use."""
        key = transfer.process, transfer.writes
        self._transfers.setdefault(key, []).append(transfer)
        if key in self._known:
            self._known[key].add(list(self._weighed([transfer])))

    def _of(self, process: ProcessKey, *, writes: bool) -> _ProcessTransfers:
        key = process, writes
        if key not in self._known:
            self._known[key] = _ProcessTransfers()
            self._known[key].add(list(self._weighed(self._transfers.get(key, ()))))
        return self._known[key]

    def shapes(self, jobs: Jobs) -> Counter[tuple[str, str]]:
        """Return how many files of each shape each job wrote."""
        written = ((jobs.job_of(process), known) for (process, writes), known in self._transfers.items() if writes)
        return Counter((job, path_shape(transfer.path)) for job, known in written for transfer in known)

    def was_writing_in_folder(self, folder: str, process: ProcessKey, start_ns: int, end_ns: int) -> bool:
        """Return True if the process was observed writing a file of the folder then, within a second."""
        if process not in self._observed_writes:
            spans = self._observed_writes[process] = defaultdict(LatestEnds)
            for one in self._transfers.get((process, True), ()):
                if one.samples or one.operations is not None:  # a credited one was not observed
                    spans[one.folder].add((one.first_ns, one.last_ns))
        own = self._observed_writes[process].get(folder)
        return own is not None and own.before(end_ns + CONCURRENT_NS + 1) >= start_ns - CONCURRENT_NS

    def unexplained_written_bytes(self, process: ProcessKey, device: int, start_ns: int, end_ns: int) -> int:
        """Return what a process wrote to files of a device between two times in excess of its known transfers.

        Where pages of the device are counted, what it wrote into pipes or sockets is none of that.
        """
        known, history = self._of(process, writes=True), self._histories[process]
        low_ns, high_ns = min(start_ns, end_ns) - STAMP_TOLERANCE_NS, end_ns + STAMP_TOLERANCE_NS
        if not self._shows_pages(device):
            intervals = history.between(low_ns, high_ns)
            remaining = sum(max(0, one.new_written_bytes - known.explained.between(one[:2])) for one in intervals)
            return min(remaining, known.excess_bytes(start_ns, end_ns, history.wrote_bytes))

        def dirtied(since_ns: int, until_ns: int) -> int:
            return history.dirtied_bytes(since_ns - CONCURRENT_NS, until_ns)  # a late tick reads long after its time

        remaining = dirtied(low_ns, high_ns) - known.explained.between((low_ns - CONCURRENT_NS, high_ns))
        return min(remaining, known.excess_bytes(start_ns, end_ns, dirtied))

    def _shows_pages(self, device: int) -> bool:
        """Return True if the counters of processes show the pages of files on a device: not so in memory."""
        if device not in self._has_pages:
            latest = (one for (_, writes), known in self._transfers.items() if writes for one in known[-FEW:])
            self._has_pages[device] = any(
                self._histories[one.process].dirtied_bytes(*one.span) >= MOST_SHARE * one.stored_size
                for one in latest if one.file[0] == device and one.stored_size >= SIGNIFICANT_BYTES
            )  # fmt: skip
        return self._has_pages[device]

    def unexplained_bytes_since_start(self, process: ProcessKey) -> int:
        """Return what a process wrote in all its life in excess of its known transfers."""
        counters = self._histories[process].last_io
        return counters.write_chars - self._of(process, writes=True).bytes if counters is not None else 0

    def unexplained_read_bytes(self, process: ProcessKey, start_ns: int, end_ns: int) -> int:
        """Return what a process read by large calls between two times in excess of its known transfers.

        Both in whole intervals of its counters; of a long one it is not known when.
        """
        known, history = self._of(process, writes=False), self._histories[process]
        around = history.between(start_ns, end_ns)
        bulk = (one for one in around if one.returned_bytes >= one.reads * _BULK_CALL_BYTES)
        returned = sum(one.returned_bytes for one in bulk if one.end_ns - one.start_ns <= AT_ONCE_NS)
        first_ns = min([start_ns, *(one.start_ns for one in around)])
        last_ns = max([end_ns, *(one.end_ns for one in around)])
        remaining = returned - known.explained.between((first_ns, last_ns + 1))
        return min(remaining, known.excess_bytes(first_ns, last_ns, history.returned_bytes))

    def _weighed(self, transfers: Iterable[Transfer]) -> Iterator[tuple[Transfer, Span, int]]:
        """Yield transfers with their longest time and their bytes; of reads those by calls that were polled."""
        for one in transfers:
            if one.writes:
                yield one, one.span, one.stored_size
            elif not one.is_mapped and one.operations is None:
                first_ns, last_ns = one.span
                opened_ns = self._openings.opened_between(one.file, first_ns, one.first_ns + STAMP_TOLERANCE_NS)
                first_ns = first_ns if opened_ns is None else min(opened_ns, one.first_ns)
                if one.samples and one.samples[-1].position == 0:  # nothing was read by then
                    first_ns = one.last_ns
                span = first_ns, max(last_ns, first_ns + 1)
                size = estimate_bytes(one, self._histories[one.process], span) if one.samples else one.size
                yield one, span, size
