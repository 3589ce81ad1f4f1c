"""Counters of the clients of remote mounts: bytes, operations and their times, from each client's own files.

Nothing here touches a mount: these files are the client's own, and a hung server does not block their readers. Only the
clients of present mounts are read, while something trains or uses files there, with at most a hundredth of a core.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ckptprof_collectors.kernelfs import KernelFs, UnavailableError
from ckptprof_collectors.mounts.beegfs_client import BeegfsClients
from ckptprof_collectors.mounts.ceph_client import CephClients
from ckptprof_collectors.mounts.lustre_client import LustreClients
from ckptprof_collectors.mounts.nfs_client import NfsClients
from ckptprof_collectors.samples import ClientSample, MountInfo, Sample

MAX_DEVICES = 64  # of one kind of client; the mounts of one share its counters: bind mounts, and there may be many
MAX_CPU_SHARE = 0.01  # of a core
RETRY_SECONDS = 30.0  # after a failed read: a new privilege or a loaded module may allow it


class MountClient(Protocol):
    """Reads the counters of one kind of client."""

    def read(self, mounts: Sequence[MountInfo]) -> Sequence[ClientSample]:
        """Sample the counters of these mounts of one kind; raises OSError."""
        ...

    def close(self) -> None:
        """Close the descriptors."""
        ...


# By the type of the file system. To add a client: a module with a class like `MountClient`, and a line for each type.
CLIENTS: Mapping[str, Callable[[KernelFs], MountClient]] = {
    "beegfs": BeegfsClients,
    "ceph": CephClients,
    "lustre": LustreClients,
    "nfs": NfsClients,
    "nfs4": NfsClients,
}


class RemoteClientReader:
    """Reports each client whose counters changed since the last call."""

    name = "clients"

    def __init__(
        self,
        fs: KernelFs,
        *,
        clock: Callable[[], float] = time.monotonic,
        cpu_seconds: Callable[[], float] = time.thread_time,
    ) -> None:
        """Open nothing yet; raises UnavailableError where mounts cannot be read."""
        if not (fs.proc / "self" / "mountinfo").exists():
            raise UnavailableError("/proc/self/mountinfo is not there, so no mounts are known")
        self._fs = fs
        self._clock = clock
        self._cpu_seconds = cpu_seconds  # seconds of CPU
        self.is_enabled = True  # False: nothing trains
        self.devices: set[tuple[int, int]] = set()  # major and minor numbers of the mounts that have such a client
        self._mounts: Sequence[MountInfo] = ()
        self._mounts_by_client: dict[Callable[[KernelFs], MountClient], list[MountInfo]] = {}
        self._clients: dict[Callable[[KernelFs], MountClient], MountClient] = {}
        self._previous: dict[tuple[int, int], ClientSample] = {}
        self._next = 0.0
        self._retry: dict[Callable[[KernelFs], MountClient], float] = {}  # failed one -> when it is retried

    def set_mounts(self, mounts: Sequence[MountInfo]) -> None:
        """Set the present mounts; the same sequence object means no change."""
        if mounts is self._mounts:
            return
        self._mounts = mounts
        self._mounts_by_client = {}
        devices_by_client: dict[Callable[[KernelFs], MountClient], set[tuple[int, int]]] = {}
        for mount in mounts:
            if (factory := CLIENTS.get(mount.fs_type)) is None:
                continue
            device, devices = (mount.major, mount.minor), devices_by_client.setdefault(factory, set())
            if device in devices or len(devices) < MAX_DEVICES:
                devices.add(device)
                self._mounts_by_client.setdefault(factory, []).append(mount)
        for factory in self._clients.keys() - self._mounts_by_client.keys():
            self._drop(factory)
        self.devices = {(mount.major, mount.minor) for own in self._mounts_by_client.values() for mount in own}
        self._previous = {device: sample for device, sample in self._previous.items() if device in self.devices}

    def read(self) -> Sequence[Sample] | None:
        """Sample the clients that changed; None: there are none, it is too early, or nothing trains. Raises OSError."""
        now = self._clock()
        if not self._mounts_by_client or not self.is_enabled or now < self._next:
            return None
        start_cpu_seconds = self._cpu_seconds()
        samples: list[Sample] = []
        failed: OSError | None = None
        for factory, mounts in self._mounts_by_client.items():
            if now < self._retry.get(factory, now):
                continue
            try:
                if factory not in self._clients:
                    self._clients[factory] = factory(self._fs)
                counted = self._clients[factory].read(mounts)
            except OSError as error:  # continue with the other clients
                failed = error
                self._drop(factory)
                self._retry[factory] = now + RETRY_SECONDS
                continue
            for current in counted:
                device = current.major, current.minor
                if current != self._previous.get(device):
                    self._previous[device] = current
                    samples.append(current)
        self._next = now + (self._cpu_seconds() - start_cpu_seconds) / MAX_CPU_SHARE
        if failed is not None and not samples:
            raise failed
        return samples

    def _drop(self, factory: Callable[[KernelFs], MountClient]) -> None:
        if (client := self._clients.pop(factory, None)) is not None:
            client.close()

    def close(self) -> None:
        for factory in list(self._clients):
            self._drop(factory)
