"""The mounts of checkpoints, and what the devices, NICs and servers under them did."""

from __future__ import annotations

from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.detect.world.host.connection_counters import ConnectionCounters
from ckptprof.detect.world.host.device_counters import DeviceCounters
from ckptprof.detect.world.host.device_requests import DeviceRequests
from ckptprof.detect.world.host.network_counters import LOOPBACK, NetworkCounters
from ckptprof.detect.world.host.nvme_path_states import NvmePathStates
from ckptprof.detect.world.host.remote_client_counters import RemoteClientCounters
from ckptprof.frameworks.places import NETWORKED, NETWORKED_DAEMONS, REMOTE_SOURCE
from ckptprof.model import DeviceShare
from ckptprof_collectors.mounts.remote_servers import is_remote
from ckptprof_collectors.samples import BlockActivity, EntityGone, MountInfo


class Devices:
    """Mounts, and the recent counters of the block devices and NICs that they use."""

    def __init__(self) -> None:
        self.disks = DeviceCounters()
        self.paths = NvmePathStates()
        self.links = NetworkCounters()
        self.connections = ConnectionCounters()
        self.clients = RemoteClientCounters()
        self._requests = DeviceRequests()
        self._mounts: dict[int, MountInfo] = {}
        self._now_ns = 0

    def ingest(self, samples: FrameSamples) -> None:
        """Ingest the samples of a frame; removals first, since a name may be reused."""
        self._now_ns = samples.at_ns
        for removed in samples.by_kind(EntityGone):
            if removed.entity == "device":
                self.disks.forget(removed.name)
                self.paths.record_removal(removed.name, samples.at_ns)
            elif removed.entity in {"interface", "port"}:
                self.links.forget(removed.name)
            elif removed.entity == "mount" and removed.name.isdecimal():
                self._forget_client(self._mounts.pop(int(removed.name), None))
        for mount in samples.by_kind(MountInfo):
            self._mounts[mount.mount_id] = mount
        self.disks.ingest(samples)
        self.paths.ingest(samples)
        self.links.ingest(samples)
        self.connections.ingest(samples)
        self.clients.ingest(samples)
        for activity in samples.by_kind(BlockActivity):
            self._requests.observe(samples.at_ns, activity)

    def _forget_client(self, mount: MountInfo | None) -> None:
        """Forget the client of a removed mount, if it was the last of its file system."""
        device = (mount.major, mount.minor) if mount is not None else None
        if device is not None and all((other.major, other.minor) != device for other in self._mounts.values()):
            self.clients.forget(device)

    def mount_of(self, path: str) -> MountInfo | None:
        """Find the mount of a path: the longest mount point above it, of equals the latest; None: unknown."""
        best: MountInfo | None = None
        for mount in self._mounts.values():
            point = mount.mount_point.rstrip("/")
            if (path == point or path.startswith(point + "/")) and (
                best is None or len(mount.mount_point) >= len(best.mount_point)
            ):
                best = mount
        return best

    def mounts_of_device(self, device: int) -> list[MountInfo]:
        """List the mounts of the file system whose files have this st_dev."""
        return [mount for mount in self._mounts.values() if mount.device_number == device]

    def shares(self, path: str, start_ns: int, end_ns: int, *, writes: bool) -> tuple[DeviceShare, ...]:
        """Transfers of the devices under `path` between two monotonic times; requests of one direction only."""
        mount = self.mount_of(path)
        if mount is None:
            return ()
        found = []
        for device in self._chain(mount.device):
            share, info = (
                self.disks.measure_share(device, start_ns, end_ns, mount.mount_point),
                self.disks.infos.get(device),
            )
            if share is not None and info is not None:
                share = self._requests.enrich(share, info, (start_ns, end_ns, self._now_ns), writes=writes)
            found += [share] if share is not None else []
        if mount.server is not None:
            found.extend(self._nic_shares(start_ns, end_ns, mount.mount_point))
        return tuple(found)

    def received_bytes(self, start_ns: int, end_ns: int, path: str) -> int | None:
        """Bytes that the busiest interface received between two times for a file; None: none observed.

        Those over loopback count, unless the file is on a network mount: then they are its own, sent to its server.
        """
        totals, mount = self.links.totals_around(start_ns, end_ns), self.mount_of(path)
        if mount is not None and is_network_mount(mount):
            totals.pop(LOOPBACK, None)
        return max((received for received, _ in totals.values()), default=None)

    def chain_of(self, path: str) -> list[str]:
        """List the block devices under a path, each before the devices below it."""
        mount = self.mount_of(path)
        return self._chain(mount.device) if mount is not None else []

    def _chain(self, device: str | None) -> list[str]:
        chain: list[str] = []
        waiting = [device] if device else []
        while waiting:
            name = waiting.pop(0)
            if name in chain:
                continue
            chain.append(name)
            info = self.disks.infos.get(name)
            if info is not None:
                waiting.extend(info.below)
        return chain

    def _nic_shares(self, start_ns: int, end_ns: int, under: str) -> list[DeviceShare]:
        nics = self.links.nics
        return [
            DeviceShare(
                device=name, kind="nic", read_bytes=received, written_bytes=sent, busy_seconds=None, under=under
            )
            for name, (received, sent) in self.links.totals_around(start_ns, end_ns).items()
            if name not in nics or nics[name].is_countable
        ]


def is_network_mount(mount: MountInfo) -> bool:
    """Whether a mount has a server behind it; for FUSE, by its daemon or its source."""
    if mount.server is not None or is_remote(mount.fs_type) or mount.fs_type in NETWORKED:
        return True
    if mount.device is not None or not mount.fs_type.startswith("fuse"):
        return False
    daemon, source = mount.fs_type.partition(".")[2].lower(), mount.source
    known = any(daemon.startswith(name) or source.lower().startswith(name) for name in NETWORKED_DAEMONS)
    return known or bool(REMOTE_SOURCE.match(source))
