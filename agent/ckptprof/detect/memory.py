"""What was seen before: the shapes and sizes of each job's candidates, and which files were saved."""

from __future__ import annotations

from collections import deque

MAX_JOBS = 256
MAX_EVENTS = 64
MAX_PATHS = 8192
_LIKE = 0.15  # sizes of one series of saves differ by less


class Memory:
    """Bounded in jobs, events and paths: the oldest are forgotten."""

    def __init__(self, saved_paths: tuple[str, ...] = ()) -> None:
        """Start with the paths that the store knows."""
        self._events: dict[tuple[str, bool], deque[tuple[frozenset[str], int]]] = {}
        self._saved: dict[str, None] = dict.fromkeys(saved_paths[:MAX_PATHS])

    def note(self, job: str, writes: bool, shapes: frozenset[str], size_bytes: int) -> None:  # noqa: FBT001 - a direction, as everywhere here
        """Take note of one candidate."""
        key = (job, writes)
        if key not in self._events and len(self._events) >= MAX_JOBS:
            self._events.pop(next(iter(self._events)))
        self._events.setdefault(key, deque(maxlen=MAX_EVENTS)).append((shapes, size_bytes))

    def times_seen(self, job: str, writes: bool, shapes: frozenset[str], size_bytes: int) -> int:  # noqa: FBT001 - as above
        """Return how often the job did the like: a file of the same shape, a size that differs by less than 15 %."""
        return sum(
            1
            for earlier, earlier_bytes in self._events.get((job, writes), ())
            if earlier & shapes and abs(earlier_bytes - size_bytes) <= _LIKE * max(size_bytes, 1)
        )

    def saved(self, path: str) -> None:
        """Take note of a saved file."""
        self._saved.pop(path, None)
        while len(self._saved) >= MAX_PATHS:
            self._saved.pop(next(iter(self._saved)))
        self._saved[path] = None

    def was_saved(self, path: str) -> bool:
        """Return whether the file, or the folder that it is in, was saved."""
        return path in self._saved or path.rpartition("/")[0] in self._saved
