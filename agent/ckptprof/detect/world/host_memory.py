"""The host's memory while a checkpoint went on: what was dirty, what was in force, and how long work stood still."""

from __future__ import annotations

from ckptprof.detect.world.counter_history import CounterHistory
from ckptprof.measures import MemoryMeasure
from ckptprof_collectors.samples import MemorySample

_FAST_LOOKS, _SLOW_LOOKS, _SLOW_NS = 300, 900, 4_000_000_000
_NONE = (1 << 64) - 1
_TOTAL, _AVAILABLE, _DIRTY, _THRESHOLD, _BACKGROUND, _IO_SOME, _IO_FULL, _MEMORY_SOME, _MEMORY_FULL, _WIDTH = range(10)


class HostMemory:
    """The recent past of the host's memory."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._past = CounterHistory(_WIDTH, fast_looks=_FAST_LOOKS, slow_looks=_SLOW_LOOKS, slow_ns=_SLOW_NS)

    def learn(self, at_ns: int, sample: MemorySample) -> None:
        """Take one reading."""
        dirty = None
        if sample.dirty_bytes is not None:
            dirty = sample.dirty_bytes + (sample.writeback_bytes or 0)
        told = (
            sample.total_bytes, sample.available_bytes, dirty, sample.dirty_threshold_bytes,
            sample.dirty_background_threshold_bytes, sample.psi_io_some_us, sample.psi_io_full_us,
            sample.psi_memory_some_us, sample.psi_memory_full_us,
        )  # fmt: skip
        self._past.add(at_ns, tuple(_NONE if value is None else value for value in told))

    def between(self, start_ns: int, end_ns: int) -> MemoryMeasure | None:
        """Return what was seen from one time to another, the looks around it included; None: nothing."""
        looks = self._past.looks(start_ns, end_ns)
        pair = self._past.around(start_ns, end_ns)
        if not looks or pair is None or self._past.first_ns >= end_ns:
            return None
        values = [values for _, values in looks] + [pair[1]]
        return MemoryMeasure(
            total_bytes=_known(values[-1][_TOTAL]),
            available_min_bytes=min(
                (known for one in values if (known := _known(one[_AVAILABLE])) is not None), default=None
            ),
            dirty_max_bytes=max((known for one in values if (known := _known(one[_DIRTY])) is not None), default=None),
            dirty_threshold_bytes=min(
                (known for one in values if (known := _known(one[_THRESHOLD])) is not None), default=None
            ),
            dirty_background_bytes=min(
                (known for one in values if (known := _known(one[_BACKGROUND])) is not None), default=None
            ),
            io_some_share=self._share(_IO_SOME, start_ns, end_ns),
            io_full_share=self._share(_IO_FULL, start_ns, end_ns),
            memory_some_share=self._share(_MEMORY_SOME, start_ns, end_ns),
            memory_full_share=self._share(_MEMORY_FULL, start_ns, end_ns),
        )

    def _share(self, column: int, start_ns: int, end_ns: int) -> float | None:
        """Return the share of a time in which work stood still, of a counter of microseconds."""
        if end_ns <= start_ns:
            return None
        start_ns = max(start_ns, self._past.first_ns)
        before, after = self._past.at(start_ns)[column], self._past.at(end_ns)[column]
        if after >= _NONE or before >= _NONE or after < before or end_ns <= start_ns:
            return None
        return min(1.0, (after - before) * 1000 / (end_ns - start_ns))


def _known(value: int) -> int | None:
    return None if value == _NONE else value
