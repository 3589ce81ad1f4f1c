"""Block devices: counters from /proc/diskstats, the stack and paths from sysfs, identity and hot-plug from udev."""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ckptprof_collectors.devices.nvme_paths import NvmePathReader
from ckptprof_collectors.devices.topology import DeviceTopology, is_changeable, nvme_head
from ckptprof_collectors.kernelfs import KernelFile, KernelFs, UnavailableError
from ckptprof_collectors.linetable import LineTable
from ckptprof_collectors.samples import DeviceInfo, DiskSample, EntityGone, Sample, Unavailable, text

if TYPE_CHECKING:
    import pyudev

REVIEW_SECONDS = 10.0  # between descriptions of an active device that can change under its name, also without events

# Numbers after major, minor and name that a kernel writes: 11, with discards (4.18) 15, with flushes (5.5) 17.
_WIDTHS = (17, 15, 11)

UDEV_CONTROL = Path("/run/udev/control")  # exists while a udev daemon runs
_TRANSPORTS = {"ata": "sata", "usb": "usb"}  # ID_BUS, where it says how a disk is attached


class Hotplug:
    """A subscription to the block subsystem: udev's events where its daemon runs, else the kernel's own.

    No privilege is needed. libudev drops messages that did not come from root. pyudev is imported when one is made, not
    before: with libudev it costs about 9 ms of CPU and 3 MB of memory.
    """

    def __init__(self) -> None:
        """Subscribe; raises UnavailableError with the reason."""
        try:
            import pyudev  # noqa: PLC0415 - see the docstring
        except ImportError as error:
            raise UnavailableError(f"no hot-plug events: pyudev cannot be imported ({error})") from error
        self._not_found = pyudev.DeviceNotFoundError
        try:
            self._context = _context(pyudev)
            source = "udev" if UDEV_CONTROL.exists() else "kernel"
            self._monitor: pyudev.Monitor | None = pyudev.Monitor.from_netlink(self._context, source=source)
            self._monitor.filter_by("block")
            self._monitor.start()
        except (OSError, ImportError) as error:
            raise UnavailableError(f"no hot-plug events: {error}") from error
        self._devices = pyudev.Devices
        self._poll = select.poll()
        self._poll.register(self._monitor.fileno(), select.POLLIN)

    def changed_devices(self) -> set[str] | None:
        """Kernel names of devices with events since the last call; None if events were lost."""
        names: set[str] = set()
        try:
            while self._monitor is not None and self._poll.poll(0):
                device = self._monitor.poll(0)
                if device is None:
                    break
                names.add(str(device.sys_name))
        except OSError:  # ENOBUFS: the socket overflowed
            return None
        return names

    def with_identity(self, info: DeviceInfo) -> DeviceInfo:
        """Complete model, serial and transport of a disk from udev where sysfs lacks them."""
        if info.kind != "disk" or (info.model and info.serial and info.transport):
            return info
        try:
            # Device.properties, for reading a Device as a mapping is deprecated and warns.
            properties = self._devices.from_name(self._context, "block", info.device).properties
            return msgspec.structs.replace(
                info,
                model=info.model or properties.get("ID_MODEL") or None,
                serial=info.serial or properties.get("ID_SERIAL_SHORT") or properties.get("ID_SERIAL") or None,
                transport=info.transport or _TRANSPORTS.get(properties.get("ID_BUS", "")),
            )
        except (self._not_found, OSError, UnicodeError):
            return info

    def close(self) -> None:
        """End the subscription; a second call does nothing."""
        if self._monitor is not None:
            with contextlib.suppress(OSError, KeyError):
                self._poll.unregister(self._monitor.fileno())
            self._monitor = None


def _context(pyudev: Any) -> Any:
    """Make pyudev's context without a fork.

    pyudev finds its library by `ctypes.util.find_library`, which runs `ldconfig -p`: a collector never forks, and
    the name has been the same since systemd took udev over (2012). Where pyudev's insides are not as expected, it is
    left to do as it likes.
    """
    try:
        from pyudev._ctypeslib import utils  # noqa: PLC0415 - as above

        find_library = utils.find_library
    except (ImportError, AttributeError):
        return pyudev.Context()
    utils.find_library = lambda _name: "libudev.so.1"
    try:
        return pyudev.Context()
    finally:
        utils.find_library = find_library


