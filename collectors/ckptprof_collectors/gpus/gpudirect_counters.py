"""Counters of GPUDirect Storage: /proc/driver/nvidia-fs/stats (NVIDIA/gds-nvidia-fs, src/nvfs-stat.c).

With this driver cuFile transfers data between GPU and storage in an ioctl(2), which the kernel does not count. Without
the module parameter `rw_stats_enabled`, which is never set here, the driver counts errors only. Where a GPU's memory is
registered for peer-to-peer DMA of PCI, cuFile needs no driver, and makes ordinary direct calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ckptprof_collectors.kernelfs import KernelFile, KernelFs, UnavailableError, parse_counter, read_text
from ckptprof_collectors.samples import GpuDirectSample, Sample, text

MIB = 1 << 20  # the driver's unit
REOPEN_SECONDS = 10.0  # between attempts after the driver was unloaded
_NVIDIA = "0x10de"
_MAX_MIB = (1 << 63) // MIB
_MAX_VERSION_CHARACTERS = 64
_PAGES = (b"pg-cache", b"pg-cache-fail", b"pg-cache-eio")


class GpuDirectReader:
    """Reports the counters of the driver when they changed."""

    name = "gpudirect"

    def __init__(self, fs: KernelFs, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Open the statistics; raises UnavailableError if no GPU data bypasses the host memory."""
        self._peer_memory = _has_peer_memory(fs)
        self._previous: GpuDirectSample | None = None
        self._file: KernelFile | None = None
        self._path = fs.proc / "driver/nvidia-fs/stats"
        self._clock = clock
        self._next_open: float | None = None  # once its driver was unloaded
        try:
            self._file = KernelFile(self._path)
        except OSError as error:
            if not self._peer_memory:
                reason = "no nvidia-fs, and no memory of a GPU for peer-to-peer DMA: there is no GPUDirect Storage"
                raise UnavailableError(reason) from error

    @property
    def has_driver(self) -> bool:
        """The driver is loaded: data may be transferred without counted calls."""
        return self._file is not None

    def read(self) -> Sequence[Sample] | None:
        """Sample the counters if they changed; None: the driver was unloaded, for which OSError was raised once."""
        if self._next_open is not None and not self._reopen(self._next_open):
            return None
        try:
            current = self.sample()
        except OSError:
            self.close()
            self._file = None
            self._next_open = self._clock() + REOPEN_SECONDS
            raise
        if current == self._previous:
            return []
        self._previous = current
        return [current]

    def _reopen(self, at: float) -> bool:
        now = self._clock()
        if now < at:
            return False
        try:
            self._file = KernelFile(self._path)
        except OSError:
            self._next_open = now + REOPEN_SECONDS
            return False
        self._next_open = None
        return True

    def sample(self) -> GpuDirectSample:
        """Read the counters; raises OSError."""
        return parse(b"" if self._file is None else self._file.read(), peer_memory=self._peer_memory)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def parse(raw: bytes, *, peer_memory: bool = False) -> GpuDirectSample:
    """Parse the statistics, of either form."""
    version: str | None = None
    counts = False
    counted: dict[bytes, dict[bytes, int | None]] = {}
    for line in raw.splitlines():
        if line.startswith(b"NVFS Driver(version:"):
            version = text(line.partition(b":")[2].strip().rstrip(b")"))[:_MAX_VERSION_CHARACTERS]
        elif line.startswith(b"IO stats:"):
            counts = line.partition(b":")[2].split(b",")[0].strip() == b"Enabled"
        kind, _, rest = line.partition(b":")
        if kind.strip() in (b"Reads", b"Writes") and b"err=" in rest:
            pairs = (word.partition(b"=") for word in rest.split())
            counted[kind.strip()] = {key: parse_counter(value) for key, _, value in pairs}
    reads, writes = counted.get(b"Reads", {}), counted.get(b"Writes", {})
    errors = [value for one in (reads, writes) if (value := one.get(b"err")) is not None]
    pages = [value for key in _PAGES if (value := writes.get(key)) is not None]
    return GpuDirectSample(
        driver=version,
        counts=counts,
        peer_memory=peer_memory,
        reads=reads.get(b"n"),
        read_bytes=_bytes(reads.get(b"readMiB")),
        writes=writes.get(b"n"),
        written_bytes=_bytes(writes.get(b"writeMiB")),
        errors=sum(errors) if errors else None,
        cached=sum(pages) if pages else None,
    )


def _bytes(mebibytes: int | None) -> int | None:
    return None if mebibytes is None or mebibytes >= _MAX_MIB else mebibytes * MIB


def _has_peer_memory(fs: KernelFs) -> bool:
    """Test whether memory of a GPU is registered for peer-to-peer DMA (drivers/pci/p2pdma.c, `p2pmem` in sysfs)."""
    try:
        devices = [pool.parent for pool in (fs.sys / "bus/pci/devices").glob("*/p2pmem")]
    except OSError:
        return False
    return any(read_text(device / "vendor") == _NVIDIA for device in devices)
