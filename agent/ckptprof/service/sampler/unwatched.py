"""What those move who are not watched, as the trace tells it: nobody has to read their counters to find who is busy."""

from __future__ import annotations

from ckptprof_collectors.samples import FileActivity

MAX_SESSIONS = 4096
MAX_PROCESSES = 4096  # between two calls of `take`

Who = tuple[int, int]  # pid, start in ticks


class Unwatched:
    """Adds up, for each process, the bytes that it moved of files."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._sessions: dict[str, int] = {}  # bytes of those that go on, as they were told last
        self._moved: dict[Who, int] = {}

    def note(self, activity: FileActivity) -> None:
        """Take in one sample."""
        moved = activity.bytes - self._sessions.pop(activity.session, 0)
        if activity.closed_ns is None:
            self._sessions[activity.session] = activity.bytes
            if len(self._sessions) > MAX_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
        who = activity.pid, activity.start_ticks
        if who in self._moved or len(self._moved) < MAX_PROCESSES:
            self._moved[who] = self._moved.get(who, 0) + moved

    def take(self) -> dict[Who, int]:
        """Return what was moved since the last call."""
        moved, self._moved = self._moved, {}
        return moved
