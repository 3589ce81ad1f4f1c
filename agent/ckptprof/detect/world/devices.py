"""What the devices and NICs under a checkpoint's files did while it ran."""

from __future__ import annotations

from ckptprof.detect.world.counter_history import CounterHistory
from ckptprof.detect.world.device_requests import DeviceRequests
from ckptprof.model import DeviceShare
from ckptprof_collectors.samples import (
    BlockActivity,
    DeviceInfo,
    DiskSample,
    Gone,
    MountInfo,
    NicInfo,
    NicSample,
    Sample,
)

SECTOR_BYTES = 512
_WRAP_MS = 1 << 32


class Devices:
    """Keeps the recent counters of block devices and NICs, and how mounts lead to them."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._disks: dict[str, CounterHistory] = {}  # read sectors, written sectors, io_ms
        self._nics: dict[str, CounterHistory] = {}  # received bytes, sent bytes
        self._requests = DeviceRequests()
        self._devices: dict[str, DeviceInfo] = {}
        self._nic_infos: dict[str, NicInfo] = {}
        self._mounts: dict[int, MountInfo] = {}
        self._now_ns = 0

    def observe(self, at_ns: int, sample: Sample) -> None:
        """Take one sample, of whatever kind."""
        self._now_ns = max(self._now_ns, at_ns)
        if isinstance(sample, DiskSample):
            past = self._disks.setdefault(sample.device, CounterHistory(3))
            past.add(at_ns, (sample.read_sectors, sample.write_sectors, sample.io_ms))
        elif isinstance(sample, NicSample):
            self._nics.setdefault(sample.interface, CounterHistory(2)).add(at_ns, (sample.rx_bytes, sample.tx_bytes))
        elif isinstance(sample, BlockActivity):
            self._requests.observe(at_ns, sample)
        elif isinstance(sample, DeviceInfo):
            self._devices[sample.device] = sample
        elif isinstance(sample, NicInfo):
            self._nic_infos[sample.interface] = sample
        elif isinstance(sample, MountInfo):
            self._mounts[sample.mount_id] = sample
        elif isinstance(sample, Gone):
            self._forget(sample)

    def _forget(self, gone: Gone) -> None:
        """Drop what is no longer there: its name may come back as something else."""
        if gone.entity == "mount" and gone.name.isdecimal():
            self._mounts.pop(int(gone.name), None)
        elif gone.entity == "device":
            self._devices.pop(gone.name, None)
            self._disks.pop(gone.name, None)
        elif gone.entity == "interface":
            self._nic_infos.pop(gone.name, None)
            self._nics.pop(gone.name, None)

    def mount_of(self, path: str) -> MountInfo | None:
        """Return the mount that a path is on: the longest mount point above it, the latest of equals."""
        best: MountInfo | None = None
        for mount in self._mounts.values():
            point = mount.mount_point.rstrip("/")
            if (path == point or path.startswith(point + "/")) and (
                best is None or len(mount.mount_point) >= len(best.mount_point)
            ):
                best = mount
        return best

    def shares(self, path: str, start_ns: int, end_ns: int, *, writes: bool) -> tuple[DeviceShare, ...]:
        """Return what was under `path` and what it did between two monotonic times; requests of one direction only."""
        mount = self.mount_of(path)
        if mount is None:
            return ()
        found = []
        for device in self._chain(mount.device):
            share = self._disk_share(device, start_ns, end_ns, mount.mount_point)
            info = self._devices.get(device)
            if share is not None and info is not None:
                share = self._requests.fill(share, info, (start_ns, end_ns, self._now_ns), writes=writes)
            if share is not None:
                found.append(share)
        if mount.server is not None:
            found.extend(self._nic_shares(start_ns, end_ns, mount.mount_point))
        return tuple(found)

    def received_bytes(self, start_ns: int, end_ns: int) -> int | None:
        """Return what the busiest interface received between two times, loopback included; None: none was seen."""
        pairs = [past.around(start_ns, end_ns) for past in self._nics.values()]
        came = [pair[1][0] - pair[0][0] for pair in pairs if pair is not None]
        return max(came, default=None)

    def sent_bytes(self, start_ns: int, end_ns: int) -> int | None:
        """Return what the busiest interface sent between two times, loopback included; None: none was seen."""
        pairs = [past.around(start_ns, end_ns) for past in self._nics.values()]
        went = [pair[1][1] - pair[0][1] for pair in pairs if pair is not None]
        return max(went, default=None)

    def chain_of(self, path: str) -> list[str]:
        """Return the block devices under a path, each before those that carry it."""
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
            info = self._devices.get(name)
            if info is not None:
                waiting.extend(info.below)
        return chain

    def _disk_share(self, device: str, start_ns: int, end_ns: int, under: str) -> DeviceShare | None:
        past = self._disks.get(device)
        pair = past.around(start_ns, end_ns) if past is not None else None
        if pair is None:
            return None
        (read, written, io_ms), (read_after, written_after, io_ms_after) = pair
        if read_after < read or written_after < written:
            return None
        return DeviceShare(
            device=device,
            kind="block",
            read_bytes=(read_after - read) * SECTOR_BYTES,
            written_bytes=(written_after - written) * SECTOR_BYTES,
            busy_seconds=((io_ms_after - io_ms) % _WRAP_MS) / 1000,
            under=under,
        )

    def _nic_shares(self, start_ns: int, end_ns: int, under: str) -> list[DeviceShare]:
        found = []
        for interface, past in self._nics.items():
            info = self._nic_infos.get(interface)
            pair = past.around(start_ns, end_ns) if info is None or info.countable else None
            if pair is None or pair[1][0] < pair[0][0] or pair[1][1] < pair[0][1]:
                continue
            (received, sent), (received_after, sent_after) = pair
            found.append(
                DeviceShare(
                    device=interface,
                    kind="nic",
                    read_bytes=received_after - received,
                    written_bytes=sent_after - sent,
                    busy_seconds=None,
                    under=under,
                )
            )
        return found