def parse_name(line: bytes) -> bytes | None:
    """Device name as the kernel spells it; None if it is no line of diskstats."""
    fields = line.split(None, 3)
    return fields[2] if len(fields) == 4 else None


def parse_numbers(line: bytes) -> tuple[int, int] | None:
    """Major and minor number; None if it is no line of diskstats."""
    fields = line.split(None, 2)
    try:
        return int(fields[0]), int(fields[1])
    except (IndexError, ValueError):
        return None


def parse_line(line: bytes) -> DiskSample | None:
    """Parse a line; None if it is malformed (as are the short lines of partitions before 2.6.25).

    Columns that a newer kernel may append are left out; those that an older one lacks are None.
    """
    fields = line.split()
    have = len(fields) - 3
    for width in _WIDTHS:
        if have >= width:
            try:
                return DiskSample(text(fields[2]), *map(int, fields[3 : 3 + width]))
            except ValueError:
                return None
    return None


class BlockDevices:
    """Reports the line of each device that changed, and each device and path when first seen, changed or gone."""

    name = "disks"

    def __init__(self, fs: KernelFs, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Open diskstats and, on the live machine, subscribe to udev; raises UnavailableError."""
        self._fs = fs
        self._clock = clock
        try:
            self._file = KernelFile(fs.proc / "diskstats")
        except OSError as error:
            raise UnavailableError(f"/proc/diskstats: {error.strerror}") from error
        self._table = LineTable(parse_name)
        self._numbers: dict[str, tuple[int, int]] = {}
        self._infos: dict[str, DeviceInfo] = {}
        self._paths = NvmePathReader(fs, clock=clock)
        self._stale: set[str] = set()  # to be described in this tick
        self._touched: set[str] = set()  # with I/O since the last review
        self._review_at = clock() + REVIEW_SECONDS
        self._unreported: list[Sample] = []
        self._hotplug: Hotplug | None = None
        if fs.is_live:
            try:
                self._hotplug = Hotplug()
            except UnavailableError as error:
                self._unreported.append(Unavailable(self.name, str(error)))

    def read(self) -> Sequence[Sample]:
        table = self._table
        samples = table.samples(self._file.read(), parse_line)
        self._touched.update(current.device for current in samples)
        if table.arrived or table.departed:
            self._update_numbers()
        self._mark_changed()
        described = self._describe() if self._stale or self._unreported else []
        paths = self._paths.read()
        return [*described, *paths, *samples] if described or paths else samples

    def _update_numbers(self) -> None:
        table = self._table
        for name in table.departed:
            device = text(name)
            self._numbers.pop(device, None)
            self._mark(device)
        for name in table.arrived:
            device = text(name)
            self._numbers[device] = parse_numbers(table.lines_by_name[name]) or (0, 0)
            self._mark(device)

    def _mark(self, device: str) -> None:
        self._stale.add(device)
        if head := nvme_head(device):  # a head counts only while it has no path
            self._stale.add(head)

    def _mark_changed(self) -> None:
        """Mark the devices that may have changed under their name: by events, or by I/O since the last review."""
        if self._hotplug is not None:
            events = self._hotplug.changed_devices()
            for device in self._numbers if events is None else events:
                self._mark(device)
        now = self._clock()
        if now >= self._review_at:
            self._review_at = now + REVIEW_SECONDS
            self._stale.update(d for d in self._touched if d not in self._infos or is_changeable(self._infos[d]))
            self._touched.clear()

    def _describe(self) -> list[Sample]:
        samples, self._unreported = self._unreported, []
        topology = DeviceTopology(self._fs)
        for device in sorted(self._stale):
            if device not in self._numbers:
                if self._infos.pop(device, None) is not None:
                    samples.append(EntityGone("device", device))
                continue
            info = topology.describe(device, *self._numbers[device])
            if info is None:
                self._touched.add(device)  # not in sysfs yet: retried at the next review
                continue
            if self._hotplug is not None:
                info = self._hotplug.with_identity(info)
            if info != self._infos.get(device):
                self._infos[device] = info
                samples.append(info)
        self._stale.clear()
        self._paths.set_devices(self._infos.values())
        return samples

    def close(self) -> None:
        self._file.close()
        self._paths.close()
        if self._hotplug is not None:
            self._hotplug.close()
