"""What is known of the moments at which files in watched folders were opened and closed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ckptprof.detect.tolerances import LATE_TICK_NS, MAX_FILES
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.keys import FileKey
from ckptprof_collectors.samples import FileEvent


@dataclass(slots=True)
class Opening:
    """A file from one opening to the closing that followed. Times are CLOCK_MONOTONIC."""

    file: FileKey
    path: str
    size: int
    opened_ns: int
    closed_ns: int | None = None
    written: bool = False
    is_settled: bool = False  # it was looked for who read it


class Openings:
    """The recent openings, and when files that were written were closed."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._openings: deque[Opening] = deque()
        self._of: dict[FileKey, list[Opening]] = {}
        self._written: deque[tuple[FileKey, int, int]] = deque(maxlen=MAX_FILES)  # with when, and how large by then

    def note(self, event: FileEvent) -> None:
        """Take one event."""
        key = (event.device, event.inode)
        if event.kind == "opened":
            if len(self._openings) >= MAX_FILES:
                self._drop_first()
            opening = Opening(key, event.path, event.size, event.at_ns)
            self._openings.append(opening)
            self._of.setdefault(key, []).append(opening)
            return
        if event.kind == "closed-written":
            self._written.append((key, event.at_ns, event.size))
        for opening in reversed(self._of.get(key, ())):
            if opening.closed_ns is None:
                opening.closed_ns = event.at_ns
                opening.written = event.kind == "closed-written"
                return

    def __iter__(self) -> Iterator[Opening]:
        """Yield the openings, the oldest first."""
        return iter(self._openings)

    def of_file(self, file: FileKey) -> Sequence[Opening]:
        """Return the openings of a file, the oldest first."""
        return self._of.get(file, ())

    def opened_between(self, file: FileKey, low_ns: int, high_ns: int) -> int | None:
        """Return when a file was opened in the given time, the first time if it was more than once."""
        for opening in self._of.get(file, ()):
            if low_ns <= opening.opened_ns <= high_ns:
                return opening.opened_ns
        return None

    def closed_between(self, file: FileKey, low_ns: int, high_ns: int) -> int | None:
        """Return when a file that had been written was closed in the given time, the first time if more than once."""
        return next((closed_ns for closed_ns, _ in self._closings(file, low_ns, high_ns)), None)

    def size_when_closed(self, transfer: Transfer) -> int:
        """Return how large a file was when it was closed after a transfer had written it; 0: nobody heard of it."""
        low_ns, high_ns = transfer.last_ns - LATE_TICK_NS, transfer.end.most + LATE_TICK_NS
        return max((size for _, size in self._closings(transfer.file, low_ns, high_ns)), default=0)

    def _closings(self, file: FileKey, low_ns: int, high_ns: int) -> Iterator[tuple[int, int]]:
        return ((at_ns, size) for key, at_ns, size in self._written if key == file and low_ns <= at_ns <= high_ns)

    def forget_before(self, at_ns: int) -> None:
        """Drop what was opened before `at_ns`."""
        while self._openings and self._openings[0].opened_ns < at_ns:
            self._drop_first()
        while self._written and self._written[0][1] < at_ns:
            self._written.popleft()

    def __len__(self) -> int:
        """Return how many openings are kept."""
        return len(self._openings)

    def cut(self, share: float) -> None:
        """Keep so many of the latest, as a share of the bound."""
        while len(self._openings) > share * MAX_FILES:
            self._drop_first()

    def _drop_first(self) -> None:
        file = self._openings.popleft().file
        own = self._of[file]
        del own[0]
        if not own:
            del self._of[file]
