"""The host's memory during a checkpoint: dirty pages, their limits, and how long work was stalled (PSI)."""

from __future__ import annotations

from ckptprof.detect.world.counter_history import UNOBSERVED, CounterHistory
from ckptprof.measures import MemoryMeasure
from ckptprof_collectors.samples import MemorySample


class HostMemoryHistory:
    """Recent history of the host's memory."""

    def __init__(self) -> None:
        self._history = CounterHistory(11)

    def observe(self, at_ns: int, sample: MemorySample) -> None:
        """Ingest one sample."""
        dirty = None
        if sample.dirty_bytes is not None:
            dirty = sample.dirty_bytes + (sample.writeback_bytes or 0)
        values = (
            sample.total_bytes, sample.available_bytes, dirty, sample.dirty_threshold_bytes,
            sample.dirty_background_threshold_bytes, sample.psi_io_some_us, sample.psi_io_full_us,
            sample.psi_memory_some_us, sample.psi_memory_full_us,
            sample.shared_bytes, sample.locked_bytes,
        )  # fmt: skip
        self._history.add(at_ns, values)

    def between(self, start_ns: int, end_ns: int) -> MemoryMeasure | None:
        """Measure memory in a time, samples around it included; None: not sampled."""
        values = [values for _, values in self._history.samples(start_ns, end_ns + 1)]
        if not values or self._history.first_ns >= end_ns:
            return None
        observed = ([value for value in column if value < UNOBSERVED] for column in zip(*values, strict=True))
        total, available, dirty, threshold, background, *_, shared, locked = observed
        start_ns = max(start_ns, self._history.first_ns)
        stall_counters = zip(self._history.at(start_ns)[5:9], self._history.at(end_ns)[5:9], strict=True)
        io_some, io_full, memory_some, memory_full = (_share(*pair, end_ns - start_ns) for pair in stall_counters)
        return MemoryMeasure(
            total_bytes=max(total, default=None),
            available_min_bytes=min(available, default=None),
            dirty_max_bytes=max(dirty, default=None),
            dirty_threshold_bytes=min(threshold, default=None),
            dirty_background_bytes=min(background, default=None),
            io_some_share=io_some,
            io_full_share=io_full,
            memory_some_share=memory_some,
            memory_full_share=memory_full,
            shared_before_bytes=next(iter(shared), None),
            shared_peak_bytes=max(shared, default=None),
            locked_peak_bytes=max(locked, default=None),
        )


def _share(before: float, after: float, span_ns: int) -> float | None:
    """Share of a time in which work was stalled, by a counter of microseconds."""
    if span_ns <= 0 or after >= UNOBSERVED or before >= UNOBSERVED or after < before:
        return None
    return min(1.0, (after - before) * 1000 / span_ns)
