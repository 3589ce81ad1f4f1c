"""How many requests of each FUSE mount wait for an answer (Documentation/filesystems/fuse.rst: fusectl).

`waiting` counts what was handed to the file system's process, or is about to be, and has no answer: a gauge of how long
it takes. The control file system is mounted by systemd on most hosts; where it is not, `waiting` is None.
"""

from __future__ import annotations

from collections.abc import Iterable

from ckptprof_collectors.kernelfs import KeptFile, KernelFs, whole
from ckptprof_collectors.samples import FuseSample

MAX_CONNECTIONS = 256
_MINOR_BITS = 20  # include/linux/kdev_t.h: a connection is named by its device number


def is_fuse(fs_type: bytes) -> bool:
    """Return whether a file system of this type has a FUSE connection."""
    return fs_type in {b"fuse", b"fuseblk", b"virtiofs"} or fs_type.startswith((b"fuse.", b"fuseblk."))


class FuseConnections:
    """Reads those of the mounts that are there."""

    def __init__(self, fs: KernelFs) -> None:
        self._folder = fs.sys / "fs" / "fuse" / "connections"
        self._files: dict[tuple[int, int], KeptFile | None] = {}
        self._last: dict[tuple[int, int], FuseSample] = {}

    def follow(self, devices: Iterable[tuple[int, int]]) -> None:
        """Take these (major, minor) of FUSE mounts for those that are there."""
        wanted = set(sorted(set(devices))[:MAX_CONNECTIONS])
        for device in [device for device in self._files if device not in wanted or self._files[device] is None]:
            self._drop(device)  # what could not be had may be there now
        for device in wanted - self._files.keys():
            major, minor = device
            try:
                self._files[device] = KeptFile(self._folder / str(major << _MINOR_BITS | minor) / "waiting", chunk=64)
            except OSError:
                self._files[device] = None
        self._last = {device: sample for device, sample in self._last.items() if device in wanted}

    def read(self) -> list[FuseSample]:
        samples = []
        for device, kept in self._files.items():
            sample = FuseSample(*device, None if kept is None else _number(kept))
            if sample != self._last.get(device):
                self._last[device] = sample
                samples.append(sample)
        return samples

    def _drop(self, device: tuple[int, int]) -> None:
        kept = self._files.pop(device)
        if kept is not None:
            kept.close()

    def close(self) -> None:
        for device in list(self._files):
            self._drop(device)


def _number(kept: KeptFile) -> int | None:
    try:
        return whole(kept.read().strip())
    except OSError:  # the connection has been aborted
        return None
