"""GPUDirect Storage on this host: the users of its driver, and its counters during a checkpoint."""

from __future__ import annotations

from ckptprof.detect.world.bounded import MAX_ENTRIES, Bounded
from ckptprof.detect.world.counter_history import UNOBSERVED, CounterHistory
from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.measures import GpuDirectMeasure
from ckptprof_collectors.samples import FileScan, GpuDirectSample

_COUNTED = GpuDirectMeasure.__struct_fields__  # under the names that its samples have


class GpuDirectHistory:
    """Recent history of its counters, and its users."""

    def __init__(self) -> None:
        self._users: Bounded[ProcessKey, None] = Bounded(MAX_ENTRIES)
        self._history = CounterHistory(len(_COUNTED), rising=len(_COUNTED))
        self.last_sample: GpuDirectSample | None = None

    def ingest(self, samples: FrameSamples) -> None:
        """Ingest the samples of a frame."""
        for scan in samples.by_kind(FileScan):
            if scan.gpudirect:
                self._users[scan.pid, scan.start_ticks] = None
        for one in samples.by_kind(GpuDirectSample):
            self.last_sample = one
            counters = (getattr(one, name) for name in _COUNTED)
            values = tuple(UNOBSERVED if value is None else value for value in counters)
            self._history.add(samples.at_ns, values, samples.unchanged_ns("gpudirect"))

    def is_used_by(self, process: ProcessKey) -> bool:
        """Whether a process was observed with the driver open."""
        return process in self._users

    def measure(self, start_ns: int, end_ns: int) -> GpuDirectMeasure | None:
        """Growth of the driver's counters in a time; None: no driver, or not sampled."""
        measured = self._history.measure(start_ns, end_ns)
        if measured is None or self.last_sample is None or self.last_sample.driver is None:
            return None
        each = zip(_COUNTED, self._history.last_values, measured[2], strict=True)
        return GpuDirectMeasure(**{name: None if last >= UNOBSERVED else round(added) for name, last, added in each})
