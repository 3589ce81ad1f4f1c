"""Opens and closes of files in watched folders, by inotify."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ckptprof.detect.tolerances import LATE_TICK_NS, MAX_FILES, SIGNIFICANT_BYTES
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.bounded import Latest
from ckptprof.detect.world.keys import FileKey
from ckptprof_collectors.samples import FileEvent

_MAX_BYTES_PER_NS = 20  # faster than any thread copies from the page cache


@dataclass(slots=True)
class FileOpening:
    """An open of a file, and the close that followed. Times are CLOCK_MONOTONIC."""

    file: FileKey
    path: str
    size: int
    opened_ns: int
    closed_ns: int | None = None
    was_written: bool = False
    is_attributed: bool = False  # its reader was searched for

    @property
    def may_read_whole(self) -> bool:
        """It lasted long enough to read the whole file, and not only its header."""
        return self.closed_ns is not None and self.size <= _MAX_BYTES_PER_NS * (self.closed_ns - self.opened_ns)


@dataclass(slots=True)
class FileClosing:
    """The close of a written file: time and size."""

    file: FileKey
    path: str
    at_ns: int
    size: int
    is_attributed: bool = False  # its writer was searched for


class FileOpenings(Latest[FileKey, FileOpening]):
    """The recent opens, and the closes of written files."""

    def __init__(self) -> None:
        super().__init__(MAX_FILES, lambda opening: opening.file, lambda opening: opening.opened_ns)
        self.closings: Latest[FileKey, FileClosing] = Latest(MAX_FILES, lambda one: one.file, lambda one: one.at_ns)

    def record(self, event: FileEvent) -> None:
        """Record that a file was opened or closed; ignore a rename and a deletion."""
        key = (event.device, event.inode)
        if event.kind in ("renamed", "deleted"):
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
        """Return the first open of a file in a time, None if none; `only_written`: by a process that then wrote it."""
        inside = (one for one in self.by_key(file) if low_ns <= one.opened_ns <= high_ns)
        return next((one.opened_ns for one in inside if one.was_written or not only_written), None)

    def may_have_been_read(self, file: FileKey, low_ns: int, high_ns: int) -> bool:
        """Return True if a process that opened the file in this time, and did not write it, may have read it whole."""
        inside = (one for one in self.by_key(file) if low_ns <= one.opened_ns <= high_ns)
        return any(one.may_read_whole and not one.was_written for one in inside)

    def closed_between(self, file: FileKey, low_ns: int, high_ns: int) -> int | None:
        """Return the first close of a written file in the given time; None: there was none."""
        return next((one.at_ns for one in self.closings.by_key(file) if low_ns <= one.at_ns <= high_ns), None)

    def first_close_by_folder(self) -> dict[str, int]:
        """Return the first retained close of a written file in each folder."""
        found: dict[str, int] = {}
        for one in self.closings:
            folder = one.path.rpartition("/")[0]
            found[folder] = min(found.get(folder, one.at_ns), one.at_ns)
        return found

    def stayed_open(self, transfer: Transfer, until_ns: int, first_close_by_folder: Mapping[str, int]) -> bool:
        """Return True if inotify reported no close between a file's last sample and a time, in a watched folder."""
        if self.closed_between(transfer.file, transfer.last_ns - LATE_TICK_NS, until_ns + LATE_TICK_NS) is not None:
            return False
        return first_close_by_folder.get(transfer.folder, until_ns) < until_ns

    def unattributed_closings(self, until_ns: int) -> Iterator[FileClosing]:
        """Yield the closes until then whose writer was not searched for yet, except of small files."""
        for closing in self.closings:
            if closing.at_ns <= until_ns and not closing.is_attributed and closing.size >= SIGNIFICANT_BYTES:
                yield closing

    def closing_of(self, transfer: Transfer) -> FileClosing | None:
        """Return the close that ended a write: the first one after its last sample; None: inotify reported none."""
        low_ns = transfer.last_ns - LATE_TICK_NS
        high_ns = math.inf if transfer.closed_ns is None else transfer.closed_ns + LATE_TICK_NS
        names = transfer.path, transfer.earlier_path  # another file may have its inode by now
        closings = self.closings.by_key(transfer.file)
        return next((one for one in closings if low_ns <= one.at_ns <= high_ns and one.path in names), None)

    def sizes_when_closed(self, transfer: Transfer) -> list[int]:
        """Return the sizes of a file at all its closes after writes, by any process."""
        return [one.size for one in self.closings.by_key(transfer.file) if one.path == transfer.path]

    def forget_before(self, at_ns: int) -> None:
        """Drop opens and closes before `at_ns`."""
        super().forget_before(at_ns)
        self.closings.forget_before(at_ns)
