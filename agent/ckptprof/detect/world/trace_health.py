"""What the trace reports of itself: what it lost, and what it cannot observe on this host."""

from __future__ import annotations

from ckptprof.detect.world.counter_history import CounterHistory
from ckptprof.units import plural, size
from ckptprof_collectors.samples import TraceHealth


class TraceHealthHistory:
    """Reports of the trace on itself."""

    def __init__(self) -> None:
        self._lost = CounterHistory(4)
        self._last: TraceHealth | None = None
        self.failed_ns: int | None = None  # after that there is only polling

    def observe(self, at_ns: int, health: TraceHealth) -> None:
        """Ingest a report; one without programs, after one with some, means that the trace failed."""
        if self._last is not None and self._last.programs and not health.programs:
            self.failed_ns = at_ns
        self._last = health
        self._lost.add(at_ns, (health.lost_operations, health.lost_bytes, health.lost_sessions, health.lost_events))

    @property
    def degraded(self) -> tuple[str, ...]:
        """What the trace cannot observe on this host, by its last report."""
        return self._last.degraded if self._last is not None else ()

    def is_attached(self, program: str) -> bool:
        """Whether a program of the trace was attached at its last report."""
        return self._last is not None and program in self._last.programs

    def loss_limitations(self, start_ns: int, end_ns: int) -> list[str]:
        """Limitations for what was lost in a time."""
        samples = self._lost.samples(start_ns, end_ns)
        if not samples:
            return []
        pairs = zip(samples[0][1], samples[-1][1], strict=True)
        operations, transferred, sessions, events = (after - before for before, after in pairs)
        found = []
        if operations > 0:
            found.append(
                f"files of {plural(operations, 'operation')} and {size(transferred)}: the trace had no space for them"
            )
        if sessions > 0:
            found.append(f"details of {plural(sessions, 'small file')}: too many at once, they were only counted")
        if events > 0:
            found.append(f"{plural(events, 'event')} (names, syncs, renames, last operations): too many at once")
        return found
