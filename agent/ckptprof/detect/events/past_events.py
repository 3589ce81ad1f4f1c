"""What was seen before: the candidates of each job, which files were saved and by whom, and which are gone again."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.detect.world.jobs import Jobs
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.frameworks.names import shape

MAX_JOBS = 256
MAX_EVENTS = 64
MAX_PATHS = 8192
_MAX_SERIES = 1024
_MAX_SIZES = 16
MAX_REMEMBERED = 32_768  # paths in the events of all jobs
LIKE = 0.15  # sizes of one series of saves differ by less
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


class PastEvents:
    """Bounded in jobs, events and paths: the oldest are forgotten."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._events: dict[tuple[str, bool], deque[PastEvent]] = {}
        self._remembered = 0  # paths in events
        self._authors: dict[str, tuple[str, PastEvent]] = {}  # of files that were written, saved or not: job and event
        self._gone: dict[str, dict[str, None]] = {}  # job -> its files that it deleted again
        self._blocked: dict[str, tuple[str, int, int]] = {}  # uid of a save -> job, its end, until when it blocked it
        self._complete: dict[tuple[str, str], deque[tuple[int, str | None]]] = {}

    def take(self, samples: FrameSamples, jobs: Jobs) -> None:
        """Take what a frame tells of files that are gone."""
        for life in samples.lives:
            if life.kind == "unlinked" and life.path is not None:
                self.vanished(life.path, jobs.job_of((life.pid, life.start_ticks)))
        for fact in samples.facts:
            if fact.missing:
                self.vanished(fact.path)

    def note(self, job: str, event: PastEvent, *, writes: bool) -> None:
        """Take note of one candidate."""
        key = (job, writes)
        events = self._events.pop(key, None) or deque()
        self._events[key] = events  # whoever did nothing for the longest is forgotten first
        events.append(event)
        self._remembered += len(event.paths)
        while len(events) > MAX_EVENTS:
            self._forget_first(key)
        while len(self._events) > MAX_JOBS or (self._remembered > MAX_REMEMBERED and len(self._events) > 1):
            self._forget_first(next(iter(self._events)))
        for path in event.paths if writes else ():
            self._authors.pop(path, None)
            while len(self._authors) >= MAX_PATHS:
                self._authors.pop(next(iter(self._authors)))
            self._authors[path] = (job, event)
            self._gone.get(job, {}).pop(path, None)

    def _forget_first(self, key: tuple[str, bool]) -> None:
        self._remembered -= len(self._events[key].popleft().paths)
        if not self._events[key]:
            del self._events[key]

    def series(self, job: str, shapes: frozenset[str], *, writes: bool) -> list[PastEvent]:
        """Return the job's earlier candidates with a file of the same shape, oldest first."""
        return [earlier for earlier in self._events.get((job, writes), ()) if earlier.shapes & shapes]

    def events(self, job: str, *, writes: bool) -> list[PastEvent]:
        """Return all earlier candidates of a job that are remembered."""
        return list(self._events.get((job, writes), ()))

    def author(self, path: str) -> PastEvent | None:
        """Return the candidate that wrote a file last."""
        found = self._authors.get(path)
        return found[1] if found is not None else None

    def vanished(self, path: str, job: str | None = None) -> None:
        """Take note that a file is gone: by the job that wrote it, or `None`, nobody saw by whom."""
        if not path.startswith("/"):
            tail = "/" + path.removeprefix("./")
            path = next((known for known in reversed(self._authors) if known.endswith(tail)), path)
        found = self._authors.get(path)
        if found is None or (job is not None and found[0] != job):
            return
        if found[0] not in self._gone and len(self._gone) >= MAX_JOBS:
            self._gone.pop(next(iter(self._gone)))
        gone = self._gone.setdefault(found[0], {})
        gone[path] = None
        while len(gone) > MAX_EVENTS:
            gone.pop(next(iter(gone)))

    def rotated(self, job: str, shapes: frozenset[str]) -> int:
        """Return how many files of these shapes the job wrote and deleted again."""
        return sum(1 for path in self._gone.get(job, ()) if shape_of(path) in shapes)

    def note_blocked(self, uid: str, job: str, end_ns: int, until_ns: int) -> None:
        """Take note that a save blocked its job until a time, or longer than was known."""
        self._blocked.pop(uid, None)
        while len(self._blocked) >= MAX_JOBS:
            del self._blocked[next(iter(self._blocked))]
        self._blocked[uid] = (job, end_ns, until_ns)

    def blocked_until_ns(self, job: str, before_ns: int) -> int:
        """Return until when a save that ended before blocked a job, its clean-up included; 0 if none is known."""
        ends = (
            max(end_ns, until) for own, end_ns, until in self._blocked.values() if own == job and end_ns <= before_ns
        )
        return min(before_ns, max(ends, default=0))

    def note_complete(self, job: str, shapes: Iterable[str], size: int, marker: str | None) -> None:
        """Take note of the bytes of a save that came to its end, and of what completed it."""
        for one in shapes:
            while len(self._complete) >= _MAX_SERIES:
                del self._complete[next(iter(self._complete))]
            self._complete.setdefault((job, one), deque(maxlen=_MAX_SIZES)).append((size, marker))

    def complete(self, job: str, shapes: Iterable[str]) -> list[tuple[int, str | None]]:
        """Return (bytes, marker) of a job's complete saves with a file of such a shape, oldest first."""
        found = (self._complete.get((job, one)) for one in shapes)
        return max((list(saves) for saves in found if saves is not None), key=len, default=[])

    def in_folder(self, folder: str) -> list[str]:
        """Return the files of a folder that are remembered: written or read."""
        moved = (path for events in self._events.values() for event in events for path in event.paths)
        return [path for path in moved if path.rpartition("/")[0] == folder]


@lru_cache(maxsize=4096)
def shape_of(path: str) -> str:
    """Return the path with numbers and hashes replaced, so that the saves of a series have the same shape."""
    return shape(_HASH.sub("0", path))
