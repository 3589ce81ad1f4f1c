"""Which files were deleted of late, by whom: old checkpoints that make room, and saves that were given up."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ckptprof.detect.transfers.model.tolerances import MAX_FILES
from ckptprof.detect.transfers.observed.file_events import is_temporary
from ckptprof.detect.world.bounded import Bounded
from ckptprof.detect.world.jobs import Jobs
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.frameworks.names import shape
from ckptprof_collectors.samples import FileLifeEvent


@dataclass(frozen=True)
class Removal:
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

    def _between(self, start_ns: int, end_ns: int) -> Iterator[tuple[str, Removal]]:
        """Yield what was deleted in a time, the latest first."""
        for path, removal in reversed(self._removals.items()):
            if removal.at_ns < start_ns:
                return
            if removal.at_ns <= end_ns:
                yield path, removal
