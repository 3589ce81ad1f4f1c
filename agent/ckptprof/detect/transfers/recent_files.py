"""Recent files: transferred, saved, deleted ones, and their writeback."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ckptprof.detect.tolerances import MAX_FILES
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.observed.file_events import is_temporary
from ckptprof.detect.transfers.observed.polled_transfers import PolledTransfers
from ckptprof.detect.transfers.observed.traced_books import TracedTransfers
from ckptprof.detect.world.bounded import Bounded, Latest
from ckptprof.detect.world.jobs import Jobs
from ckptprof.detect.world.keys import FileKey, ProcessKey
from ckptprof.detect.world.spans import OverlapWeights, Span
from ckptprof.frameworks.file_names import path_shape
from ckptprof_collectors.samples import FileFact


class RecentTransfers(Latest[ProcessKey, Transfer]):
    """Polled transfers after their decision; traced ones are retained where they are followed."""

    def __init__(self, polled: PolledTransfers, traced: TracedTransfers) -> None:
        super().__init__(MAX_FILES, lambda transfer: transfer.process, lambda transfer: transfer.last_ns)
        self._polled = polled
        self._traced = traced

    def record(self, transfers: Iterable[Transfer]) -> None:
        """Record ended transfers."""
        for transfer in transfers:
            self.add(transfer)

    def transfers_between(self, process: ProcessKey, start_ns: int, end_ns: int, *, writes: bool) -> list[Transfer]:
        """Return a process's transfers in one direction that overlap a time.

        Of a file whose operations were counted, these are used: samples only show when it was found closed.
        """
        polled: dict[FileKey, Transfer] = {}  # of each the last
        for transfer in (*self.by_key(process), *self._polled.open_of(process)):
            if transfer.writes == writes and _overlaps(transfer, start_ns, end_ns):
                polled[transfer.file] = transfer
        counted: list[Transfer] = []
        for one in self._traced.transfers_of(process):
            if one.writes == writes and (sums := one.operations) is not None:
                if polled:
                    polled.pop(one.file, None)
                if sums.first_ns <= end_ns and sums.last_ns >= start_ns:
                    counted.append(one)
        return [*polled.values(), *counted]

    def readings_of(self, process: ProcessKey, files: Collection[FileKey], span: Span) -> list[Transfer]:
        """Return a process's reads of some files that overlap a time."""
        return [one for one in self.transfers_between(process, *span, writes=False) if one.file in files]

    def written_by(self, process: ProcessKey) -> list[Transfer]:
        """Return what a process wrote recently, polled and traced."""
        transfers = (*self.by_key(process), *self._polled.open_of(process), *self._traced.transfers_of(process))
        return [one for one in transfers if one.writes]

    def of_files(
        self, process: ProcessKey, files: Collection[FileKey], start_ns: int, end_ns: int
    ) -> dict[FileKey, list[Transfer]]:
        """Return all transfers of some files by a process in a time, in order; the counted ones if any."""
        found: dict[FileKey, list[Transfer]] = {file: [] for file in files}
        for transfer in (*self.by_key(process), *self._polled.open_of(process)):
            if transfer.file in found and _overlaps(transfer, start_ns, end_ns):
                found[transfer.file].append(transfer)
        for file in files:
            nearby = self._traced.transfers_near(file, start_ns, end_ns, process)
            counted = [one for one in nearby if one.operations is not None and _overlaps(one, start_ns, end_ns)]
            found[file] = sorted(counted or found[file], key=lambda transfer: transfer.data_span)
        return found

    def written_bytes(self, process: ProcessKey, start_ns: int, end_ns: int) -> int:
        """Return the most that a process can have written in a time to files that polling saw grow."""
        return self.grown_weights(process).weight((start_ns, end_ns + 1))

    def grown_weights(self, process: ProcessKey) -> OverlapWeights:
        """Return the same for several times."""
        grown = (
            one for one in (*self.by_key(process), *self._polled.open_of(process)) if one.writes and one.stored_size
        )
        return OverlapWeights(map(grown_span, grown))


def grown_span(transfer: Transfer) -> tuple[Span, int]:
    """Return when a process can have written a file, and how much of it; at least one nanosecond long."""
    first_ns, last_ns = transfer.data_span
    return (first_ns, last_ns + 1), max(transfer.stored_size, transfer.max_written_bytes)


def _overlaps(transfer: Transfer, start_ns: int, end_ns: int) -> bool:
    first_ns, last_ns = transfer.data_span
    return first_ns <= end_ns and last_ns >= start_ns


class SavedNames(NamedTuple):
    """The framework and step of a saved file, or of a save's folder."""

    framework: str | None = None
    step: int | None = None


