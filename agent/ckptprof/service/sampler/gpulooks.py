"""When to ask how busy GPUs are: only while somebody writes, and once after; the driver keeps what was before."""

from __future__ import annotations

from ckptprof.service.sampler.stacklooks import WRITES_NS, line_of
from ckptprof.service.sampler.watching import Watching
from ckptprof_collectors.gpus.gpuuse import NAME, GpuLooker
from ckptprof_collectors.samples import Sample, Unavailable

EACH_NS = 2_000_000_000  # the driver keeps some seconds
AFTER_NS = 2_000_000_000


class GpuLooks:
    """Asks for the GPUs of those who write, and of their parents, who may be those that train."""

    def __init__(self) -> None:
        """Start with nobody writing."""
        self._looker = GpuLooker()
        self._wanted: dict[int, int] = {}  # pid -> start in ticks
        self._until_ns = 0
        self._next_ns = 0
        self._has_told = False

    def look(self, now_ns: int, watched: dict[int, Watching]) -> list[Sample]:
        """Ask for what is due and return what was seen; never waits."""
        for watching in watched.values():
            if now_ns - watching.wrote_ns <= WRITES_NS:
                self._wanted |= {one.process.pid: one.process.start_ticks for one in line_of(watching, watched)}
                self._until_ns = now_ns + AFTER_NS
        if self._wanted and now_ns >= self._next_ns and self._looker.ask(self._wanted):
            self._next_ns = now_ns + EACH_NS
            if now_ns >= self._until_ns:
                self._wanted = {}
        samples: list[Sample] = list(self._looker.take())
        reason = None if self._has_told else self._looker.take_reason()
        if reason is not None:
            self._has_told = True
            samples.append(Unavailable(NAME, reason))
        return samples
