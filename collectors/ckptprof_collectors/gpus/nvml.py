"""On which GPUs some processes compute, and how busy those are, by NVIDIA's management library.

The library is told by the driver alone, so no binding of it is imported on a host without one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection
from typing import Any, NamedTuple

from ckptprof_collectors.gpus.pcie import Pcie

LIBRARY = "libnvidia-ml.so.1"
MAX_GPUS = 64
Points = list[tuple[int, int]]  # (microseconds of the wall clock, percent)


class Seen(NamedTuple):
    """What was seen of one GPU."""

    number: int
    pids: set[int]  # who of those that were asked for computes on it
    others: int  # how many do besides
    points: Points  # its use since it was told last
    moved: tuple[int, int] | None  # bytes that it sent and received over PCIe, cumulative


class Gpus:
    """The GPUs of this host. The driver is asked for at the first question, and not again where there is none."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._asked = False
        self._pcie: Pcie | None = None
        self._told_us: dict[int, int] = {}  # by GPU: up to when its use was told
        self.has_library = False
        self.reason: str | None = None  # why nothing is told

    def count(self) -> int | None:
        """Return how many GPUs there are; None: no driver, or it does not tell."""
        nvml = self._driver()
        if nvml is None:
            return None
        try:
            return int(nvml.nvmlDeviceGetCount())
        except nvml.NVMLError as error:
            self.reason = f"NVML: {error}"
            return None

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

    def busy(self, pids: Collection[int]) -> list[Seen]:
        """Return the GPUs on which one of these computes, with what was kept of their use since the last call.

        A point is the share in percent of the sixth of a second to a second before it in which a kernel ran, whoever's;
        some seconds of them are kept (nvmlDeviceGetSamples, NVML_GPU_UTILIZATION_SAMPLES, NVML API reference).
        """
        nvml = self._driver()
        if nvml is None or not pids:
            return []
        wanted, found = set(pids), []
        pcie = self._pcie = self._pcie or Pcie(nvml)
        try:
            for number in range(min(MAX_GPUS, nvml.nvmlDeviceGetCount())):
                handle = nvml.nvmlDeviceGetHandleByIndex(number)
                running = {one.pid for one in nvml.nvmlDeviceGetComputeRunningProcesses(handle)}
                own = wanted & running
                points = self._points(nvml, number, handle) if own else []
                moved = pcie.read(number, handle) if own else None
                if points or moved:
                    found.append(Seen(number, own, len(running - own), points, moved))
        except nvml.NVMLError as error:
            self.reason = f"NVML: {error}"
        return found

    def _points(self, nvml: Any, number: int, handle: Any) -> Points:
        since_us = self._told_us.get(number, 0)
        try:
            _, samples = nvml.nvmlDeviceGetSamples(handle, nvml.NVML_GPU_UTILIZATION_SAMPLES, since_us)
        except nvml.NVMLError_NotFound:  # nothing new
            return []
        points = sorted((int(one.timeStamp), int(one.sampleValue.uiVal)) for one in samples if one.timeStamp > since_us)
        if points:
            self._told_us[number] = points[-1][0]
        return points

    def _driver(self) -> Any:
        if self._asked:
            return self._nvml
        self._asked = True
        try:
            ctypes.CDLL(LIBRARY)
        except OSError:
            self.reason = f"no {LIBRARY}: there is no NVIDIA driver here"
            return None
        self.has_library = True
        try:
            import pynvml  # noqa: PLC0415 - only where there is a driver

            pynvml.nvmlInit()
        except Exception as error:  # noqa: BLE001 - a driver that is broken, or is not for us, is none
            self.reason = f"NVML: {error}"
            return None
        self._nvml = pynvml
        return pynvml
