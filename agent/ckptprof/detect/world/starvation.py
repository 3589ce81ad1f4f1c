"""When the sampler came late, by its own account: what happened meanwhile may have been missed."""

from __future__ import annotations

from collections import deque

from ckptprof.detect.tolerances import MAX_POINTS, NEAR_NS
from ckptprof_collectors.samples import SamplerHealth


class Starvation:
    """The spans between the time at which a tick was due and the time at which it came."""

    def __init__(self) -> None:
        """Start with none."""
        self._spans: deque[tuple[int, int]] = deque(maxlen=MAX_POINTS)
        self._starved_ns = 0

    def observe(self, at_ns: int, health: SamplerHealth) -> None:
        """Take one account; that of a late tick comes with it."""
        starved_ns = health.starved_ns or 0
        if starved_ns > self._starved_ns:
            self._spans.append((at_ns - (starved_ns - self._starved_ns), at_ns))
        self._starved_ns = starved_ns

    def during(self, start_ns: int, end_ns: int) -> list[str]:
        """Return the sentence for what went on in this time, none if the sampler came in time."""
        late_ns = sum(max(0, min(end, end_ns) - max(start, start_ns)) for start, end in self._spans)
        if late_ns < max(1, min(NEAR_NS, end_ns - start_ns)):
            return []
        seconds = f"{late_ns / 1e9:.1f} s"
        why = "held by a process, on a crowded host or with too much to read"
        return [f"what went on in {seconds} of it: the sampler came late, {why}"]

    def forget_before(self, at_ns: int) -> None:
        """Drop what is older."""
        while self._spans and self._spans[0][1] < at_ns:
            self._spans.popleft()
