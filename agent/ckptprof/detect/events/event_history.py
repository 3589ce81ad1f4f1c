"""The history of events: the candidates of each job, the authors of files, and the files deleted again."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import NamedTuple

from ckptprof.detect.tolerances import ALL_SHARE, COPY_WITHIN_NS, FEW, MAX_PER_ITEM, is_same_state_size
from ckptprof.detect.transfers.model.sending import SENT_PREFIX
from ckptprof.detect.world.bounded import MAX_RECENT, Bounded
from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.detect.world.jobs import Jobs
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.spans import Span
from ckptprof.frameworks.file_names import path_shape
from ckptprof.model import Mode
from ckptprof_collectors.samples import FileFact, FileLifeEvent

MAX_HISTORY_PATHS = 32_768  # paths of all jobs
_HASH = re.compile(r"(?<![0-9A-Za-z])(?=[0-9a-f]*\d)[0-9a-f]{8,64}(?![0-9A-Za-z])")


class HistoryEvent(NamedTuple):
    """One ended candidate, whatever it was classified as. Times are CLOCK_MONOTONIC."""

    start_ns: int
    end_ns: int
    bytes: int
    shapes: frozenset[str]
    paths: frozenset[str]  # of its biggest files
    processes: frozenset[ProcessKey]
    programs: frozenset[str]
    is_rejected: bool = False  # it was rejected
    authors: frozenset[ProcessKey] = frozenset()  # these, and those that made what they only carried

    def is_same_program(self, other: HistoryEvent) -> bool:
        """Return True if the same program wrote a file of the same shape, in any run."""
        return not self.programs.isdisjoint(other.programs) and not self.shapes.isdisjoint(other.shapes)

    def may_be_same_state(self, state: HistoryEvent) -> bool:
        """Compare a network transfer with a known state by size.

        They have the same endpoint, or agree with a state in files to a hundredth: otherwise sizes agree by chance.
        """
        if not self.shapes.isdisjoint(state.shapes):
            return is_same_state_size(self.bytes, state.bytes)
        in_files = not any(shape.startswith(SENT_PREFIX) for shape in state.shapes)
        return in_files and is_same_state_size(self.bytes, state.bytes, ALL_SHARE)


class CompleteSave(NamedTuple):
    """What later saves of a series are compared with."""

    bytes: int
    files: int  # that are large
    marker: str | None  # the file that completed it
    free_bytes_after: int | None  # on its file system after it


class EventHistory:
    """A history bounded in jobs, events and paths: the job idle for longest goes first."""

    def __init__(self) -> None:
        self._events: Bounded[tuple[str, bool], deque[HistoryEvent]] = Bounded(
            MAX_RECENT, deque, on_drop=self._on_job_dropped
        )
        self._path_count = 0  # paths in events
        # of written files, saved or not: job and event
        self._authors: Bounded[str, tuple[str, HistoryEvent]] = Bounded(MAX_HISTORY_PATHS)
        # job -> its own files that it deleted again, and whether their folder was observed
        self._deleted: Bounded[str, Bounded[str, bool]] = Bounded(MAX_RECENT, lambda: Bounded(MAX_PER_ITEM))
        # uid of a save -> job, its end, end of the stall
        self._blocked: Bounded[str, tuple[str, int, int]] = Bounded(MAX_RECENT)
        # job -> when training waited for its last save to end before starting the next
        self._awaited: Bounded[str, Span] = Bounded(MAX_RECENT)
        # job, path of its largest file without numbers, writers -> the last known mode
        self._modes: Bounded[tuple[str, str, frozenset[str]], Mode] = Bounded(MAX_RECENT)
        self._resumed: deque[HistoryEvent] = deque(maxlen=MAX_RECENT)  # reads by runs that resumed from them
        self._states: deque[HistoryEvent] = deque(maxlen=MAX_RECENT)  # reported saves, without their paths
        self._complete_saves: Bounded[tuple[str, str], deque[CompleteSave]] = Bounded(
            MAX_RECENT, lambda: deque(maxlen=FEW)
        )

    def ingest(self, samples: FrameSamples, jobs: Jobs) -> None:
        """Ingest the deletions of files in a frame."""
        unlinked = [
            (life, life.path) for life in samples.by_kind(FileLifeEvent) if life.kind == "unlinked" and life.path
        ]
        full_paths = self._full_paths(path for _, path in unlinked)
        for life, path in unlinked:
            job, full_path = jobs.job_of((life.pid, life.start_ticks)), full_paths.get(path, path)
            self.record_deletion(full_path, job, is_known=full_path == path and not life.is_guessed)
        for fact in (one for one in samples.by_kind(FileFact) if one.is_missing):
            self.record_deletion(fact.path)

    def record(self, job: str, event: HistoryEvent, *, writes: bool) -> None:
        """Record a classified event in its job's history."""
        events = self._events.touch((job, writes))
        if len(events) == MAX_PER_ITEM:
            self._path_count -= len(events.popleft().paths)
        events.append(event)
        self._path_count += len(event.paths)
        self._shrink_to(MAX_HISTORY_PATHS)
        deleted = self._deleted[job]
        for path in event.paths if writes else ():
            self._authors[path] = (job, event)
            deleted.pop(path, None)

    def _on_job_dropped(self, _: tuple[str, bool], events: deque[HistoryEvent]) -> None:
        self._path_count -= sum(len(event.paths) for event in events)

    def __len__(self) -> int:
        """Return the number of paths in events and authors."""
        return self._path_count + len(self._authors)

    def shrink(self, share: float) -> None:
        """Retain the latest paths, up to a share of the bound."""
        self._authors.shrink(share)
        self._shrink_to(int(share * MAX_HISTORY_PATHS))

    def _shrink_to(self, paths: int) -> None:
        while self._path_count > paths and len(self._events) > 1:
            self._events.drop_oldest()

    def series(self, job: str, shapes: frozenset[str], *, writes: bool) -> list[HistoryEvent]:
        """Return the job's earlier candidates with a file of the same shape, oldest first."""
        return [earlier for earlier in self._events[job, writes] if earlier.shapes & shapes]

    def events(self, job: str, *, writes: bool) -> list[HistoryEvent]:
        """Return all earlier candidates of a job."""
        return list(self._events[job, writes])

    def received_before(self, event: HistoryEvent, shapes: frozenset[str]) -> list[HistoryEvent]:
        """Return what the event's job read or received before it, of some shapes, by any of its processes."""
        jobs = {job for (job, _), row in self._events.items() if any(one.processes & event.processes for one in row)}
        received = (one for job in jobs for one in self._events[job, False])
        return [one for one in received if one.start_ns < event.start_ns and one.shapes & shapes]

    def author_of(self, path: str) -> HistoryEvent | None:
        """Return the candidate that last wrote a file."""
        found = self._authors.get(path)
        return found[1] if found is not None else None

    def run_of(self, path: str) -> list[HistoryEvent]:
        """Return what the run that last wrote a file wrote of its shape, oldest first."""
        job, last = self._authors.get(path) or ("", None)
        if last is None:
            return []
        return [one for one in self.series(job, last.shapes, writes=True) if one.processes & last.processes]

    def record_resumed(self, event: HistoryEvent) -> None:
        """Record that a run resumes from what it read: the last of an earlier run's series."""
        self._resumed.append(event)

    def was_resumed(self, event: HistoryEvent) -> bool:
        """Return True if a run of the same program resumed from an event of its series."""
        return any(one.is_same_program(event) for one in self._resumed)

    def record_state(self, event: HistoryEvent) -> None:
        """Record a reported save, for later restores by runs of the same program."""
        self._states.append(event._replace(paths=frozenset()))

    def states_of(self, programs: frozenset[str]) -> list[HistoryEvent]:
        """Return what runs of some programs saved."""
        return [state for state in self._states if state.programs & programs]

    def has_saved(self, processes: frozenset[ProcessKey]) -> bool:
        """Return True if any of the processes saved."""
        return any(state.processes & processes for state in self._states)

    def received_since(self, job: str, event: HistoryEvent) -> int:
        """Return the bytes of the largest event that the same processes later received from its endpoint."""
        later = (one for one in self.series(job, event.shapes, writes=False) if one.start_ns >= event.end_ns)
        return max((one.bytes for one in later if one.processes & event.processes), default=0)

    def has_constant_size(self, job: str, event: HistoryEvent) -> bool:
        """Return True if its processes sent only one size to its endpoint, apart from much smaller transfers.

        A state has the same size each time; pictures, logs and figures may go there too.
        """
        sent_events = self._sent_to_same(job, event)
        return all(
            2 * one.bytes < event.bytes or is_same_state_size(one.bytes, event.bytes, ALL_SHARE) for one in sent_events
        )

    def was_sent_again(self, job: str, event: HistoryEvent) -> bool:
        """Return True if its processes sent as much to its endpoint another time."""
        sizes = (one.bytes for one in self._sent_to_same(job, event))
        return sum(is_same_state_size(one, event.bytes, ALL_SHARE) for one in sizes) > 1

    def _sent_to_same(self, job: str, event: HistoryEvent) -> list[HistoryEvent]:
        return [one for one in self.series(job, event.shapes, writes=True) if one.processes & event.processes]

    def record_deletion(self, path: str, job: str | None = None, *, is_known: bool = True) -> None:
        """Record a deleted file. `job`: whose process deleted it; None: not observed. `is_known`: in that folder."""
        found = self._authors.get(path)
        if found is None or (job is not None and found[0] != job):
            return
        deleted = self._deleted.touch(found[0])
        deleted[path] = is_known or deleted.get(path, False)

    def _full_paths(self, paths: Iterable[str]) -> dict[str, str]:
        relative_tails = {"/" + path.removeprefix("./"): path for path in paths if not path.startswith("/")}
        names = {tail.rpartition("/")[2] for tail in relative_tails}
        found: dict[str, str] = {}
        for author_path in reversed(self._authors) if relative_tails else ():
            if author_path.rpartition("/")[2] not in names:
                continue
            for at, char in enumerate(author_path):
                if char == "/" and (tail := author_path[at:]) in relative_tails:
                    found.setdefault(relative_tails[tail], author_path)
        return found

    def rotated_count(self, job: str, shapes: frozenset[str]) -> int:
        """Return how many files of these shapes the job wrote and deleted again."""
        return sum(1 for path in self._deleted[job] if shape_of(path) in shapes)

    def is_only_state(self, job: str, paths: Collection[str], size: int) -> bool:
        """Return True if a job's last state of such a size is in these paths, and in no others."""
        deleted = self._deleted[job]
        transferred = (one for writes in (True, False) for one in self._events[job, writes])
        same_size = [one for one in transferred if is_same_state_size(one.bytes, size)]
        remaining = {path for one in same_size for path in one.paths if not deleted.get(path)}
        written = {path for one in same_size for path in one.paths if self.author_of(path) is one}
        return not remaining.isdisjoint(paths) and remaining <= set(paths) and written >= set(paths)

    def record_blocked(self, uid: str, job: str, end_ns: int, until_ns: int) -> None:
        """Record until when a save blocked its job, or that it blocked it for longer than was known."""
        self._blocked[uid] = (job, end_ns, until_ns)

    def blocked_until_ns(self, job: str, before_ns: int) -> int:
        """Return until when earlier saves blocked a job, clean-up included; 0 if none is known."""
        ends = (
            max(end_ns, until) for own, end_ns, until in self._blocked.values() if own == job and end_ns <= before_ns
        )
        return min(before_ns, max(ends, default=0))

    def record_awaited(self, job: str, span: Span | None) -> None:
        """Record when training waited for a save to end before starting the next; None: that one is reported."""
        if span is None:
            self._awaited.pop(job, None)
        else:
            self._awaited[job] = span

    def awaited_span(self, job: str, start_ns: int) -> Span | None:
        """Return when training waited for the previous save before one started at a time; None if it did not."""
        span = self._awaited.get(job)
        return span if span is not None and abs(start_ns - span[1]) <= COPY_WITHIN_NS else None

    def record_mode(self, job: str, path: str, roles: frozenset[str], mode: Mode) -> None:
        """Record the mode of a job's save, by its largest file and the roles of its writers."""
        self._modes[job, _series_shape(path), roles] = mode

    def mode_of(self, job: str, path: str, roles: frozenset[str]) -> Mode | None:
        """Return the mode of the job's last save there by such writers; None if unknown.

        A job may write the same files itself in one place, and by a thread in another.
        """
        return self._modes.get((job, _series_shape(path), roles))

    def record_complete(self, job: str, shapes: Iterable[str], save: CompleteSave) -> None:
        """Record a complete save."""
        for one in shapes:
            self._complete_saves.touch((job, one)).append(save)

    def complete_saves(self, job: str, shapes: Iterable[str]) -> list[CompleteSave]:
        """Return a job's complete saves with a file of such a shape, oldest first."""
        return max((list(self._complete_saves[job, one]) for one in shapes), key=len, default=[])

    def paths_in_folder(self, folder: str) -> list[str]:
        """Return the known files of a folder, written or read."""
        transferred_paths = (path for events in self._events.values() for event in events for path in event.paths)
        return [path for path in transferred_paths if path.rpartition("/")[0] == folder]


def deleted_paths(samples: FrameSamples) -> set[str]:
    """Return the paths that a frame shows deleted, without those in a guessed folder."""
    lives = (one for one in samples.by_kind(FileLifeEvent) if one.kind == "unlinked" and not one.is_guessed)
    return {one.path for one in lives if one.path} | {one.path for one in samples.by_kind(FileFact) if one.is_missing}


def _series_shape(path: str) -> str:
    return "/".join(map(shape_of, path.split("/")))


@lru_cache(maxsize=512)
def shape_of(path: str) -> str:
    """Return the path with numbers and hashes replaced, so that the saves of a series share a shape."""
    return path_shape(_HASH.sub("0", path))
