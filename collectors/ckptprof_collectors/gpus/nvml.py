"""GPUs that some processes use, and their utilisation, by NVIDIA's management library (NVML).

The library works with the driver only: its binding is not imported on a host without one.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ckptprof_collectors.samples import GpuUse

LIBRARY = "libnvidia-ml.so.1"
MAX_GPUS = 64

_MIB = 1 << 20
_MAX_BYTES = 1 << 62  # bytes; more is nonsense


class PcieCounters:
    """Bytes that each GPU sent and received over PCIe since its first read: copies from and to its host.

    GPM (Hopper and newer) has the mean throughput between two of its own samples; otherwise the driver counts bytes
    (fields 197 and 198). The kind is determined once for each GPU.
    """

    def __init__(self, nvml: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._nvml = nvml
        self._clock = clock
        self._gpus: dict[int, _GpmCounter | _ByteCounter | None] = {}

    def read(self, number: int, handle: Any) -> tuple[int, int] | None:
        """Read (sent, received) of a GPU, cumulative; None: unknown, or the first call. Raises no NVMLError."""
        nvml = self._nvml
        try:
            if number not in self._gpus:
                self._gpus[number] = self._open_counter(handle)
                return None
            counter = self._gpus[number]
            return None if counter is None else counter.read(handle)
        except (nvml.NVMLError, AttributeError, ValueError, OverflowError):  # an older binding has none of these
            self._gpus[number] = None
            return None

    def _open_counter(self, handle: Any) -> _GpmCounter | _ByteCounter:
        nvml = self._nvml
        try:
            if nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
                return _GpmCounter(nvml, handle, self._clock)
        except (nvml.NVMLError, AttributeError):
            pass
        return _ByteCounter(nvml, handle)


class _GpmCounter:
    """A GPU with GPM: its previous sample, and the sums over all samples."""

    def __init__(self, nvml: Any, handle: Any, clock: Callable[[], float]) -> None:
        self._nvml, self._clock = nvml, clock
        self._metrics = nvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC, nvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC
        self._previous, self._next = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
        nvml.nvmlGpmSampleGet(handle, self._previous)
        self._at = clock()
        self._transferred = [0, 0]

    def read(self, handle: Any) -> tuple[int, int]:
        nvml = self._nvml
        nvml.nvmlGpmSampleGet(handle, self._next)
        now = self._clock()
        query = nvml.c_nvmlGpmMetricsGet_t()
        query.version, query.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, len(self._metrics)
        query.sample1, query.sample2 = self._previous, self._next
        for place, metric in enumerate(self._metrics):
            query.metrics[place].metricId = metric
        nvml.nvmlGpmMetricsGet(query)
        for place in range(len(self._metrics)):
            result = query.metrics[place]
            transferred = result.value * _MIB * (now - self._at)
            if result.nvmlReturn == nvml.NVML_SUCCESS and 0 <= transferred < _MAX_BYTES - self._transferred[place]:
                self._transferred[place] += int(transferred)
        self._previous, self._next, self._at = self._next, self._previous, now
        return self._transferred[0], self._transferred[1]


class _ByteCounter:
    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._fields = [nvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, nvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES]
        self.read(handle)

    def read(self, handle: Any) -> tuple[int, int]:
        """Read the counters; raises ValueError if the GPU does not have them."""
        values = self._nvml.nvmlDeviceGetFieldValues(handle, self._fields)
        if any(one.nvmlReturn != self._nvml.NVML_SUCCESS for one in values):
            raise ValueError
        sent, received = (int(one.value.ullVal) for one in values)
        return sent, received


class NvmlGpus:
    """The GPUs of this host. The driver is loaded at the first query, and not tried again if there is none."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._is_loaded = False
        self._pcie: PcieCounters | None = None
        self._reported_us: dict[int, int] = {}  # by GPU: time of the last reported point
        self.has_library = False
        self.reason: str | None = None  # why nothing is reported

    def count(self) -> int | None:
        """Count the GPUs; None: no driver, or no answer."""
        nvml = self._driver()
        if nvml is None:
            return None
        try:
            return int(nvml.nvmlDeviceGetCount())
        except nvml.NVMLError as error:
            self.reason = f"NVML: {error}"
            return None

    def count_used_by(self, pids: Collection[int]) -> int | None:
        """Count the GPUs on which one of these processes computes; None: no driver, or none of them does.

        Pids are those of the pid namespace of the host, as the driver has them
        (nvmlDeviceGetComputeRunningProcesses, NVML API reference).
        """
        nvml = self._driver()
        if nvml is None or not pids:
            return None
        job_pids, found = set(pids), 0
        try:
            for number in range(min(MAX_GPUS, nvml.nvmlDeviceGetCount())):
                handle = nvml.nvmlDeviceGetHandleByIndex(number)
                found += any(one.pid in job_pids for one in nvml.nvmlDeviceGetComputeRunningProcesses(handle))
        except nvml.NVMLError as error:
            self.reason = f"NVML: {error}"
            return None
        return found or None

    def read_use(self, starts: Mapping[int, int]) -> list[GpuUse]:
        """Read the use of the GPUs on which one of these pids (with its start in ticks) computes.

        A point is the percentage of the last sixth of a second to one second in which a kernel of any process ran; the
        driver buffers some seconds of them (nvmlDeviceGetSamples, NVML_GPU_UTILIZATION_SAMPLES, NVML API reference).
        """
        nvml = self._driver()
        if nvml is None or not starts:
            return []
        found: list[GpuUse] = []
        pcie = self._pcie = self._pcie or PcieCounters(nvml)
        behind_ns = time.time_ns() - time.monotonic_ns()  # the driver stamps by the wall clock
        try:
            for number in range(min(MAX_GPUS, nvml.nvmlDeviceGetCount())):
                handle = nvml.nvmlDeviceGetHandleByIndex(number)
                running = {one.pid for one in nvml.nvmlDeviceGetComputeRunningProcesses(handle)}
                own = sorted(starts.keys() & running)
                if not own:
                    continue
                new_points = self._new_points(nvml, number, handle)
                sent, received = pcie.read(number, handle) or (None, None)
                if new_points or sent is not None:
                    points = tuple((at_us * 1000 - behind_ns, percent) for at_us, percent in new_points)
                    others = len(running) - len(own)
                    found += [GpuUse(pid, starts[pid], number, points, others, sent, received) for pid in own]
        except nvml.NVMLError as error:
            self.reason = f"NVML: {error}"
        return found

    def _new_points(self, nvml: Any, number: int, handle: Any) -> list[tuple[int, int]]:
        """Read new points: (microseconds of the wall clock, percent)."""
        since_us = self._reported_us.get(number, 0)
        try:
            _, samples = nvml.nvmlDeviceGetSamples(handle, nvml.NVML_GPU_UTILIZATION_SAMPLES, since_us)
        except nvml.NVMLError_NotFound:  # nothing new
            return []
        points = sorted((int(one.timeStamp), int(one.sampleValue.uiVal)) for one in samples if one.timeStamp > since_us)
        if points:
            self._reported_us[number] = points[-1][0]
        return points

    def _driver(self) -> Any:
        if self._is_loaded:
            return self._nvml
        self._is_loaded = True
        try:
            ctypes.CDLL(LIBRARY)
        except OSError:
            self.reason = f"no {LIBRARY}: there is no NVIDIA driver here"
            return None
        self.has_library = True
        try:
            import pynvml  # noqa: PLC0415 - only where there is a driver

            pynvml.nvmlInit()
        except Exception as error:  # noqa: BLE001 - a broken or inaccessible driver counts as none
            self.reason = f"NVML: {error}"
            return None
        self._nvml = pynvml
        return pynvml
