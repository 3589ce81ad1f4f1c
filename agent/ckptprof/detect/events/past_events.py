"""What was seen before: the candidates of each job, which files were saved and by whom, and which are gone again."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import NamedTuple

from ckptprof.detect.tolerances import ALL_SHARE, AT_ONCE_NS, FEW, MAX_EACH, is_of_one_state
from ckptprof.detect.transfers.model.sending import SENT
from ckptprof.detect.world.bounded import MAX_RECENT, Bounded
from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.detect.world.jobs import Jobs
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.spans import Span
from ckptprof.frameworks.names import shape
from ckptprof.model import Mode
from ckptprof_collectors.samples import FileFact, FileLifeEvent

MAX_REMEMBERED = 32_768  # paths of all jobs
_HASH = re.compile(r"(?<![0-9A-Za-z])(?=[0-9a-f]*\d)[0-9a-f]{8,64}(?![0-9A-Za-z])")


class PastEvent(NamedTuple):
    """One candidate that is over, whatever it was taken for. Times are CLOCK_MONOTONIC."""

    start_ns: int
    end_ns: int
    bytes: int
    shapes: frozenset[str]
    paths: frozenset[str]  # of its biggest files
    processes: frozenset[ProcessKey]
    programs: frozenset[str]
    is_nothing: bool = False  # it was turned down

    def is_of_program(self, other: PastEvent) -> bool:
        """Return whether the same program wrote a file of the same shape, in whatever run."""
        return not self.programs.isdisjoint(other.programs) and not self.shapes.isdisjoint(other.shapes)

    def may_be(self, state: PastEvent) -> bool:
        """Return whether what was received, or sent, may be a state by its size.

        It moved where that did, or is as large as that is in files, to a hundredth: elsewhere sizes meet by chance.
        """
        if not self.shapes.isdisjoint(state.shapes):
            return is_of_one_state(self.bytes, state.bytes)
        in_files = not any(shape.startswith(SENT) for shape in state.shapes)
        return in_files and is_of_one_state(self.bytes, state.bytes, ALL_SHARE)


class CompleteSave(NamedTuple):
    """What later saves of a series are held against."""

    bytes: int
    files: int  # that are large
    marker: str | None  # the file that completed it
    free_bytes: int | None  # the room that was left on its file system after it


class PastEvents:
    """Bounded in jobs, events and paths: the job that did nothing for the longest is forgotten first."""

    def __init__(self) -> None:
        self._events: Bounded[tuple[str, bool], deque[PastEvent]] = Bounded(MAX_RECENT, deque, on_drop=self._dropped)
        self._remembered = 0  # paths in events
        # of files that were written, saved or not: job and event
        self._authors: Bounded[str, tuple[str, PastEvent]] = Bounded(MAX_REMEMBERED)
        # job -> its files that it deleted again
        self._gone: Bounded[str, Bounded[str, None]] = Bounded(MAX_RECENT, lambda: Bounded(MAX_EACH))
        # uid of a save -> job, its end, until when it blocked it
        self._blocked: Bounded[str, tuple[str, int, int]] = Bounded(MAX_RECENT)
        # job -> when training waited for the end of its last save, to begin the next one
        self._awaited: Bounded[str, Span] = Bounded(MAX_RECENT)
        # job, place of its largest file without numbers, who wrote -> the mode of its last save of which something told
        self._modes: Bounded[tuple[str, str, frozenset[str]], Mode] = Bounded(MAX_RECENT)
        self._resumed: deque[PastEvent] = deque(maxlen=MAX_RECENT)  # reads by runs that went on from them
        self._states: deque[PastEvent] = deque(maxlen=MAX_RECENT)  # what was told to be a save, without its paths
        self._complete: Bounded[tuple[str, str], deque[CompleteSave]] = Bounded(MAX_RECENT, lambda: deque(maxlen=FEW))

    def take(self, samples: FrameSamples, jobs: Jobs) -> None:
        """Take what a frame tells of files that are gone."""
        unlinked = [(life, life.path) for life in samples.of(FileLifeEvent) if life.kind == "unlinked" and life.path]
        known = self._full_paths(path for _, path in unlinked)
        for life, path in unlinked:
            self.vanished(known.get(path, path), jobs.job_of((life.pid, life.start_ticks)))
        for fact in samples.of(FileFact):
            if fact.missing:
                self.vanished(fact.path)

    def note(self, job: str, event: PastEvent, *, writes: bool) -> None:
        """Take note of one candidate."""
        events = self._events.update_of((job, writes))
        if len(events) == MAX_EACH:
            self._remembered -= len(events.popleft().paths)
        events.append(event)
        self._remembered += len(event.paths)
        self._keep(MAX_REMEMBERED)
        gone = self._gone[job]
        for path in event.paths if writes else ():
            self._authors[path] = (job, event)
            gone.pop(path, None)

    def _dropped(self, _: tuple[str, bool], events: deque[PastEvent]) -> None:
        self._remembered -= sum(len(event.paths) for event in events)

    def __len__(self) -> int:
        """Return how many paths are remembered, of events and of their authors."""
        return self._remembered + len(self._authors)

    def cut(self, share: float) -> None:
        """Keep so many of the latest paths, as a share of the bound."""
        self._authors.cut(share)
        self._keep(int(share * MAX_REMEMBERED))

    def _keep(self, paths: int) -> None:
        while self._remembered > paths and len(self._events) > 1:
            self._events.drop_first()

    def series(self, job: str, shapes: frozenset[str], *, writes: bool) -> list[PastEvent]:
        """Return the job's earlier candidates with a file of the same shape, oldest first."""
        return [earlier for earlier in self._events[job, writes] if earlier.shapes & shapes]

    def events(self, job: str, *, writes: bool) -> list[PastEvent]:
        """Return all earlier candidates of a job that are remembered."""
        return list(self._events[job, writes])

    def received_before(self, event: PastEvent, shapes: frozenset[str]) -> list[PastEvent]:
        """Return what the job of an event read or received before, of some shapes: whichever of its processes did."""
        jobs = {
            job for (job, _), all_of_it in self._events.items() for one in all_of_it if one.processes & event.processes
        }
        moved = (one for job in jobs for one in self._events[job, False])
        return [one for one in moved if one.start_ns < event.start_ns and one.shapes & shapes]

    def author(self, path: str) -> PastEvent | None:
        """Return the candidate that wrote a file last."""
        found = self._authors.get(path)
        return found[1] if found is not None else None

    def run_of(self, path: str) -> list[PastEvent]:
        """Return what the run that wrote a file last wrote of its shape, oldest first."""
        job, last = self._authors.get(path) or ("", None)
        if last is None:
            return []
        return [one for one in self.series(job, last.shapes, writes=True) if one.processes & last.processes]

    def note_resumed(self, event: PastEvent) -> None:
        """Take note that a run goes on from what it read: from the last of a series that an earlier run wrote."""
        self._resumed.append(event)

    def is_resumed(self, event: PastEvent) -> bool:
        """Return whether a run of the same program went on from one of its series."""
        return any(one.is_of_program(event) for one in self._resumed)

    def note_state(self, event: PastEvent) -> None:
        """Take note of what was told to be a save."""
        self._states.append(event._replace(paths=frozenset()))

    def states(self, programs: frozenset[str]) -> list[PastEvent]:
        """Return what runs of some programs saved."""
        return [state for state in self._states if state.programs & programs]

    def has_saved(self, processes: frozenset[ProcessKey]) -> bool:
        """Return whether one of some processes saved."""
        return any(state.processes & processes for state in self._states)

    def received_since(self, job: str, event: PastEvent) -> int:
        """Return the bytes of the largest event in which processes of one received something from where that moved."""
        later = (one for one in self.series(job, event.shapes, writes=False) if one.start_ns >= event.end_ns)
        return max((one.bytes for one in later if one.processes & event.processes), default=0)

    def has_one_size(self, job: str, event: PastEvent) -> bool:
        """Return whether all that its processes sent to where one went is as large, but for what is much smaller.

        A state has the same size each time; pictures, logs and figures may go there, too.
        """
        sent = self._sent_there(job, event)
        return all(2 * one.bytes < event.bytes or is_of_one_state(one.bytes, event.bytes, ALL_SHARE) for one in sent)

    def is_sent_again(self, job: str, event: PastEvent) -> bool:
        """Return whether its processes sent as much to where one went another time."""
        alike = [one for one in self._sent_there(job, event) if is_of_one_state(one.bytes, event.bytes, ALL_SHARE)]
        return len(alike) > 1

    def _sent_there(self, job: str, event: PastEvent) -> list[PastEvent]:
        return [one for one in self.series(job, event.shapes, writes=True) if one.processes & event.processes]

    def vanished(self, path: str, job: str | None = None) -> None:
        """Take note that a file is gone: by the job that wrote it, or `None`, nobody saw by whom."""
        found = self._authors.get(path)
        if found is None or (job is not None and found[0] != job):
            return
        self._gone.update_of(found[0])[path] = None

    def _full_paths(self, paths: Iterable[str]) -> dict[str, str]:
        tails = {"/" + path.removeprefix("./"): path for path in paths if not path.startswith("/")}
        names = {tail.rpartition("/")[2] for tail in tails}
        found: dict[str, str] = {}
        for known in reversed(self._authors) if tails else ():
            if known.rpartition("/")[2] not in names:
                continue
            for at, char in enumerate(known):
                if char == "/" and (tail := known[at:]) in tails:
                    found.setdefault(tails[tail], known)
        return found

    def rotated(self, job: str, shapes: frozenset[str]) -> int:
        """Return how many files of these shapes the job wrote and deleted again."""
        return sum(1 for path in self._gone[job] if shape_of(path) in shapes)

    def is_only_state(self, job: str, paths: Collection[str], size: int) -> bool:
        """Return whether a job wrote its last state of such a size to these paths, and has none of it elsewhere."""
        gone = self._gone[job]
        moved = (one for writes in (True, False) for one in self._events[job, writes])
        alike = [one for one in moved if is_of_one_state(one.bytes, size)]
        left = {path for one in alike for path in one.paths if path not in gone}
        written = {path for one in alike for path in one.paths if self.author(path) is one}
        return not left.isdisjoint(paths) and left <= set(paths) and written >= set(paths)

    def note_blocked(self, uid: str, job: str, end_ns: int, until_ns: int) -> None:
        """Take note that a save blocked its job until a time, or longer than was known."""
        self._blocked[uid] = (job, end_ns, until_ns)

    def blocked_until_ns(self, job: str, before_ns: int) -> int:
        """Return until when a save that ended before blocked a job, its clean-up included; 0 if none is known."""
        ends = (
            max(end_ns, until) for own, end_ns, until in self._blocked.values() if own == job and end_ns <= before_ns
        )
        return min(before_ns, max(ends, default=0))

    def note_awaited(self, job: str, span: Span | None) -> None:
        """Take note that training waited for the end of a save, to begin the next one; None: that one is told of it."""
        if span is None:
            self._awaited.pop(job, None)
        else:
            self._awaited[job] = span

    def awaited(self, job: str, start_ns: int) -> Span | None:
        """Return when training waited for the save before to begin one that started at a time; None if it did not."""
        span = self._awaited.get(job)
        return span if span is not None and abs(start_ns - span[1]) <= AT_ONCE_NS else None

    def note_mode(self, job: str, path: str, roles: frozenset[str], mode: Mode) -> None:
        """Take note of the mode of a job's save, by its largest file and the roles of who wrote it."""
        self._modes[job, _series_of(path), roles] = mode

    def mode(self, job: str, path: str, roles: frozenset[str]) -> Mode | None:
        """Return the mode of the job's last save there by such writers; None if it was not told.

        A job may write the same files itself in one place, and by a thread in another.
        """
        return self._modes.get((job, _series_of(path), roles))

    def note_complete(self, job: str, shapes: Iterable[str], save: CompleteSave) -> None:
        """Take note of a save that came to its end."""
        for one in shapes:
            self._complete.update_of((job, one)).append(save)

    def complete(self, job: str, shapes: Iterable[str]) -> list[CompleteSave]:
        """Return a job's complete saves with a file of such a shape, oldest first."""
        return max((list(self._complete[job, one]) for one in shapes), key=len, default=[])

    def in_folder(self, folder: str) -> list[str]:
        """Return the files of a folder that are remembered: written or read."""
        moved = (path for events in self._events.values() for event in events for path in event.paths)
        return [path for path in moved if path.rpartition("/")[0] == folder]


def _series_of(path: str) -> str:
    return "/".join(map(shape_of, path.split("/")))


@lru_cache(maxsize=4096)
def shape_of(path: str) -> str:
    """Return the path with numbers and hashes replaced, so that the saves of a series have the same shape."""
    return shape(_HASH.sub("0", path))
