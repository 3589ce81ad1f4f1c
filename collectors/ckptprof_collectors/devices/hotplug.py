"""Events and identity of block devices from udev, through pyudev; only for the live machine.

pyudev is imported when a `Hotplug` is made, not before: with libudev it costs about 9 ms of CPU and 3 MB of memory.
"""

from __future__ import annotations

import contextlib
import select
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ckptprof_collectors.kernelfs import UnavailableError

if TYPE_CHECKING:
    import pyudev

UDEV_CONTROL = Path("/run/udev/control")  # exists while a udev daemon runs
_TRANSPORTS = {"ata": "sata", "usb": "usb"}  # ID_BUS, where it says how a disk is attached


class Identity(NamedTuple):
    """What udev's rules found out about a device; None where they did not."""

    model: str | None = None
    serial: str | None = None
    transport: str | None = None


class Hotplug:
    """A subscription to the block subsystem: udev's events where its daemon runs, else the kernel's own.

    No privilege is needed. libudev drops messages that did not come from root.
    """

    def __init__(self) -> None:
        """Subscribe; raises UnavailableError with the reason."""
        try:
            import pyudev  # noqa: PLC0415 - see the module's docstring
        except ImportError as error:
            raise UnavailableError(f"no hot-plug events: pyudev cannot be imported ({error})") from error
        self._not_found = pyudev.DeviceNotFoundError
        try:
            self._context = _context()
            source = "udev" if UDEV_CONTROL.exists() else "kernel"
            self._monitor: pyudev.Monitor | None = pyudev.Monitor.from_netlink(self._context, source=source)
            self._monitor.filter_by("block")
            self._monitor.start()
        except (OSError, ImportError) as error:
            raise UnavailableError(f"no hot-plug events: {error}") from error
        self._devices = pyudev.Devices
        self._poll = select.poll()
        self._poll.register(self._monitor.fileno(), select.POLLIN)

    def changed(self) -> set[str] | None:
        """Return the kernel names of devices with events since the last call; None if events were lost."""
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

    def identity(self, device: str) -> Identity:
        """Return model, serial and transport of a device as udev's rules found them."""
        try:
            # Device.properties, for reading a Device as a mapping is deprecated and warns.
            properties = self._devices.from_name(self._context, "block", device).properties
            model = properties.get("ID_MODEL")
            serial = properties.get("ID_SERIAL_SHORT") or properties.get("ID_SERIAL")
            transport = _TRANSPORTS.get(properties.get("ID_BUS", ""))
        except (self._not_found, OSError, UnicodeError):
            return Identity()
        return Identity(model or None, serial or None, transport)

    def close(self) -> None:
        """End the subscription; a second call does nothing."""
        if self._monitor is not None:
            with contextlib.suppress(OSError, KeyError):
                self._poll.unregister(self._monitor.fileno())
            self._monitor = None


def _context() -> pyudev.Context:
    """Make pyudev's context without a fork.

    pyudev looks its library up by `ctypes.util.find_library`, which runs `ldconfig -p`: a collector never forks, and
    the name has been the same since systemd took udev over (2012). Where pyudev's insides are not as expected, it is
    left to do as it likes.
    """
    import pyudev  # noqa: PLC0415 - see the module's docstring

    try:
        from pyudev._ctypeslib import utils  # noqa: PLC0415 - see the module's docstring

        find_library = utils.find_library
    except (ImportError, AttributeError):
        return pyudev.Context()
    utils.find_library = lambda _name: "libudev.so.1"
    try:
        return pyudev.Context()
    finally:
        utils.find_library = find_library
