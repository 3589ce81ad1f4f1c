"""When the sampler was late, or left work out, by its own counters: events in that time may have been missed."""

from __future__ import annotations

from collections import deque

from ckptprof.detect.tolerances import EDGE_TOLERANCE_NS, MAX_POINTS, NEARBY_NS
from ckptprof.model import LEFT_OUT
from ckptprof_collectors.samples import SamplerHealth

_REASON = "the sampler was late: blocked by a process, on an overloaded host, or with too much to read"


class Starvation:
    """The spans from when a tick was due until it ran."""

    def __init__(self) -> None:
        self._spans: deque[tuple[int, int]] = deque(maxlen=MAX_POINTS)
        self._starved_ns = 0
        self._omissions: deque[tuple[int, int, tuple[str, ...]]] = deque(maxlen=MAX_POINTS)
        self._left_out: dict[str, int] = {}
        self._health_ns = 0

    def observe(self, at_ns: int, health: SamplerHealth) -> None:
        """Ingest the sampler's counters; those of a late tick arrive with it."""
        starved_ns = health.starved_ns or 0
        if starved_ns > self._starved_ns:
            self._spans.append((at_ns - (starved_ns - self._starved_ns), at_ns))
        self._starved_ns = starved_ns
        left_out = {work: times for work, times in (health.left_out or {}).items() if work != "files"}
        if more := tuple(work for work, times in left_out.items() if times > self._left_out.get(work, 0)):
            self._omissions.append((self._health_ns or at_ns, at_ns, more))
        self._left_out, self._health_ns = left_out, at_ns

    def late_ns(self, start_ns: int, end_ns: int) -> int:
        """Time without samples within a span."""
        return sum(max(0, min(end, end_ns) - max(start, start_ns)) for start, end in self._spans)

    def limitations_during(self, start_ns: int, end_ns: int, *, polled: bool = False) -> list[str]:
        """Limitations of what happened in a time, if `polled` also at its edges; empty if all samples came on time."""
        return [*self._lateness_during(start_ns, end_ns, polled=polled), *self._omissions_during(start_ns, end_ns)]

    def _omissions_during(self, start_ns: int, end_ns: int) -> list[str]:
        every = [work for start, end, some in self._omissions if start <= end_ns and end >= start_ns for work in some]
        return [f"{', '.join(dict.fromkeys(every))}: {LEFT_OUT}"] if every else []

    def _lateness_during(self, start_ns: int, end_ns: int, *, polled: bool) -> list[str]:
        late_ns = self.late_ns(start_ns, end_ns)
        if late_ns >= max(1, min(NEARBY_NS, end_ns - start_ns)):
            return [f"what happened in {late_ns / 1e9:.1f} s: {_REASON}"]
        edges = [
            end - start
            for start, end in self._spans
            if start <= end_ns + EDGE_TOLERANCE_NS and end >= start_ns - EDGE_TOLERANCE_NS
        ]
        if polled and sum(edges) >= NEARBY_NS:
            return [f"whether it extends into {sum(edges) / 1e9:.1f} s before or after: {_REASON}"]
        return []

    def forget_before(self, at_ns: int) -> None:
        """Drop older spans."""
        while self._spans and self._spans[0][1] < at_ns:
            self._spans.popleft()
        while self._omissions and self._omissions[0][1] < at_ns:
            self._omissions.popleft()
