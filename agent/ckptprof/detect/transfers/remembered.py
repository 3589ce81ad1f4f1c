"""What is remembered of files: which were moved of late, saved, deleted, and how much of them is not on storage yet."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ckptprof.detect.tolerances import MAX_FILES
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.observed.file_events import is_temporary
from ckptprof.detect.transfers.observed.polled_transfers import PolledTransfers
from ckptprof.detect.transfers.observed.traced_transfers import TracedTransfers
from ckptprof.detect.world.bounded import Bounded, Latest
from ckptprof.detect.world.jobs import Jobs
from ckptprof.detect.world.keys import FileKey, ProcessKey
from ckptprof.detect.world.spans import Overlaps, Span
from ckptprof.frameworks.names import shape
from ckptprof_collectors.samples import FileFact, FileLifeEvent


class RecentTransfers(Latest[ProcessKey, Transfer]):
    """Remembers polled transfers after they were judged; the traced ones are kept where they are followed."""

    def __init__(self, polled: PolledTransfers, traced: TracedTransfers) -> None:
        super().__init__(MAX_FILES, lambda transfer: transfer.process, lambda transfer: transfer.last_ns)
        self._polled = polled
        self._traced = traced

    def note(self, transfers: Iterable[Transfer]) -> None:
        """Take note of transfers that are over."""
        for transfer in transfers:
            self.add(transfer)

    def moved(self, process: ProcessKey, start_ns: int, end_ns: int, *, writes: bool) -> list[Transfer]:
        """Return what a process moved in one direction and in part between two times.

        Of a file whose operations were seen, these are taken: looks only know when it was found closed.
        """
        looked_at: dict[FileKey, Transfer] = {}  # of each the last
        for transfer in (*self.of(process), *self._polled.open_of(process)):
            if transfer.writes == writes and _overlaps(transfer, start_ns, end_ns):
                looked_at[transfer.file] = transfer
        counted: list[Transfer] = []
        for one in self._traced.moved_by(process):
            if one.writes == writes and (sums := one.operations) is not None:
                if looked_at:
                    looked_at.pop(one.file, None)
                if sums.first_ns <= end_ns and sums.last_ns >= start_ns:
                    counted.append(one)
        return [*looked_at.values(), *counted]

    def written(self, process: ProcessKey) -> list[Transfer]:
        """Return what a process wrote of late, as looks and as the trace saw it."""
        every = (*self.of(process), *self._polled.open_of(process), *self._traced.moved_by(process))
        return [one for one in every if one.writes]

    def of_files(
        self, process: ProcessKey, files: Collection[FileKey], start_ns: int, end_ns: int
    ) -> dict[FileKey, list[Transfer]]:
        """Return all that a process did of each of some files between two times, in order; if it was counted, that."""
        found: dict[FileKey, list[Transfer]] = {file: [] for file in files}
        for transfer in (*self.of(process), *self._polled.open_of(process)):
            if transfer.file in found and _overlaps(transfer, start_ns, end_ns):
                found[transfer.file].append(transfer)
        for file in files:
            near = self._traced.near(file, start_ns, end_ns, process)
            counted = [one for one in near if one.operations is not None and _overlaps(one, start_ns, end_ns)]
            found[file] = sorted(counted or found[file], key=lambda transfer: transfer.data_span)
        return found

    def written_bytes(self, process: ProcessKey, start_ns: int, end_ns: int) -> int:
        """Return what a process can have written of files that polling saw grow, in part between two times."""
        return self.grown(process).weight((start_ns, end_ns + 1))

    def grown(self, process: ProcessKey) -> Overlaps:
        """Return the same for whoever asks of several times."""
        grown = (one for one in (*self.of(process), *self._polled.open_of(process)) if one.writes and one.stored_size)
        return Overlaps(map(grown_span, grown))


def grown_span(transfer: Transfer) -> tuple[Span, int]:
    """Return when a process can have written a file, and how much of it; of no length it is one nanosecond."""
    first_ns, last_ns = transfer.data_span
    return (first_ns, last_ns + 1), max(transfer.stored_size, transfer.reach)


def _overlaps(transfer: Transfer, start_ns: int, end_ns: int) -> bool:
    first_ns, last_ns = transfer.data_span
    return first_ns <= end_ns and last_ns >= start_ns


class Saved(NamedTuple):
    """What is known of a saved file, or of the folder of a save."""

    framework: str | None = None
    step: int | None = None


class SavedFiles(Bounded[str, Saved]):
    """What the last save of each file or folder told of it; what was saved longest ago is forgotten first."""

    def __init__(self, paths: tuple[str, ...] = ()) -> None:
        super().__init__(MAX_FILES)
        self.update(dict.fromkeys(paths[:MAX_FILES], Saved()))

    def contains(self, path: str) -> bool:
        """Return whether the file, or the folder that it is in, was saved."""
        return path in self or path.rpartition("/")[0] in self

    def in_folder(self, folder: str) -> list[str]:
        """Return the saved files of a folder."""
        return [path for path in self if path.rpartition("/")[0] == folder]


class Removal(NamedTuple):
    """One file that was deleted."""

    at_ns: int  # CLOCK_MONOTONIC
    process: ProcessKey
    shape: str
    spent_ns: int | None = None  # in the call; None: it was not timed


class Removals(Bounded[str, Removal]):
    """The latest removals, by path."""

    def __init__(self, jobs: Jobs) -> None:
        super().__init__(MAX_FILES, last_ns=lambda removal: removal.at_ns)
        self._jobs = jobs
        self.version = 0  # rises with each

    def note(self, event: FileLifeEvent) -> None:
        """Take one event of the trace; only deletions of absolute paths say anything."""
        if event.kind != "unlinked" or event.path is None or not event.path.startswith("/"):
            return
        self[event.path] = Removal(event.at_ns, (event.pid, event.start_ticks), shape(event.path), event.duration_ns)
        self.version += 1

    def removed_ns(self, path: str, since_ns: int) -> int | None:
        """Return when a path was deleted, if that was after `since_ns`."""
        removal = self.get(path)
        return removal.at_ns if removal is not None and removal.at_ns > since_ns else None

    def last_ns(self, shapes: frozenset[str], but: frozenset[str], start_ns: int, end_ns: int, job: str) -> int | None:
        """Return when a job deleted the last file of such a shape, `but` not one of these paths, in a time."""
        for path, removal in self._between(start_ns, end_ns):
            if removal.shape in shapes and path not in but and self._jobs.job_of(removal.process) == job:
                return removal.at_ns
        return None

    def spent(
        self, but: frozenset[str], start_ns: int, end_ns: int, processes: Collection[ProcessKey]
    ) -> tuple[int, int | None]:
        """Return (files, time in the calls) of what some processes deleted in a time.

        `but` not one of these paths, and nothing temporary. The time is None if none of it was seen.
        """
        files, spent_ns = 0, None
        for path, removal in self._between(start_ns, end_ns):
            if removal.process in processes and path not in but and not is_temporary(path):
                files += 1
                if removal.spent_ns is not None:
                    spent_ns = (spent_ns or 0) + removal.spent_ns
        return files, spent_ns if files else 0

    def _between(self, start_ns: int, end_ns: int) -> Iterator[tuple[str, Removal]]:
        """Yield what was deleted in a time, the latest first."""
        for path, removal in reversed(self.items()):
            if removal.at_ns < start_ns:
                return
            if removal.at_ns <= end_ns:
                yield path, removal


@dataclass(slots=True)
class Looks:
    """What was seen of one file since it was last modified. Times are CLOCK_MONOTONIC, of the frames that told."""

    modified_ns: int  # wall clock
    at_ns: int = 0
    unwritten_bytes: int = 0  # when last looked at
    dirty_ns: int | None = None  # the last look at which something was unwritten
    clean_ns: int | None = None  # the first look after that at which nothing was


class Writeback(Bounded[FileKey, Looks]):
    """The looks at the files that were seen last."""

    def __init__(self) -> None:
        super().__init__(MAX_FILES, last_ns=lambda looks: looks.at_ns)
        self.version = 0  # rises with each look

    def note(self, at_ns: int, fact: FileFact) -> None:
        """Take one fact, if it tells how much of a file is unwritten."""
        if fact.unwritten_bytes is None or fact.missing or fact.is_directory:
            return
        file = (fact.device, fact.inode)
        looks = self.get(file)
        if looks is None or looks.modified_ns != fact.modified_ns:
            looks = Looks(fact.modified_ns)
        self[file] = looks
        looks.at_ns, looks.unwritten_bytes = at_ns, fact.unwritten_bytes
        if fact.unwritten_bytes:
            looks.dirty_ns, looks.clean_ns = at_ns, None
        elif looks.clean_ns is None:
            looks.clean_ns = at_ns
        self.version += 1
