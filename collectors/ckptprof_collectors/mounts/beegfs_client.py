"""The client of BeeGFS: its connections with each storage server (client_module/.../ProcFsHelper.c).

    storage1 [ID: 1]
       Connections: TCP: 4 (10.0.0.3:8003 [fallback route]); RDMA: 8 (10.0.0.3:8003);

It counts neither bytes nor requests. A connection by another route than the preferred one is marked as a fallback.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress

from ckptprof_collectors.kernelfs import KernelFs, read_limited, read_text
from ckptprof_collectors.samples import ClientSample, ClientTarget, MountInfo, text

MAX_SERVERS = 256
_NODE = re.compile(rb"^(\S+) \[ID: [^\]\n]*\]\n(?:   Root: [^\n]*\n)?   Connections: ([^\n]*)", re.MULTILINE)
_CONNECTIONS = re.compile(rb"(TCP|RDMA): (\d{1,9})(?: \(([^);\s]*)( \[fallback route\])?\))?;")
_OPTIONS = re.compile(rb"^(connUseRDMA|connTCPFallbackEnabled) = ([01])$", re.MULTILINE)
_LIMITATIONS = ("bytes and requests: the client of BeeGFS counts none",)


class BeegfsClients:
    """Reads the only mounted BeeGFS; with several, mounts cannot be assigned to clients."""

    def __init__(self, fs: KernelFs) -> None:
        """Open nothing."""
        self._folder = fs.proc / "fs/beegfs"
        self._version = fs.sys / "module/beegfs/version"

    def read(self, mounts: Sequence[MountInfo]) -> Sequence[ClientSample]:
        """Sample the connections."""
        devices = {(mount.major, mount.minor) for mount in mounts}
        folders = []
        with suppress(OSError):
            folders = [one for one in os.listdir(self._folder) if (self._folder / one / "storage_nodes").exists()]
        if len(devices) != 1 or len(folders) != 1:
            return []
        folder = self._folder / folders[0]
        try:
            nodes = read_limited(folder / "storage_nodes")
        except OSError:  # it has been unmounted
            return []
        config = interfaces = b""
        with suppress(OSError):
            config, interfaces = read_limited(folder / "config"), read_limited(folder / "client_info")
        targets = [_target(*one) for one in _NODE.findall(nodes)][:MAX_SERVERS]
        used = {name for one in targets for name in ("rdma", "tcp") if one.gauges[f"{name}_connections"]}
        settings = {name.decode(): int(value) for name, value in _OPTIONS.findall(config)}
        (device,) = devices
        return [
            ClientSample(
                *device,
                client=f"beegfs {read_text(self._version) or ''}".strip(),
                transport=min(used, default=None),
                targets=tuple(targets),
                settings={**settings, "rdma_interfaces": interfaces.count(b"type: RDMA")},
                limitations=_LIMITATIONS,
                file_system=read_text(folder / "fs_uuid") or None,
            )
        ]

    def close(self) -> None:
        """Nothing is open."""


def _target(name: bytes, connections: bytes) -> ClientTarget:
    gauges = {"rdma_connections": 0, "tcp_connections": 0, "fallback_connections": 0}
    address = None
    for kind, count, peer, fallback in _CONNECTIONS.findall(connections):
        gauges[f"{kind.decode().lower()}_connections"] = int(count)
        gauges["fallback_connections"] += int(count) if fallback else 0
        address = text(peer.rpartition(b":")[0].strip(b"[]")) or address
    return ClientTarget(text(name), address=address, gauges=gauges)
