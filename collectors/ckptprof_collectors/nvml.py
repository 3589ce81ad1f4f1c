"""How many GPUs some processes compute on, by NVIDIA's management library; nothing where there is no driver.

The library is told by the driver alone, so no binding of it is imported on a host without one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
MAX_GPUS = 64


class Gpus:
    """The GPUs of this host. The driver is asked for at the first question, and not again where there is none."""

    def __init__(self) -> None:
        """Ask nothing yet."""
        self._nvml: Any = None
        self._asked = False
        self.reason: str | None = None  # why nothing is told

    def used_by(self, pids: Collection[int]) -> int | None:
        """Return on how many GPUs one of these processes computes; None: no driver, or it knows none of them.

        Pids are those of the pid namespace of the host, which is what the driver tells
        (nvmlDeviceGetComputeRunningProcesses, NVML API reference).
        """
        nvml = self._driver()
        if nvml is None or not pids:
            return None
        wanted, found = set(pids), 0
        try:
            for number in range(min(MAX_GPUS, nvml.nvmlDeviceGetCount())):
                handle = nvml.nvmlDeviceGetHandleByIndex(number)
                found += any(one.pid in wanted for one in nvml.nvmlDeviceGetComputeRunningProcesses(handle))
        except nvml.NVMLError as error:
            self.reason = f"NVML: {error}"
            return None
        return found or None

    def _driver(self) -> Any:
        if self._asked:
            return self._nvml
        self._asked = True
        try:
            ctypes.CDLL(LIBRARY)
        except OSError:
            self.reason = f"no {LIBRARY}: there is no NVIDIA driver here"
            return None
        try:
            import pynvml  # noqa: PLC0415 - only where there is a driver

            pynvml.nvmlInit()
        except Exception as error:  # noqa: BLE001 - a driver that is broken, or is not for us, is none
            self.reason = f"NVML: {error}"
            return None
        self._nvml = pynvml
        return pynvml
