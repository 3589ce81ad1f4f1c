"""What processes moved of late, file by file: the same words however it was seen."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from ckptprof.detect.transfers.model.polled import PolledTransfer
from ckptprof.detect.transfers.model.transfer import Bounds, Transfer
from ckptprof.detect.transfers.observed.polled_transfers import PolledTransfers
from ckptprof.detect.transfers.observed.traced_transfers import TracedTransfers
from ckptprof.detect.world.keys import FileKey, ProcessKey

MAX_MOVES = 4096


class RecentTransfer(NamedTuple):
    """What one process did to one file in one direction. Times are CLOCK_MONOTONIC, give or take a look if polled."""

    file: FileKey
    path: str
    start_ns: int
    end_ns: int
    bytes: Bounds
    size: int


class RecentTransfers:
    """Remembers polled transfers after they were judged; the traced ones are kept where they are followed."""

    def __init__(self, polled: PolledTransfers, traced: TracedTransfers) -> None:
        """Start with nothing."""
        self._polled = polled
        self._traced = traced
        self._done: deque[PolledTransfer] = deque()
        self._by_process: dict[ProcessKey, deque[PolledTransfer]] = {}

    def note(self, transfers: Iterable[Transfer]) -> None:
        """Take note of transfers that are over."""
        for transfer in transfers:
            if isinstance(transfer, PolledTransfer):
                self._done.append(transfer)
                self._by_process.setdefault(transfer.process, deque()).append(transfer)
        while len(self._done) > MAX_MOVES:
            self._forget_oldest()

    def of(self, process: ProcessKey, start_ns: int, end_ns: int, *, writes: bool) -> list[RecentTransfer]:
        """Return what a process moved in one direction and in part between two times.

        Of a file whose operations were seen, their times are taken: looks only know when it was found closed.
        """
        found: list[RecentTransfer] = []
        looked_at = [*self._by_process.get(process, ()), *self._polled.open_of(process)]
        exact: set[FileKey] = set()
        for traced in self._traced.moved_by(process):
            near = traced.first_ns <= end_ns and traced.last_ns >= start_ns
            if traced.writes != writes or not (near or looked_at) or (sums := traced.operations) is None:
                continue
            exact.add(traced.file)
            if near and sums.first_ns <= end_ns and sums.last_ns >= start_ns:
                found.append(
                    RecentTransfer(
                        traced.file, traced.path, sums.first_ns, sums.last_ns, Bounds(*[sums.bytes] * 3), traced.size
                    )
                )
        polled: dict[FileKey, RecentTransfer] = {}
        for transfer in looked_at:
            if transfer.writes == writes and transfer.file not in exact:
                move = _polled(transfer)
                if move.start_ns <= end_ns and move.end_ns >= start_ns:
                    polled[transfer.file] = move
        return [*polled.values(), *found]

    def forget_before(self, at_ns: int) -> None:
        """Drop what was over before `at_ns`."""
        while self._done and self._done[0].last_ns < at_ns:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        process = self._done.popleft().process
        own = self._by_process[process]
        own.popleft()
        if not own:
            del self._by_process[process]


def _polled(transfer: PolledTransfer) -> RecentTransfer:
    moved = transfer.advanced_bytes
    size = transfer.stored_size if transfer.writes else transfer.size
    return RecentTransfer(transfer.file, transfer.path, *transfer.span, Bounds(moved, moved or size, size), size)
