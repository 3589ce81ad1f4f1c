"""What processes moved of late, file by file, whether it was judged or not."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from ckptprof.detect.transfers.model.tolerances import MAX_FILES
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.observed.polled_transfers import PolledTransfers
from ckptprof.detect.transfers.observed.traced_transfers import TracedTransfers
from ckptprof.detect.world.keys import FileKey, ProcessKey


class RecentTransfers:
    """Remembers polled transfers after they were judged; the traced ones are kept where they are followed."""

    def __init__(self, polled: PolledTransfers, traced: TracedTransfers) -> None:
        """Start with nothing."""
        self._polled = polled
        self._traced = traced
        self._done: deque[Transfer] = deque()
        self._by_process: dict[ProcessKey, deque[Transfer]] = {}

    def note(self, transfers: Iterable[Transfer]) -> None:
        """Take note of transfers that are over."""
        for transfer in transfers:
            self._done.append(transfer)
            self._by_process.setdefault(transfer.process, deque()).append(transfer)
        while len(self._done) > MAX_FILES:
            self._forget_oldest()

    def of(self, process: ProcessKey, start_ns: int, end_ns: int, *, writes: bool) -> list[Transfer]:
        """Return what a process moved in one direction and in part between two times.

        Of a file whose operations were seen, these are taken: looks only know when it was found closed.
        """
        counted = [one for one in self._traced.moved_by(process) if one.writes == writes and one.operations is not None]
        exact = {transfer.file for transfer in counted}
        looked_at: dict[FileKey, Transfer] = {}  # of each the last
        for transfer in (*self._by_process.get(process, ()), *self._polled.open_of(process)):
            if transfer.writes == writes and transfer.file not in exact and _overlaps(transfer, start_ns, end_ns):
                looked_at[transfer.file] = transfer
        return [*looked_at.values(), *(transfer for transfer in counted if _overlaps(transfer, start_ns, end_ns))]

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


def _overlaps(transfer: Transfer, start_ns: int, end_ns: int) -> bool:
    first_ns, last_ns = transfer.data_span
    return first_ns <= end_ns and last_ns >= start_ns
