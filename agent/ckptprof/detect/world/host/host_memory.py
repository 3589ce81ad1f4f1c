"""The host's memory while a checkpoint went on: what was dirty, what was in force, and how long work stood still."""

from __future__ import annotations

from ckptprof.detect.world.counter_history import SECOND_NS, UNSEEN, CounterHistory, Kept, known
from ckptprof.measures import MemoryMeasure
from ckptprof_collectors.samples import MemorySample

_KEPT = Kept(fast_looks=300, slow_looks=900, slow_ns=4 * SECOND_NS)
_TOTAL, _AVAILABLE, _DIRTY, _THRESHOLD, _BACKGROUND, _IO_SOME, _IO_FULL, _MEMORY_SOME, _MEMORY_FULL, _WIDTH = range(10)


class HostMemory:
    """The recent past of the host's memory."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._past = CounterHistory(_WIDTH, _KEPT)

    def observe(self, at_ns: int, sample: MemorySample) -> None:
        """Take one reading."""
        dirty = None
        if sample.dirty_bytes is not None:
            dirty = sample.dirty_bytes + (sample.writeback_bytes or 0)
        told = (
            sample.total_bytes, sample.available_bytes, dirty, sample.dirty_threshold_bytes,
            sample.dirty_background_threshold_bytes, sample.psi_io_some_us, sample.psi_io_full_us,
            sample.psi_memory_some_us, sample.psi_memory_full_us,
        )  # fmt: skip
        self._past.add(at_ns, tuple(UNSEEN if value is None else value for value in told))

    def between(self, start_ns: int, end_ns: int) -> MemoryMeasure | None:
        """Return what was seen from one time to another, the looks around it included; None: nothing."""
        looks = self._past.looks(start_ns, end_ns)
        pair = self._past.around(start_ns, end_ns)
        if not looks or pair is None or self._past.first_ns >= end_ns:
            return None
        values = [values for _, values in looks] + [pair[1]]
        return MemoryMeasure(
            total_bytes=known(values[-1][_TOTAL]),
            available_min_bytes=min(_seen(values, _AVAILABLE), default=None),
            dirty_max_bytes=max(_seen(values, _DIRTY), default=None),
            dirty_threshold_bytes=min(_seen(values, _THRESHOLD), default=None),
            dirty_background_bytes=min(_seen(values, _BACKGROUND), default=None),
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
        if after >= UNSEEN or before >= UNSEEN or after < before or end_ns <= start_ns:
            return None
        return min(1.0, (after - before) * 1000 / (end_ns - start_ns))


def _seen(looks: list[tuple[int, ...]], column: int) -> list[int]:
    return [look[column] for look in looks if known(look[column]) is not None]
