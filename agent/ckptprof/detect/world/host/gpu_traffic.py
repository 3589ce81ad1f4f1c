"""Bytes that GPUs sent over PCIe (copies from GPU to host), and who uses GPUDirect Storage."""

from __future__ import annotations

from collections.abc import Iterable

from ckptprof.detect.world.bounded import MAX_ENTRIES, Bounded
from ckptprof.detect.world.counter_history import MAX_HISTORY_BYTES, CounterHistories, CounterHistory
from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.detect.world.keys import ProcessKey
from ckptprof_collectors.samples import FileScan, GpuUse

_HISTORY_BYTES = MAX_HISTORY_BYTES >> 4  # a sample each two seconds of a save


class GpuTraffic:
    """Recent history of each GPU, and the processes that use it."""

    def __init__(self) -> None:
        self._sent: CounterHistories[int] = CounterHistories(
            lambda: CounterHistory(1, rising=1, max_bytes=_HISTORY_BYTES)
        )
        self._gpus_by_process: Bounded[ProcessKey, set[int]] = Bounded(MAX_ENTRIES, set)

    def ingest(self, samples: FrameSamples) -> None:
        """Ingest the samples of a frame."""
        for one in samples.by_kind(GpuUse):
            if one.sent_bytes is None:
                continue
            self._gpus_by_process.touch((one.pid, one.start_ticks)).add(one.gpu)
            history = self._sent.touch(one.gpu)
            if history.last_ns < samples.at_ns:  # several processes report the same counter
                history.add(samples.at_ns, (one.sent_bytes,))

    def sent_bytes(self, processes: Iterable[ProcessKey], start_ns: int, end_ns: int) -> int | None:
        """Bytes sent by the GPUs of some processes, from the sample before a time to the last or one after another.

        None: no GPU was sampled both before the first time and since.
        """
        gpus = {gpu for process in processes for gpu in self._gpus_by_process[process]}
        found = [
            pair[1][0] - pair[0][0]
            for gpu in gpus
            if (history := self._sent[gpu]) and history.first_ns <= start_ns < history.last_ns
            if (pair := history.values_around(start_ns, end_ns)) is not None
        ]
        return sum(found) if found else None


class GpuDirectUsers:
    """The processes that use its driver, nvidia-fs."""

    def __init__(self) -> None:
        self._users: Bounded[ProcessKey, None] = Bounded(MAX_ENTRIES)

    def ingest(self, samples: FrameSamples) -> None:
        """Ingest the samples of a frame."""
        for scan in samples.by_kind(FileScan):
            if scan.gpudirect:
                self._users[scan.pid, scan.start_ticks] = None

    def __contains__(self, process: ProcessKey) -> bool:
        """Whether a process was observed with the driver open."""
        return process in self._users
