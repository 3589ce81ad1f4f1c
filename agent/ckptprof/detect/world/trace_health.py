"""What the trace said of itself: what it lost, and what it cannot see on this host."""

from __future__ import annotations

from collections import deque

from ckptprof_collectors.samples import TraceHealth

_MAX_HEALTHS = 600


_SLACK_NS = 1_500_000_000  # health is told about once a second


class TraceHealthHistory:
    """What the trace said of itself, change by change."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._told: deque[tuple[int, TraceHealth]] = deque(maxlen=_MAX_HEALTHS)

    def learn(self, at_ns: int, health: TraceHealth) -> None:
        """Take one account."""
        self._told.append((at_ns, health))

    @property
    def degraded(self) -> tuple[str, ...]:
        """What the trace cannot see here, as last told."""
        return self._told[-1][1].degraded if self._told else ()

    def attached(self, program: str) -> bool:
        """Return whether a program of the trace was at work when it last told of itself."""
        return bool(self._told) and program in self._told[-1][1].programs

    @property
    def sees_names(self) -> bool:
        """Whether the trace tells of files that are created, renamed and deleted: perf events tell of syncs only."""
        return not self._told or self._told[-1][1].programs.get("calls") != "perf-event"

    def lost(self, start_ns: int, end_ns: int) -> list[str]:
        """Return what was lost while something went on, as sentences."""
        before = after = None
        for at_ns, health in self._told:
            if before is None or at_ns <= start_ns:
                before = health
            if after is None or at_ns <= end_ns + _SLACK_NS:
                after = health
        if before is None or after is None:
            return []
        operations = after.lost_operations - before.lost_operations
        moved = after.lost_bytes - before.lost_bytes
        sessions = after.lost_sessions - before.lost_sessions
        events = after.lost_events - before.lost_events
        found = []
        if operations > 0:
            found.append(f"files of {operations} operations and {moved} bytes: the trace had no room for them")
        if sessions > 0:
            found.append(f"details of {sessions} small files: there were too many at once, they were only counted")
        if events > 0:
            found.append(f"{events} events (names, syncs, renames, last operations): there were too many at once")
        return found
