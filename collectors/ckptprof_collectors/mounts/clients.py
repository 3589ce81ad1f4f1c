"""What the clients of remote mounts counted: bytes, operations and their times, by the files where each keeps them.

Nothing here touches a mount: these files are the client's own, and a server that hangs does not hold up who reads them.
Only kinds of mounts that are there are asked, while something trains, and for a hundredth of a core at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ckptprof_collectors.kernelfs import KernelFs, UnavailableError
from ckptprof_collectors.mounts.beegfsclients import BeegfsClients
from ckptprof_collectors.mounts.cephclients import CephClients
from ckptprof_collectors.mounts.lustreclients import LustreClients
from ckptprof_collectors.mounts.nfsclients import NfsClients
from ckptprof_collectors.mounts.wekaclients import WekaClients
from ckptprof_collectors.samples import ClientSample, MountInfo, Sample

MAX_DEVICES = 64  # of one kind of client; the mounts of one share its counters: bind mounts, and there may be many
SHARE = 0.01  # of a core
RETRY_SECONDS = 30.0  # after one could not be read: that changes with a privilege, or a module that is loaded


class Client(Protocol):
    """Reads what one kind of client counted."""

    def read(self, mounts: Sequence[MountInfo]) -> Sequence[ClientSample]:
        """Sample the counters of these mounts of one kind; raises OSError."""
        ...

    def close(self) -> None:
        """Give the descriptors back."""
        ...


# By the type of the file system. To add a client: a module with a class like `Client`, and a line for each type.
CLIENTS: Mapping[str, Callable[[KernelFs], Client]] = {
    "beegfs": BeegfsClients,
    "ceph": CephClients,
    "lustre": LustreClients,
    "nfs": NfsClients,
    "nfs4": NfsClients,
    "wekafs": WekaClients,
}


class RemoteClients:
    """Reports each client that counted something since the last call."""

    name = "clients"

    def __init__(
        self,
        fs: KernelFs,
        *,
        clock: Callable[[], float] = time.monotonic,
        used: Callable[[], float] = time.thread_time,
    ) -> None:
        """Open nothing yet; raises UnavailableError where no mounts can be seen."""
        if not (fs.proc / "self" / "mountinfo").exists():
            raise UnavailableError("/proc/self/mountinfo is not there, so no mounts are known")
        self._fs = fs
        self._clock = clock
        self._used = used  # seconds of CPU
        self.wanted = True  # False: nothing trains
        self._mounts: Sequence[MountInfo] = ()
        self._by_client: dict[Callable[[KernelFs], Client], list[MountInfo]] = {}
        self._clients: dict[Callable[[KernelFs], Client], Client] = {}
        self._last: dict[tuple[int, int], ClientSample] = {}
        self._next = 0.0
        self._retry: dict[Callable[[KernelFs], Client], float] = {}  # those that failed, and when they are tried again

    def follow(self, mounts: Sequence[MountInfo]) -> None:
        """Take these mounts for those that are there; the same sequence has not changed."""
        if mounts is self._mounts:
            return
        self._mounts = mounts
        self._by_client = {}
        taken: dict[Callable[[KernelFs], Client], set[tuple[int, int]]] = {}
        for mount in mounts:
            if (make := CLIENTS.get(mount.fs_type)) is None:
                continue
            device, devices = (mount.major, mount.minor), taken.setdefault(make, set())
            if device in devices or len(devices) < MAX_DEVICES:
                devices.add(device)
                self._by_client.setdefault(make, []).append(mount)
        for make in self._clients.keys() - self._by_client.keys():
            self._drop(make)
        there = {(mount.major, mount.minor) for own in self._by_client.values() for mount in own}
        self._last = {device: sample for device, sample in self._last.items() if device in there}

    def read(self) -> Sequence[Sample] | None:
        """Sample the clients that changed; None: there are none, it is too early, or nothing trains. Raises OSError."""
        now = self._clock()
        if not self._by_client or not self.wanted or now < self._next:
            return None
        began = self._used()
        samples: list[Sample] = []
        failed: OSError | None = None
        for make, mounts in self._by_client.items():
            if now < self._retry.get(make, now):
                continue
            try:
                if make not in self._clients:
                    self._clients[make] = make(self._fs)
                counted = self._clients[make].read(mounts)
            except OSError as error:  # the others have something to tell all the same
                failed = error
                self._drop(make)
                self._retry[make] = now + RETRY_SECONDS
                continue
            for sample in counted:
                device = sample.major, sample.minor
                if sample != self._last.get(device):
                    self._last[device] = sample
                    samples.append(sample)
        self._next = now + (self._used() - began) / SHARE
        if failed is not None and not samples:
            raise failed
        return samples

    def _drop(self, make: Callable[[KernelFs], Client]) -> None:
        client = self._clients.pop(make, None)
        if client is not None:
            client.close()

    def close(self) -> None:
        for make in list(self._clients):
            self._drop(make)
