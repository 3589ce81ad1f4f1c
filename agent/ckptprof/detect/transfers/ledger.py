"""The ledger of bytes of a process: what its counters say that it moved, less what its known transfers explain."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ckptprof.detect.tolerances import BESIDE_NS, STAMP_NS, TELLING_BYTES
from ckptprof.detect.transfers.model.transfer import Transfer, evenly
from ckptprof.detect.transfers.moved_bytes import part_bytes
from ckptprof.detect.transfers.observed.openings import Openings
from ckptprof.detect.world.jobs import Jobs
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.process_counters import Histories, Interval, ProcessHistory
from ckptprof.detect.world.spans import Course, Span
from ckptprof.frameworks.names import shape

_NEVER: Span = (sys.maxsize, 0)  # what it is put together with stays as it is


def counted_evenly(history: ProcessHistory, start_ns: int, end_ns: int, *, writes: bool) -> int:
    """Return what a process moved in a time, if it did so at an even rate in each interval."""
    return sum(
        evenly(interval.moved(writes=writes), (interval.start_ns, interval.end_ns), (start_ns, end_ns))
        for interval in history.between(start_ns, end_ns)
    )


class _Write(NamedTuple):
    """What a ledger has of a transfer that writes, or of several together."""

    first_ns: int  # first seen, of several the first of them
    last_ns: int  # last seen, of several the last of them
    span: Span  # the longest time that it can have taken
    bytes: int
    widens: Span  # the time in which its bytes are looked for, likewise

    def with_(self, other: _Write) -> _Write:
        """Return both together."""
        span = min(self.span[0], other.span[0]), max(self.span[1], other.span[1])
        first_ns, last_ns = min(self.first_ns, other.first_ns), max(self.last_ns, other.last_ns)
        widens = min(self.widens[0], other.widens[0]), max(self.widens[1], other.widens[1])
        return _Write(first_ns, last_ns, span, self.bytes + other.bytes, widens)


class _Writes:
    """What one process wrote, and together what was first seen in one moment: a save may have thousands of files."""

    def __init__(self, history: ProcessHistory) -> None:
        self.bytes = 0
        self._history = history
        self._moments: dict[int, list[_Write]] = {}
        self._sums: dict[int, _Write] = {}
        self._explained: dict[int, int] = {}  # of the intervals that were asked for, by their end: bytes

    def enter(self, transfer: Transfer) -> None:
        """Enter one more transfer."""
        size = transfer.stored_size
        widens = transfer.span if size >= TELLING_BYTES else _NEVER  # a log is open for hours
        write = _Write(transfer.first_ns, transfer.last_ns, transfer.span, size, widens)
        self.bytes += write.bytes
        moment = write.first_ns // STAMP_NS
        self._moments.setdefault(moment, []).append(write)
        self._sums[moment] = self._sums[moment].with_(write) if moment in self._sums else write
        for interval in self._history.between(*write.span) if self._explained else ():
            if interval.end_ns in self._explained:
                self._explained[interval.end_ns] += evenly(write.bytes, write.span, interval[:2])

    def explained(self, interval: Interval) -> int:
        """Return what of an interval's bytes is theirs, if each was written at an even rate."""
        frame = interval[:2]
        if interval.end_ns not in self._explained:
            near = (
                write
                for moment, both in self._sums.items()
                if both.span[1] > frame[0] and both.span[0] < frame[1]
                for write in self._moments[moment]
            )
            self._explained[interval.end_ns] = sum(evenly(write.bytes, write.span, frame) for write in near)
        return self._explained[interval.end_ns]

    def seen(self, low_ns: int, high_ns: int) -> Iterator[_Write]:
        """Yield what was seen being written in a time, or together what all of it was."""
        for moment, both in self._sums.items():
            if both.last_ns < low_ns or both.first_ns > high_ns:
                continue
            # a credited one may have been first seen a tick after it was last written
            if low_ns + STAMP_NS <= moment * STAMP_NS and (moment + 1) * STAMP_NS <= high_ns:
                yield both
            else:
                yield from (one for one in self._moments[moment] if one.last_ns >= low_ns and one.first_ns <= high_ns)


