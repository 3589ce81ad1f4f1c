"""Paths to NVMe namespaces behind fabrics: their targets, and whether they can be used (drivers/nvme/host/sysfs.c).

`state` is that of the controller, `ana_state` the access that the target gives to the namespace over it. Both are read
each time, for at most `MAX_PATHS` paths.
"""

from __future__ import annotations

import functools
import ipaddress
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from ckptprof_collectors.devices.topology import NVME_HEAD, nvme_head
from ckptprof_collectors.kernelfs import KernelFs, list_names, read_text
from ckptprof_collectors.samples import DeviceInfo, NvmePath, text

MAX_PATHS = 64
REOPEN_SECONDS = 1.0  # between attempts to reopen a state that cannot be read
FABRICS = frozenset({"nvme-tcp", "nvme-rdma", "nvme-fc"})
_MAX_STATE_BYTES = 64
_MAX_PORT_DIGITS = 5


_Ports = Callable[[], dict[str, str]]  # read once, and only if needed: a port has hundreds of GIDs


def _rdma_ports(folder: Path) -> dict[str, str]:
    """RDMA ports by GID, for GIDs that are IP addresses (not on InfiniBand)."""
    found: dict[str, str] = {}
    for device in list_names(folder):
        for port in list_names(folder / device / "ports"):
            if read_text(folder / device / "ports" / port / "link_layer") != "InfiniBand":
                gids = folder / device / "ports" / port / "gids"
                for gid in filter(None, (read_text(gids / index) for index in list_names(gids))):
                    found.setdefault(gid, f"{text(os.fsencode(device))}/{port}")
    return found


class _NvmePathFiles:
    def __init__(self, fs: KernelFs, info: DeviceInfo, ports: _Ports) -> None:
        self._folder = fs.sys / "class/block" / info.device
        self.info = info
        self.previous: NvmePath | None = None
        self.next_open = 0.0
        self._open()
        self._target, self._port, self._link = _endpoints(info, ports)

    def _open(self) -> None:
        self._fds = [_open_or_none(self._folder / "device/state"), _open_or_none(self._folder / "ana_state")]

    def reopen(self) -> None:
        """Reopen the states: old descriptors stay dead if a removed controller returns under the same name."""
        self.close()
        self._open()

    def sample(self) -> NvmePath:
        info, (state, ana_state) = self.info, map(_read, self._fds)
        transport = (info.transport or "").removeprefix("nvme-")
        head = nvme_head(info.device) or info.device
        return NvmePath(info.device, head, transport, self._target, self._port, self._link, state, ana_state)

    def close(self) -> None:
        for fd in self._fds:
            if fd is not None:
                os.close(fd)
        self._fds = [None, None]


class NvmePathReader:
    """Reports each path that changed."""

    def __init__(self, fs: KernelFs, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._fs = fs
        self._clock = clock
        self._paths: dict[str, _NvmePathFiles] = {}

    def set_devices(self, devices: Iterable[DeviceInfo]) -> None:
        """Set the present block devices."""
        now = {one.device: one for one in devices if _is_path(one)}
        for name in [name for name, path in self._paths.items() if now.get(name) != path.info]:
            self._paths.pop(name).close()
        ports = functools.cache(lambda: _rdma_ports(self._fs.sys / "class/infiniband"))
        for name, info in now.items():
            if name not in self._paths and len(self._paths) < MAX_PATHS:
                self._paths[name] = _NvmePathFiles(self._fs, info, ports)

    def read(self) -> list[NvmePath]:
        samples = []
        for path in self._paths.values():
            current = path.sample()
            if current.state is None and (now := self._clock()) >= path.next_open:
                path.next_open = now + REOPEN_SECONDS
                path.reopen()
                current = path.sample()
            if current != path.previous:
                path.previous = current
                samples.append(current)
        return samples

    def close(self) -> None:
        self.set_devices(())


def _is_path(info: DeviceInfo) -> bool:
    if info.transport not in FABRICS or info.below:
        return False
    return nvme_head(info.device) is not None or NVME_HEAD.fullmatch(info.device) is not None


def _endpoints(info: DeviceInfo, ports: _Ports) -> tuple[str | None, int | None, str | None]:
    """Parse a controller's address: address and port of the target, and the local link.

    `traddr=10.0.0.1,trsvcid=4420,host_traddr=10.0.0.9,host_iface=eth1,src_addr=10.0.0.9` (nvmf_get_address).
    """
    fields = dict(part.strip().partition("=")[::2] for part in (info.backing or "").split(","))
    target, service = fields.get("traddr"), fields.get("trsvcid", "")
    port = int(service) if service.isdecimal() and len(service) <= _MAX_PORT_DIGITS else None
    if info.transport == "nvme-fc":
        return target or None, None, None
    link = fields.get("host_iface") or None
    if link is None and info.transport == "nvme-rdma":
        own = _address(fields.get("host_traddr"))
        if own is not None:  # a GID of RoCE is that address, of IPv4 mapped into IPv6
            packed = own.packed if own.version == 6 else bytes(10) + b"\xff\xff" + own.packed
            link = ports().get(packed.hex(":", 2))
    address = _address(target)
    return str(address) if address is not None else target or None, port, link


def _address(word: str | None) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address((word or "").partition("%")[0])
    except ValueError:
        return None


def _open_or_none(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _read(fd: int | None) -> str | None:
    """Read a state; None if there is none, or the path is gone (ENODEV)."""
    if fd is None:
        return None
    try:
        return text(os.pread(fd, _MAX_STATE_BYTES, 0)).strip() or None
    except OSError:
        return None
