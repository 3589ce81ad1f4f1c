"""GPUDirect Storage on this host: who has its driver open, and what that counted while a checkpoint went on."""

from __future__ import annotations

from enum import IntEnum

from ckptprof.detect.world.bounded import MAX_THINGS, Bounded
from ckptprof.detect.world.counter_history import UNSEEN, CounterHistory
from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.measures import GpuDirectMeasure
from ckptprof_collectors.samples import FileScan, GpuDirectSample

_Column = IntEnum("_Column", "READS READ_BYTES WRITES WRITTEN_BYTES ERRORS CACHED", start=0)


class GpuDirect:
    """The recent past of its counters, and its users."""

    def __init__(self) -> None:
        self._users: Bounded[ProcessKey, None] = Bounded(MAX_THINGS)
        self._past = CounterHistory(len(_Column), rising=len(_Column))
        self.last: GpuDirectSample | None = None

    def take(self, samples: FrameSamples) -> None:
        """Take what a frame tells of it."""
        for scan in samples.of(FileScan):
            if scan.gpudirect:
                self._users[scan.pid, scan.start_ticks] = None
        for one in samples.of(GpuDirectSample):
            self.last = one
            told = one.reads, one.read_bytes, one.writes, one.written_bytes, one.errors, one.cached
            values = tuple(UNSEEN if value is None else value for value in told)
            self._past.add(samples.at_ns, values, samples.unchanged_ns("gpudirect"))

    def is_used_by(self, process: ProcessKey) -> bool:
        """Return whether a process was seen with the driver open."""
        return process in self._users

    def measure(self, start_ns: int, end_ns: int) -> GpuDirectMeasure | None:
        """Return what the driver counted from one time to another; None: it is not there, or was not looked at."""
        measured = self._past.measured(start_ns, end_ns)
        if measured is None or self.last is None or self.last.driver is None:
            return None
        added = [
            None if last >= UNSEEN else round(value) for last, value in zip(self._past.last, measured[2], strict=True)
        ]
        return GpuDirectMeasure(
            reads=added[_Column.READS],
            read_bytes=added[_Column.READ_BYTES],
            writes=added[_Column.WRITES],
            written_bytes=added[_Column.WRITTEN_BYTES],
            errors=added[_Column.ERRORS],
            cached=added[_Column.CACHED],
        )
