"""What is remembered of files: which were moved of late, saved, deleted, and how much of them is not on storage yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ckptprof.detect.tolerances import MAX_FILES
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.observed.file_events import is_temporary
from ckptprof.detect.transfers.observed.polled_transfers import PolledTransfers
from ckptprof.detect.transfers.observed.traced_transfers import TracedTransfers
from ckptprof.detect.world.bounded import Bounded
from ckptprof.detect.world.jobs import Jobs
from ckptprof.detect.world.keys import FileKey, ProcessKey
from ckptprof.frameworks.names import shape
from ckptprof_collectors.samples import FileFact, FileLifeEvent


class RecentTransfers:
    """Remembers polled transfers after they were judged; the traced ones are kept where they are followed."""

    def __init__(self, polled: PolledTransfers, traced: TracedTransfers) -> None:
        """Start with nothing."""
        self._polled = polled
        self._traced = traced
        self._done: deque[Transfer] = deque()
        self._by_process: dict[ProcessKey, list[Transfer]] = {}

    def note(self, transfers: Iterable[Transfer]) -> None:
        """Take note of transfers that are over."""
        for transfer in transfers:
            self._done.append(transfer)
            self._by_process.setdefault(transfer.process, []).append(transfer)
        self.cut(1.0)

    def __len__(self) -> int:
        """Return how many are remembered."""
        return len(self._done)

    def cut(self, share: float) -> None:
        """Keep so many of the latest, as a share of the bound."""
        while len(self._done) > share * MAX_FILES:
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
        del own[0]
        if not own:
            del self._by_process[process]


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
        """Start with the paths that the store knows."""
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


class Removals:
    """The latest removals, by path."""

    def __init__(self, jobs: Jobs) -> None:
        """Start with nothing."""
        self._jobs = jobs
        self._removals: Bounded[str, Removal] = Bounded(MAX_FILES)
        self.version = 0  # rises with each

    def note(self, event: FileLifeEvent) -> None:
        """Take one event of the trace; only deletions of absolute paths say anything."""
        if event.kind != "unlinked" or event.path is None or not event.path.startswith("/"):
            return
        self._removals[event.path] = Removal(
            event.at_ns, (event.pid, event.start_ticks), shape(event.path), event.duration_ns
        )
        self.version += 1

    def removed_ns(self, path: str, since_ns: int) -> int | None:
        """Return when a path was deleted, if that was after `since_ns`."""
        removal = self._removals.get(path)
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

    def forget_before(self, at_ns: int) -> None:
        """Drop what happened before `at_ns`."""
        self._removals.forget_before(at_ns, lambda removal: removal.at_ns)

    def __len__(self) -> int:
        """Return how many are known."""
        return len(self._removals)

    def cut(self, share: float) -> None:
        """Keep so many of the latest, as a share of the bound."""
        self._removals.cut(share)

    def _between(self, start_ns: int, end_ns: int) -> Iterator[tuple[str, Removal]]:
        """Yield what was deleted in a time, the latest first."""
        for path, removal in reversed(self._removals.items()):
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


class Writeback:
    """The looks at the files that were seen last."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._looks: Bounded[FileKey, Looks] = Bounded(MAX_FILES)
        self.version = 0  # rises with each look

    def note(self, at_ns: int, fact: FileFact) -> None:
        """Take one fact, if it tells how much of a file is unwritten."""
        if fact.unwritten_bytes is None or fact.missing or fact.is_directory:
            return
        file = (fact.device, fact.inode)
        looks = self._looks.get(file)
        if looks is None or looks.modified_ns != fact.modified_ns:
            looks = Looks(fact.modified_ns)
        self._looks[file] = looks
        looks.at_ns, looks.unwritten_bytes = at_ns, fact.unwritten_bytes
        if fact.unwritten_bytes:
            looks.dirty_ns, looks.clean_ns = at_ns, None
        elif looks.clean_ns is None:
            looks.clean_ns = at_ns
        self.version += 1

    def of(self, file: FileKey) -> Looks | None:
        """Return what was seen of a file."""
        return self._looks.get(file)

    def __len__(self) -> int:
        """Return how many files were looked at."""
        return len(self._looks)

    def cut(self, share: float) -> None:
        """Keep so many of the latest, as a share of the bound."""
        self._looks.cut(share)

    def forget_before(self, at_ns: int) -> None:
        """Drop what was last looked at before `at_ns`."""
        self._looks.forget_before(at_ns, lambda looks: looks.at_ns)
