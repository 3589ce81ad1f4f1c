"""The samples of one frame, by kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ckptprof.detect.world.keys import ProcessKey
from ckptprof_collectors.samples import Frame, ReadBefore, Sample

S = TypeVar("S", bound=Sample)


class FrameSamples:
    """What one frame tells, and when each collector was read before: what it did not tell since had not changed."""

    def __init__(self, frame: Frame, read_ns: dict[str, int]) -> None:
        """Sort the samples of a frame; `read_ns`: when each collector was read last, before this frame."""
        self.at_ns = frame.at_ns
        self._read_ns = read_ns
        self._of: dict[type, list[Any]] = {}
        for sample in frame.samples:
            self._of.setdefault(type(sample), []).append(sample)
        self._read_before = {(one.pid, one.start_ticks): one.at_ns for one in self.of(ReadBefore)}

    def of(self, kind: type[S]) -> Sequence[S]:
        """Return the samples of one kind, in their order."""
        return self._of.get(kind, ())

    def change(self, kind: type[S], change: Callable[[S], S]) -> None:
        """Put what a function makes of each sample of one kind into its place."""
        self._of[kind] = [change(sample) for sample in self.of(kind)]

    def unchanged_ns(self, collector: str) -> int:
        """Return up to when nothing that a collector tells had changed since it told of it."""
        return self._read_ns.get(collector, 0)

    def counted_before_ns(self, process: ProcessKey) -> int:
        """Return when the counters of a process were read before: one that stands still is not read at each tick."""
        return self._read_before.get(process, self.unchanged_ns("processes"))