class Ledger:
    """What is known by now, by process, so that a save of very many files is not held against all of them."""

    def __init__(self, histories: Histories, transfers: Iterable[Transfer] = ()) -> None:
        self._histories = histories
        self._of: dict[tuple[ProcessKey, bool], list[Transfer]] = {}
        self._writes: dict[ProcessKey, _Writes] = {}  # of those that were asked for
        self._reads: dict[ProcessKey, Course[Transfer]] = {}  # by calls, of those that were asked for
        self._seen: dict[tuple[ProcessKey, str], Course[None]] = {}  # by folder, what was seen being written
        for transfer in transfers:
            self.enter(transfer)

    def enter(self, transfer: Transfer) -> None:
        """Enter one more transfer; none of them changes while the ledger is asked."""
        self._of.setdefault((transfer.process, transfer.writes), []).append(transfer)
        if transfer.writes and transfer.process in self._writes:
            self._writes[transfer.process].enter(transfer)
        if transfer.writes and (transfer.looks or transfer.operations is not None):
            seen = self._seen.setdefault((transfer.process, transfer.folder), Course())
            seen.add((transfer.first_ns, transfer.last_ns), None)
        if not transfer.writes and transfer.process in self._reads:
            _add_read(self._reads[transfer.process], transfer)

    def _written_by(self, process: ProcessKey) -> _Writes:
        if process not in self._writes:
            known = self._writes[process] = _Writes(self._histories[process])
            for transfer in self._of.get((process, True), ()):
                known.enter(transfer)
        return self._writes[process]

    def shapes(self, jobs: Jobs) -> Counter[tuple[str, str]]:
        """Return how many files of each shape each job wrote."""
        written = ((jobs.job_of(process), known) for (process, writes), known in self._of.items() if writes)
        return Counter((job, shape(transfer.path)) for job, known in written for transfer in known)

    def is_beside(self, folder: str, process: ProcessKey, start_ns: int, end_ns: int) -> bool:
        """Return whether the process was seen writing a file of the folder then, give or take a second."""
        seen = self._seen.get((process, folder))
        return seen is not None and any(True for _ in seen.find(start_ns - BESIDE_NS, end_ns + BESIDE_NS))

    def unexplained_written(self, process: ProcessKey, start_ns: int, end_ns: int) -> int:
        """Return what a process wrote between two times beside what its known transfers can have had of it.

        That is the least of what is left of each interval, if they moved their bytes at an even rate, and of what is
        left in all the time of those around.
        """
        history = self._histories[process]
        around = history.between(min(start_ns, end_ns) - STAMP_NS, end_ns + STAMP_NS)
        if not around:
            return 0
        known = self._written_by(process)
        left = sum(max(0, one.wrote_bytes - known.explained(one)) for one in around if one.wrote_bytes)
        beside = list(known.seen(start_ns - BESIDE_NS, end_ns + BESIDE_NS))
        first_ns = min([start_ns, *(other.widens[0] for other in beside)])
        last_ns = max([end_ns, *(other.widens[1] for other in beside)])
        in_all = history.wrote_bytes(first_ns - STAMP_NS, last_ns + STAMP_NS)
        return min(left, in_all - sum(other.bytes for other in beside))

    def unexplained_since_it_began(self, process: ProcessKey) -> int:
        """Return what a process wrote in all its life beside its known transfers: the kernel counts from 0."""
        counters = self._histories[process].last_io
        return counters.write_chars - self._written_by(process).bytes if counters is not None else 0

    def unexplained_read(self, process: ProcessKey, start_ns: int, end_ns: int, openings: Openings) -> int:
        """Return what a process read by calls between two times beside what its known transfers read, at an even rate.

        What one tick observes has one time: `openings` know when within it a file was opened.
        """
        history = self._histories[process]
        frame, known = (start_ns, end_ns + 1), 0
        if process not in self._reads:
            reads = self._reads[process] = Course()
            for one in self._of.get((process, False), ()):
                _add_read(reads, one)
        for one in self._reads[process].find(start_ns, end_ns + 1):
            first_ns, last_ns = one.span
            opened_ns = openings.opened_between(one.file, first_ns, one.first_ns + STAMP_NS)
            first_ns = first_ns if opened_ns is None else min(opened_ns, one.first_ns)
            if one.looks and one.looks[-1].position == 0:  # nothing of it was read by then
                first_ns = one.last_ns
            span = first_ns, max(last_ns, first_ns + 1)
            known += evenly(part_bytes(one, history, span) if one.looks else one.size, span, frame)
        return history.loaded_bytes(start_ns, end_ns) - known


def _add_read(reads: Course[Transfer], transfer: Transfer) -> None:
    if not transfer.is_mapped and transfer.operations is None:
        reads.add(transfer.span, transfer)
