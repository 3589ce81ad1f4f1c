"""The host's memory and writeback: /proc/meminfo, /proc/vmstat and pressure stall information."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ckptprof_collectors.kernelfs import PAGE_BYTES, KernelFile, KernelFs, UnavailableError, number_after
from ckptprof_collectors.samples import MemorySample, Sample, Unavailable

_KIB = 1024
_PSI_FILES = ("io", "memory", "cpu")  # the last is optional: it is not reported as missing


class HostMemory:
    """Reports one sample whenever any of its numbers changed."""

    name = "memory"

    def __init__(self, fs: KernelFs) -> None:
        """Open the files, pressure if it is on; raises UnavailableError without meminfo or vmstat."""
        try:
            self._meminfo = KernelFile(fs.proc / "meminfo")
        except OSError as error:
            raise UnavailableError(f"/proc/meminfo: {error.strerror}") from error
        try:
            self._vmstat = KernelFile(fs.proc / "vmstat")
        except OSError as error:
            self._meminfo.close()
            raise UnavailableError(f"/proc/vmstat: {error.strerror}") from error
        self._pressure: list[KernelFile | None] = []
        self._unreported: list[Sample] = []
        for file in _PSI_FILES:
            self._pressure.append(self._open_pressure(fs, file))
        self._previous: MemorySample | None = None

    def _open_pressure(self, fs: KernelFs, file: str) -> KernelFile | None:
        try:
            opened = KernelFile(fs.proc / "pressure" / file)
        except OSError as error:
            self._report_missing(file, error)
            return None
        try:
            opened.read()
        except OSError as error:  # before 5.2 the files are there although it is off, and reading fails: EOPNOTSUPP
            opened.close()
            self._report_missing(file, error)
            return None
        return opened

    def _report_missing(self, file: str, error: OSError) -> None:
        if file == _PSI_FILES[-1]:
            return
        reason = f"no pressure stall information: /proc/pressure/{file}: {error.strerror} (the kernel needs psi=1)"
        self._unreported.append(Unavailable(self.name, reason))

    def read(self) -> Sequence[Sample]:
        info, stat = self._meminfo.read(), self._vmstat.read()
        io, memory, cpu = (b"" if file is None else file.read() for file in self._pressure)
        current = MemorySample(
            total_bytes=number_after(info, b"MemTotal:", _KIB),
            available_bytes=number_after(info, b"MemAvailable:", _KIB),
            cached_bytes=number_after(info, b"\nCached:", _KIB),
            dirty_bytes=number_after(info, b"\nDirty:", _KIB),
            writeback_bytes=number_after(info, b"\nWriteback:", _KIB),
            dirtied_bytes=number_after(stat, b"\nnr_dirtied ", PAGE_BYTES),
            written_bytes=number_after(stat, b"\nnr_written ", PAGE_BYTES),
            dirty_threshold_bytes=number_after(stat, b"\nnr_dirty_threshold ", PAGE_BYTES),
            dirty_background_threshold_bytes=number_after(stat, b"\nnr_dirty_background_threshold ", PAGE_BYTES),
            major_faults=number_after(stat, b"\npgmajfault ", 1),
            psi_io_some_us=_stalled(io, b"some "),
            psi_io_full_us=_stalled(io, b"full "),
            psi_memory_some_us=_stalled(memory, b"some "),
            psi_memory_full_us=_stalled(memory, b"full "),
            psi_cpu_some_us=_stalled(cpu, b"some "),
            shared_bytes=number_after(info, b"\nShmem:", _KIB),
            locked_bytes=number_after(info, b"\nUnevictable:", _KIB),
            oom_kills=number_after(stat, b"\noom_kill ", 1),
        )
        samples, self._unreported = self._unreported, []
        compared = msgspec.structs.replace(current, psi_cpu_some_us=None)  # alone it is no news: some task always waits
        if compared != self._previous:
            self._previous = compared
            samples.append(current)
        return samples

    def close(self) -> None:
        for file in (self._meminfo, self._vmstat, *self._pressure):
            if file is not None:
                file.close()


def _stalled(data: bytes, line: bytes) -> int | None:
    """Total of a line of a pressure file in microseconds (Documentation/accounting/psi.rst)."""
    at = data.find(line)
    return None if at < 0 else number_after(data[at:], b"total=", 1)
