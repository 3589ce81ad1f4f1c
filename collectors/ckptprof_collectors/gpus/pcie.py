"""What GPUs sent and received over PCIe, which copies between them and their host take (NVML API reference, GPM).

GPM tells the mean throughput between two samples of its own, however far apart they are (Hopper and newer); other
drivers count bytes (fields 197 and 198). Which of them a GPU has is asked first, and once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

_MIB = 1 << 20
_MOST = 1 << 62  # bytes; more is nonsense


class Pcie:
    """Keeps what each GPU sent and received since it was asked first."""

    def __init__(self, nvml: Any, clock: Callable[[], float] = time.monotonic) -> None:
        """Ask nothing yet; `nvml` is the binding of the driver."""
        self._nvml = nvml
        self._clock = clock
        self._gpus: dict[int, _Gpm | _Counters | None] = {}

    def read(self, number: int, handle: Any) -> tuple[int, int] | None:
        """Return (sent, received) of a GPU, cumulative; None: it does not tell, or has been asked for the first time.

        Never raises NVMLError.
        """
        nvml = self._nvml
        try:
            if number not in self._gpus:
                self._gpus[number] = self._begin(handle)
                return None
            known = self._gpus[number]
            return None if known is None else known.read(handle)
        except (nvml.NVMLError, AttributeError, ValueError, OverflowError):  # a binding of before knows none of it
            self._gpus[number] = None
            return None

    def _begin(self, handle: Any) -> _Gpm | _Counters:
        nvml = self._nvml
        try:
            if nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
                return _Gpm(nvml, handle, self._clock)
        except (nvml.NVMLError, AttributeError):
            pass
        return _Counters(nvml, handle)


class _Gpm:
    """A GPU with GPM: the sample of the look before, and what all looks came to."""

    def __init__(self, nvml: Any, handle: Any, clock: Callable[[], float]) -> None:
        self._nvml, self._clock = nvml, clock
        self._metrics = nvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC, nvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC
        self._before, self._next = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
        nvml.nvmlGpmSampleGet(handle, self._before)
        self._at = clock()
        self._moved = [0, 0]

    def read(self, handle: Any) -> tuple[int, int]:
        nvml = self._nvml
        nvml.nvmlGpmSampleGet(handle, self._next)
        now = self._clock()
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, len(self._metrics)
        asked.sample1, asked.sample2 = self._before, self._next
        for place, metric in enumerate(self._metrics):
            asked.metrics[place].metricId = metric
        nvml.nvmlGpmMetricsGet(asked)
        for place in range(len(self._metrics)):
            told = asked.metrics[place]
            moved = told.value * _MIB * (now - self._at)
            if told.nvmlReturn == nvml.NVML_SUCCESS and 0 <= moved < _MOST - self._moved[place]:
                self._moved[place] += int(moved)
        self._before, self._next, self._at = self._next, self._before, now
        return self._moved[0], self._moved[1]


class _Counters:
    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._fields = [nvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, nvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES]
        self.read(handle)

    def read(self, handle: Any) -> tuple[int, int]:
        """Return them; raises ValueError if it does not count them."""
        told = self._nvml.nvmlDeviceGetFieldValues(handle, self._fields)
        if any(one.nvmlReturn != self._nvml.NVML_SUCCESS for one in told):
            raise ValueError
        sent, received = (int(one.value.ullVal) for one in told)
        return sent, received
