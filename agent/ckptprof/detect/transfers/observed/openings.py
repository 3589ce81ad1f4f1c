"""What is known of the moments at which files in watched folders were opened and closed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ckptprof.detect.tolerances import LATE_TICK_NS, MAX_FILES, SIGNIFICANT_BYTES
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.bounded import Latest
from ckptprof.detect.world.keys import FileKey
from ckptprof_collectors.samples import FileEvent

_MAX_BYTES_PER_NS = 20  # bytes in a nanosecond: no thread copies as much out of the page cache


@dataclass(slots=True)
class FileOpening:
    """A file from one opening to the closing that followed. Times are CLOCK_MONOTONIC."""

    file: FileKey
    path: str
    size: int
    opened_ns: int
    closed_ns: int | None = None
    was_written: bool = False
    is_attributed: bool = False  # it was looked for who read it

    @property
    def may_read_whole(self) -> bool:
        """Whether it lasted as long as it takes to read the file at least; who looks into one reads its beginning."""
        return self.closed_ns is not None and self.size <= _MAX_BYTES_PER_NS * (self.closed_ns - self.opened_ns)


@dataclass(slots=True)
class FileClosing:
    """When a file that had been written was closed, and how large it was by then."""

    file: FileKey
    path: str
    at_ns: int
    size: int
    is_attributed: bool = False  # it was looked for who wrote it


class FileOpenings(Latest[FileKey, FileOpening]):
    """The recent openings, and when files that were written were closed."""

    def __init__(self) -> None:
        super().__init__(MAX_FILES, lambda opening: opening.file, lambda opening: opening.opened_ns)
        self.closings: Latest[FileKey, FileClosing] = Latest(MAX_FILES, lambda one: one.file, lambda one: one.at_ns)

    def record(self, event: FileEvent) -> None:
        """Take one event."""
        key = (event.device, event.inode)
        if event.kind == "renamed":
            return
        if event.kind == "opened":
            self.add(FileOpening(key, event.path, event.size, event.at_ns))
            return
        if event.kind == "closed-written":
            self.closings.add(FileClosing(key, event.path, event.at_ns, event.size))
        opening = next((one for one in reversed(self.by_key(key)) if one.closed_ns is None), None)
        if opening is not None:
            opening.closed_ns = event.at_ns
            opening.was_written = event.kind == "closed-written"

    def opened_between(self, file: FileKey, low_ns: int, high_ns: int, *, only_written: bool = False) -> int | None:
        """Return when a file was first opened in a time, if `written`: by a process that then wrote it; None: never."""
        inside = (one for one in self.by_key(file) if low_ns <= one.opened_ns <= high_ns)
        return next((one.opened_ns for one in inside if one.was_written or not only_written), None)

    def may_have_been_read(self, file: FileKey, low_ns: int, high_ns: int) -> bool:
        """Return whether a file may have been read whole by who opened it in the given time, and did not write it."""
        inside = (one for one in self.by_key(file) if low_ns <= one.opened_ns <= high_ns)
        return any(one.may_read_whole and not one.was_written for one in inside)

    def closed_between(self, file: FileKey, low_ns: int, high_ns: float = math.inf) -> int | None:
        """Return when a file that had been written was closed in the given time, the first time if more than once."""
        return next((one.at_ns for one in self.closings.by_key(file) if low_ns <= one.at_ns <= high_ns), None)

    def first_close_by_folder(self) -> dict[str, int]:
        """Return when the first file of each folder was closed that had been written, as far as that is kept."""
        found: dict[str, int] = {}
        for one in self.closings:
            folder = one.path.rpartition("/")[0]
            found[folder] = min(found.get(folder, one.at_ns), one.at_ns)
        return found

    def stayed_open(self, transfer: Transfer, until_ns: int, first_close_by_folder: Mapping[str, int]) -> bool:
        """Return whether a file was not closed between its last look and a time: that would have been heard."""
        if self.closed_between(transfer.file, transfer.last_ns - LATE_TICK_NS, until_ns + LATE_TICK_NS) is not None:
            return False
        return first_close_by_folder.get(transfer.folder, until_ns) < until_ns

    def unattributed_closings(self, until_ns: int) -> Iterator[FileClosing]:
        """Yield the closings until then for which nobody looked who had written the file, but of small ones."""
        for closing in self.closings:
            if closing.at_ns <= until_ns and not closing.is_attributed and closing.size >= SIGNIFICANT_BYTES:
                yield closing

    def size_when_closed(self, transfer: Transfer) -> int:
        """Return how large a file was when it was closed after a transfer had written it; 0: nobody heard of it."""
        low_ns, high_ns = transfer.last_ns - LATE_TICK_NS, transfer.span[1] + LATE_TICK_NS
        closings = self.closings.by_key(transfer.file)  # another file may have its inode by now
        own = (one for one in closings if low_ns <= one.at_ns <= high_ns and one.path == transfer.path)
        return max((one.size for one in own), default=0)

    def sizes_when_closed(self, transfer: Transfer) -> list[int]:
        """Return how large a file was whenever it was closed after a writing, this one or another."""
        return [one.size for one in self.closings.by_key(transfer.file) if one.path == transfer.path]

    def forget_before(self, at_ns: int) -> None:
        """Drop what was opened, or closed, before `at_ns`."""
        super().forget_before(at_ns)
        self.closings.forget_before(at_ns)
