"""The ledger of bytes of a process: what its counters say that it moved, less what its known transfers explain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ckptprof.detect.transfers.model.tolerances import BESIDE_NS, STAMP_NS
from ckptprof.detect.transfers.model.transfer import Transfer, evenly
from ckptprof.detect.transfers.moved_bytes import part_bytes
from ckptprof.detect.transfers.observed.openings import Openings
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.process_counters import ProcessHistory


def counted(history: ProcessHistory, start_ns: int, end_ns: int, *, writes: bool) -> int:
    """Return what a process moved in all intervals that overlap a time."""
    return sum(interval.moved(writes=writes) for interval in history.between(start_ns, end_ns))


def counted_evenly(history: ProcessHistory, start_ns: int, end_ns: int, *, writes: bool) -> int:
    """Return what a process moved in a time, if it did so at an even rate in each interval."""
    return sum(
        evenly(interval.moved(writes=writes), (interval.start_ns, interval.end_ns), (start_ns, end_ns))
        for interval in history.between(start_ns, end_ns)
    )


class Ledger:
    """What is known by now, by process, so that a save of very many files is not held against all of them."""

    def __init__(self, histories: Mapping[ProcessKey, ProcessHistory], transfers: Iterable[Transfer] = ()) -> None:
        """Enter what is known."""
        self._histories = histories
        self._of: dict[tuple[ProcessKey, bool], list[Transfer]] = {}
        self._seen: dict[tuple[ProcessKey, str], list[Transfer]] = {}  # by folder, what was seen being written
        for transfer in transfers:
            self.enter(transfer)

    def enter(self, transfer: Transfer) -> None:
        """Enter one more transfer."""
        self._of.setdefault((transfer.process, transfer.writes), []).append(transfer)
        if transfer.writes and (transfer.looks or transfer.operations is not None):
            self._seen.setdefault((transfer.process, transfer.folder), []).append(transfer)

    def is_beside(self, folder: str, process: ProcessKey, start_ns: int, end_ns: int) -> bool:
        """Return whether the process was seen writing a file of the folder then, give or take a second."""
        return any(
            other.first_ns - BESIDE_NS <= end_ns and start_ns <= other.last_ns + BESIDE_NS
            for other in reversed(self._seen.get((process, folder), ()))
        )

    def unexplained_written(self, process: ProcessKey, start_ns: int, end_ns: int) -> int:
        """Return what a process wrote between two times beside what its known transfers can have had of it.

        That is the least of what is left of each interval, if they moved their bytes at an even rate, and of what is
        left in all the time of those around.
        """
        history = self._histories.get(process)
        around = history.between(min(start_ns, end_ns) - STAMP_NS, end_ns + STAMP_NS) if history is not None else []
        if history is None or not around:
            return 0
        others = self._of.get((process, True), [])
        low_ns, high_ns = around[0].start_ns, around[-1].end_ns
        near = [(other.span, other.stored_size) for other in others]
        near = [(span, size) for span, size in near if span[1] > low_ns and span[0] < high_ns]
        left = 0
        for interval in around:
            if written := interval.wrote_bytes:
                frame = interval.start_ns, interval.end_ns
                left += max(0, written - sum(evenly(size, span, frame) for span, size in near))
        beside = [one for one in others if one.last_ns >= start_ns - BESIDE_NS and one.first_ns <= end_ns + BESIDE_NS]
        first_ns = min([start_ns, *(other.span[0] for other in beside)])
        last_ns = max([end_ns, *(other.span[1] for other in beside)])
        in_all = counted(history, first_ns - STAMP_NS, last_ns + STAMP_NS, writes=True)
        return min(left, in_all - sum(other.stored_size for other in beside))

    def unexplained_since_it_began(self, process: ProcessKey) -> int:
        """Return what a process wrote in all its life beside its known transfers: the kernel counts from 0."""
        history = self._histories.get(process)
        if history is None or history.last_io is None:
            return 0
        return history.last_io.write_chars - sum(other.stored_size for other in self._of.get((process, True), ()))

    def unexplained_read(self, process: ProcessKey, start_ns: int, end_ns: int, openings: Openings) -> int:
        """Return what a process read between two times beside what its known transfers read, at an even rate.

        What one tick observes has one time: `openings` know when within it a file was opened.
        """
        history = self._histories.get(process)
        if history is None:
            return 0
        frame, known = (start_ns, end_ns + 1), 0
        for one in self._of.get((process, False), ()):
            first_ns, last_ns = one.span
            if last_ns >= start_ns and first_ns <= end_ns + 1 and not one.is_mapped and one.operations is None:
                opened_ns = openings.opened_between(one.file, first_ns, one.first_ns + STAMP_NS)
                first_ns = first_ns if opened_ns is None else min(opened_ns, one.first_ns)
                if one.looks and one.looks[-1].position == 0:  # nothing of it was read by then
                    first_ns = one.last_ns
                span = first_ns, max(last_ns, first_ns + 1)
                known += evenly(part_bytes(one, history, span) if one.looks else one.size, span, frame)
        return counted(history, start_ns, end_ns, writes=False) - known
