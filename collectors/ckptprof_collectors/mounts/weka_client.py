"""State of the WekaFS client, the only value that its driver shows in a file: /proc/wekafs/interface.

Its data goes through its own processes, by DPDK, which bypasses the kernel, or by UDP.
"""

from __future__ import annotations

from collections.abc import Sequence

from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.samples import ClientSample, MountInfo

_ALTERNATIVE = "`weka stats --category ops_driver` has them"
_LIMITATIONS = (f"bytes and requests of WekaFS, and over DPDK also their network traffic: {_ALTERNATIVE}",)


class WekaClients:
    """Reads all WekaFS mounts."""

    def __init__(self, fs: KernelFs) -> None:
        """Open nothing."""
        self._interface = fs.proc / "wekafs/interface"

    def read(self, mounts: Sequence[MountInfo]) -> Sequence[ClientSample]:
        """Sample that the client is up."""
        if not self._interface.exists():
            return []
        devices = sorted({(mount.major, mount.minor) for mount in mounts})
        return [ClientSample(*device, client="weka", limitations=_LIMITATIONS) for device in devices]

    def close(self) -> None:
        """Nothing is open."""
