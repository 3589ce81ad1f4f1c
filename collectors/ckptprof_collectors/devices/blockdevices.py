"""Block devices: counters from /proc/diskstats, the stack and paths from sysfs, identity and hot-plug from udev."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from ckptprof_collectors.devices.diskstats import name_of, numbers_of, parse_line
from ckptprof_collectors.devices.hotplug import Hotplug
from ckptprof_collectors.devices.nvmepaths import NvmePaths
from ckptprof_collectors.devices.topology import Topology, head_of, is_changeable
from ckptprof_collectors.kernelfs import KeptFile, KernelFs, UnavailableError
from ckptprof_collectors.linetable import LineTable
from ckptprof_collectors.samples import DeviceInfo, Gone, Sample, Unavailable, text

REVIEW_SECONDS = 10.0  # a device that can change under its name and had I/O is looked at again, whatever events said


class BlockDevices:
    """Reports the line of each device that changed, and each device and path when first seen, changed or gone."""

    name = "disks"

    def __init__(self, fs: KernelFs, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Open diskstats and, on the live machine, subscribe to udev; raises UnavailableError."""
        self._fs = fs
        self._clock = clock
        try:
            self._file = KeptFile(fs.proc / "diskstats")
        except OSError as error:
            raise UnavailableError(f"/proc/diskstats: {error.strerror}") from error
        self._table = LineTable(name_of)
        self._numbers: dict[str, tuple[int, int]] = {}
        self._infos: dict[str, DeviceInfo] = {}
        self._paths = NvmePaths(fs, clock=clock)
        self._stale: set[str] = set()  # to be described in this tick
        self._touched: set[str] = set()  # with I/O since the last review
        self._review_at = clock() + REVIEW_SECONDS
        self._said: list[Sample] = []
        self._hotplug: Hotplug | None = None
        if fs.is_live:
            try:
                self._hotplug = Hotplug()
            except UnavailableError as error:
                self._said.append(Unavailable(self.name, str(error)))

    def read(self) -> Sequence[Sample]:
        """Return what changed since the last call, descriptions before counters; raises OSError."""
        table = self._table
        samples = table.samples(self._file.read(), parse_line)
        self._touched.update(sample.device for sample in samples)
        if table.arrived or table.departed:
            self._relist()
        self._review()
        described = self._describe() if self._stale or self._said else []
        paths = self._paths.read()
        return [*described, *paths, *samples] if described or paths else samples

    def _relist(self) -> None:
        table = self._table
        for name in table.departed:
            device = text(name)
            self._numbers.pop(device, None)
            self._mark(device)
        for name in table.arrived:
            device = text(name)
            self._numbers[device] = numbers_of(table.by_name[name]) or (0, 0)
            self._mark(device)

    def _mark(self, device: str) -> None:
        self._stale.add(device)
        if head := head_of(device):  # a head counts only while it has no path
            self._stale.add(head)

    def _review(self) -> None:
        """Mark the devices that may have changed under their name: by events, and by their I/O and the clock."""
        if self._hotplug is not None:
            events = self._hotplug.changed()
            for device in self._numbers if events is None else events:
                self._mark(device)
        now = self._clock()
        if now >= self._review_at:
            self._review_at = now + REVIEW_SECONDS
            self._stale.update(d for d in self._touched if d not in self._infos or is_changeable(self._infos[d]))
            self._touched.clear()

    def _describe(self) -> list[Sample]:
        """Return the descriptions of marked devices that are new or differ, and the end of those that are gone."""
        samples, self._said = self._said, []
        topology = Topology(self._fs)
        for device in sorted(self._stale):
            if device not in self._numbers:
                if self._infos.pop(device, None) is not None:
                    samples.append(Gone("device", device))
                continue
            info = topology.describe(device, *self._numbers[device])
            if info is None:
                self._touched.add(device)  # not in sysfs yet: looked for again at the next review
                continue
            info = self._identified(info)
            if info != self._infos.get(device):
                self._infos[device] = info
                samples.append(info)
        self._stale.clear()
        self._paths.follow(self._infos.values())
        return samples

    def _identified(self, info: DeviceInfo) -> DeviceInfo:
        if self._hotplug is None or info.kind != "disk" or (info.model and info.serial and info.transport):
            return info
        found = self._hotplug.identity(info.device)
        return msgspec.structs.replace(
            info,
            model=info.model or found.model,
            serial=info.serial or found.serial,
            transport=info.transport or found.transport,
        )

    def close(self) -> None:
        """Give the descriptors back."""
        self._file.close()
        self._paths.close()
        if self._hotplug is not None:
            self._hotplug.close()