class SavedFiles(Bounded[str, SavedNames]):
    """The last save of each file or folder; the oldest goes first."""

    def __init__(self, paths: tuple[str, ...] = ()) -> None:
        super().__init__(MAX_FILES)
        self.update(dict.fromkeys(paths[:MAX_FILES], SavedNames()))

    def contains(self, path: str) -> bool:
        """Return True if the file, or its folder, was saved."""
        return path in self or path.rpartition("/")[0] in self

    def in_folder(self, folder: str) -> list[str]:
        """Return the saved files of a folder."""
        return [path for path in self if path.rpartition("/")[0] == folder]


class Removal(NamedTuple):
    """One file that was deleted."""

    at_ns: int  # CLOCK_MONOTONIC
    process: ProcessKey
    shape: str
    duration_ns: int | None = None  # in the call; None: it was not timed
    is_guessed: bool = False  # its folder, or that it was not renamed


class Removals(Bounded[str, Removal]):
    """The latest removals, by path."""

    def __init__(self, jobs: Jobs) -> None:
        super().__init__(MAX_FILES, last_ns=lambda removal: removal.at_ns)
        self._jobs = jobs
        self.version = 0  # rises with each

    def record(
        self, at_ns: int, path: str | None, by: ProcessKey = (0, 0), spent_ns: int | None = None, *,
        is_guessed: bool = False,
    ) -> None:  # fmt: skip
        """Record a deletion, by default of nobody known; one of a relative path is ignored."""
        if path is not None and path.startswith("/"):
            self[path] = Removal(at_ns, by, path_shape(path), spent_ns, is_guessed)
            self.version += 1

    def removed_ns(self, path: str, since_ns: int) -> int | None:
        """Return when a path was deleted after `since_ns`; None: it was not, or that is a guess."""
        removal = self.get(path)
        return None if removal is None or removal.is_guessed or removal.at_ns <= since_ns else removal.at_ns

    def last_removal_ns(
        self, shapes: frozenset[str], excluded: frozenset[str], start_ns: int, end_ns: int, job: str
    ) -> int | None:
        """Return when a job last deleted a file of such a shape in a time, except these paths; None: never."""
        for path, removal in self._between(start_ns, end_ns):
            if removal.shape in shapes and path not in excluded and self._jobs.job_of(removal.process) == job:
                return removal.at_ns
        return None

    def removal_totals(
        self, excluded: frozenset[str], start_ns: int, end_ns: int, processes: Collection[ProcessKey]
    ) -> tuple[int, int | None]:
        """Return (files, time in the calls) of what some processes deleted in a time.

        Except the paths of `excluded` and temporary files. The time is None if none was measured.
        """
        files, spent_ns = 0, None
        for path, removal in self._between(start_ns, end_ns):
            if removal.process in processes and path not in excluded and not is_temporary(path):
                files += 1
                if removal.duration_ns is not None:
                    spent_ns = (spent_ns or 0) + removal.duration_ns
        return files, spent_ns if files else 0

    def _between(self, start_ns: int, end_ns: int) -> Iterator[tuple[str, Removal]]:
        """Yield what was deleted in a time, the latest first."""
        for path, removal in reversed(self.items()):
            if removal.at_ns < start_ns:
                return
            if removal.at_ns <= end_ns:
                yield path, removal


@dataclass(slots=True)
class WritebackState:
    """The writeback of one file since it was last modified. Times are CLOCK_MONOTONIC, of the frames."""

    modified_ns: int  # wall clock
    at_ns: int = 0
    unwritten_bytes: int = 0  # in the last fact
    last_dirty_ns: int | None = None  # the last fact with unwritten bytes
    first_clean_ns: int | None = None  # the first fact after that without any


class Writeback(Bounded[FileKey, WritebackState]):
    """The writeback of recently sampled files."""

    def __init__(self) -> None:
        super().__init__(MAX_FILES, last_ns=lambda state: state.at_ns)
        self.version = 0  # rises with each fact

    def record(self, at_ns: int, fact: FileFact) -> None:
        """Record a fact, if it has the unwritten bytes of a file."""
        if fact.unwritten_bytes is None or fact.is_missing or fact.is_directory:
            return
        file = (fact.device, fact.inode)
        state = self.get(file)
        if state is None or state.modified_ns != fact.modified_ns:
            state = WritebackState(fact.modified_ns)
        self[file] = state
        state.at_ns, state.unwritten_bytes = at_ns, fact.unwritten_bytes
        if fact.unwritten_bytes:
            state.last_dirty_ns, state.first_clean_ns = at_ns, None
        elif state.first_clean_ns is None:
            state.first_clean_ns = at_ns
        self.version += 1
