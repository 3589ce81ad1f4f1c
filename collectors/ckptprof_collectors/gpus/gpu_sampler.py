"""Utilisation of the GPUs that some processes use, from the driver's samples of the last seconds.

A faulty driver may take seconds to answer: it is queried in a separate thread, without waiting.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Mapping

from ckptprof_collectors.abandoned import ABANDONED
from ckptprof_collectors.gpus.nvml import NvmlGpus
from ckptprof_collectors.privileges import RAISED
from ckptprof_collectors.samples import GpuUse

NAME = "gpus"
HUNG_NS = 10_000_000_000


class GpuSampler:
    """Takes one sample at a time; further requests are refused, and all of them where there is no driver."""

    def __init__(self) -> None:
        self._gpus = NvmlGpus()
        self._requests: queue.Queue[dict[int, int]] = queue.Queue(1)
        self._samples: deque[GpuUse] = deque(maxlen=256)
        self._thread: threading.Thread | None = None
        self._busy = False
        self._requested_ns = 0
        self._hung: str | None = None

    def request(self, starts: Mapping[int, int]) -> bool:
        """Request the GPUs of these pids (with their start in ticks); never waits. Returns False if refused."""
        if self._busy or not starts or self._gpus.reason is not None:
            self._abandon_if_hung()
            return False
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=NAME, daemon=True)
            self._thread.start()
        self._busy, self._requested_ns, self._hung = True, time.monotonic_ns(), None
        self._requests.put_nowait(dict(starts))
        return True

    def consume(self) -> list[GpuUse]:
        found = []
        while self._samples:
            found.append(self._samples.popleft())
        return found

    def failure_reason(self) -> str | None:
        """Why a present driver shows nothing; None where there is no driver."""
        return self._hung or (self._gpus.reason if self._gpus.has_library else None)

    def _abandon_if_hung(self) -> None:
        if self._busy and self._hung is None and time.monotonic_ns() - self._requested_ns > HUNG_NS:
            self._hung = f"the NVIDIA driver has not answered for {HUNG_NS // 1_000_000_000} s"
            requested_ns = self._requested_ns
            ABANDONED.add(NAME, lambda: not self._busy or self._requested_ns != requested_ns)

    def _run(self) -> None:
        RAISED.lower()  # a thread starts with the capabilities of the tick that started it
        while self._gpus.reason is None:
            self._samples.extend(self._sample(self._requests.get()))
            self._busy = False

    def _sample(self, starts: dict[int, int]) -> list[GpuUse]:
        try:
            return self._gpus.read_use(starts)
        except Exception as error:  # noqa: BLE001 - a faulty driver ends these samples, and nothing else
            self._gpus.reason = f"NVML: {error!r}"
            return []
