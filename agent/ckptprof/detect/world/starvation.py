"""When the sampler was late or left work out, by its own counters, or the recorder was: less is known of that time."""

from __future__ import annotations

from collections import deque

import msgspec

from ckptprof.detect.tolerances import EDGE_TOLERANCE_NS, MAX_POINTS, NEARBY_NS, PATIENCE_NS
from ckptprof.detect.world.counter_history import CounterHistory
from ckptprof.model import LATE, LEFT_OUT, Evidence
from ckptprof.units import percent
from ckptprof_collectors.samples import Frame, SamplerHealth, StackSample, ThreadSample

FAR_BEHIND_NS = PATIENCE_NS
DESCRIPTIONS = "thread states and Python stacks"
_REASON = "the sampler was late: blocked by a process, on an overloaded host, or with too much to read"


class Starvation:
    """The spans from when a tick was due until it ran."""

    def __init__(self) -> None:
        self._spans: deque[tuple[int, int]] = deque(maxlen=MAX_POINTS)
        self._starved_ns = 0
        self.behind_ns = 0  # how far the recorder is behind; 0: less than 10 s
        self._brief: deque[tuple[int, int]] = deque(maxlen=MAX_POINTS)  # spans from one frame to the next
        self._omissions: deque[tuple[int, int, tuple[str, ...]]] = deque(maxlen=MAX_POINTS)
        self._counts = CounterHistory(2, rising=2)  # ticks, and those whose frames the sampler dropped
        self._left_out: dict[str, int] = {}
        self._health_ns = 0

    def shorten(self, frame: Frame, previous_ns: int, behind_ns: int) -> Frame:
        """Return a frame that arrived so late, without the samples that only describe if that is far too late."""
        self.behind_ns = behind_ns
        if behind_ns < FAR_BEHIND_NS:
            return frame
        self._brief.append((previous_ns, frame.at_ns))
        kept = tuple(sample for sample in frame.samples if not isinstance(sample, ThreadSample | StackSample))
        return msgspec.structs.replace(frame, samples=kept)

    def observe(self, at_ns: int, health: SamplerHealth) -> None:
        """Ingest the sampler's counters; those of a late tick arrive with it."""
        starved_ns = health.starved_ns or 0
        if starved_ns > self._starved_ns:
            self._spans.append((at_ns - (starved_ns - self._starved_ns), at_ns))
        self._starved_ns = starved_ns
        left_out = {work: times for work, times in (health.left_out or {}).items() if work != "files"}
        if more := tuple(work for work, times in left_out.items() if times > self._left_out.get(work, 0)):
            self._omissions.append((self._health_ns or at_ns, at_ns, more))
        self._counts.add(at_ns, (health.ticks, health.dropped_frames))
        self._left_out, self._health_ns = left_out, at_ns

    def late_ns(self, start_ns: int, end_ns: int) -> int:
        """Time without samples within a span."""
        return sum(max(0, min(end, end_ns) - max(start, start_ns)) for start, end in self._spans)

    def lost_share(self, start_ns: int, end_ns: int) -> float:
        """Return the share of the samples within a span that were lost."""
        ticks, lost = self._counts.difference(start_ns, end_ns) or (0, 0)
        return lost / max(ticks, lost) if lost else 0.0

    def limitations_during(self, start_ns: int, end_ns: int, *, polled: bool = False) -> list[str]:
        """Limitations of what happened in a time, if `polled` also at its edges; empty if all samples came on time."""
        return [*self._lateness_during(start_ns, end_ns, polled=polled), *self._omissions_during(start_ns, end_ns)]

    def _omissions_during(self, start_ns: int, end_ns: int) -> list[str]:
        every = [work for start, end, some in self._omissions if start <= end_ns and end >= start_ns for work in some]
        omitted, lost = ", ".join(dict.fromkeys(every)), self.lost_share(start_ns, end_ns)
        losses = [f"{percent(lost)} of its samples: lost, because the recorder was too slow"] if lost else []
        return [*losses, *([f"{omitted}: {LEFT_OUT}"] if omitted else [])]

    def _lateness_during(self, start_ns: int, end_ns: int, *, polled: bool) -> list[str]:
        late_ns = self.late_ns(start_ns, end_ns)
        brief = any(start <= end_ns and end >= start_ns for start, end in self._brief)
        left_out = [f"{DESCRIPTIONS}: left out, because the recorder was far behind"] if brief else []
        if late_ns >= max(1, min(NEARBY_NS, end_ns - start_ns)):
            return [f"what happened in {late_ns / 1e9:.1f} s: {_REASON}", *left_out]
        edges = [
            end - start
            for start, end in self._spans
            if start <= end_ns + EDGE_TOLERANCE_NS and end >= start_ns - EDGE_TOLERANCE_NS
        ]
        if polled and sum(edges) >= NEARBY_NS:
            return [f"whether it extends into {sum(edges) / 1e9:.1f} s before or after: {_REASON}", *left_out]
        return left_out

    @property
    def late_evidence(self) -> list[Evidence]:
        """Evidence that a decision comes late; empty if it does not."""
        text = f"decided while the recorder was up to {self.behind_ns / 1e9:.0f} s behind"
        return [Evidence(name=LATE, weight=0.0, text=text)] if self.behind_ns else []

    def forget_before(self, at_ns: int) -> None:
        """Drop older spans."""
        for spans in (self._spans, self._brief, self._omissions):
            while spans and spans[0][1] < at_ns:
                spans.popleft()
