"""The samples of one frame, by kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ckptprof.detect.world.keys import ProcessKey
from ckptprof_collectors.samples import Frame, PreviousRead, Sample

S = TypeVar("S", bound=Sample)


class FrameSamples:
    """Samples of one frame, and when each collector was read before: what it did not report had not changed."""

    def __init__(self, frame: Frame, read_ns: dict[str, int]) -> None:
        """`read_ns`: when each collector was last read before this frame."""
        self.at_ns = frame.at_ns
        self._read_ns = read_ns
        self._by_kind: dict[type, list[Any]] = {}
        for sample in frame.samples:
            self._by_kind.setdefault(type(sample), []).append(sample)
        self._read_before = {(one.pid, one.start_ticks): one.at_ns for one in self.by_kind(PreviousRead)}

    def by_kind(self, kind: type[S]) -> Sequence[S]:
        """Select the samples of one kind, in order."""
        return self._by_kind.get(kind, ())

    def replace_samples(self, kind: type[S], change: Callable[[S], S]) -> None:
        """Replace each sample of one kind by the result of a function."""
        self._by_kind[kind] = [change(sample) for sample in self.by_kind(kind)]

    def unchanged_ns(self, collector: str) -> int:
        """Time until which nothing that a collector reports had changed; 0: first read."""
        return self._read_ns.get(collector, 0)

    def counted_before_ns(self, process: ProcessKey) -> int:
        """When the counters of a process were read before: idle processes are not read at each tick."""
        return self._read_before.get(process, self.unchanged_ns("processes"))
