"""Paths to NVMe namespaces behind fabrics: their targets, and whether they can be used (drivers/nvme/host/sysfs.c).

`state` is that of the controller, `ana_state` how the target gives access to the namespace over it. Both are asked at
each reading, of as many paths as there is room for; where there is none, nothing is.
"""

from __future__ import annotations

import functools
import ipaddress
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from ckptprof_collectors.devices.topology import NVME_HEAD, head_of
from ckptprof_collectors.kernelfs import KernelFs, entries, read_text
from ckptprof_collectors.samples import DeviceInfo, NvmePath, text

MAX_PATHS = 64
AGAIN_SECONDS = 1.0  # a state that cannot be read is opened anew so often
FABRICS = frozenset({"nvme-tcp", "nvme-rdma", "nvme-fc"})
_MOST_BYTES = 64
_LONGEST_PORT = 5


_Ports = Callable[[], dict[str, str]]  # looked up once, and only if asked: a port has hundreds of GIDs


def _rdma_ports(folder: Path) -> dict[str, str]:
    """RDMA ports by GID, for GIDs that are IP addresses (not on InfiniBand)."""
    found: dict[str, str] = {}
    for device in entries(folder):
        for port in entries(folder / device / "ports"):
            if read_text(folder / device / "ports" / port / "link_layer") != "InfiniBand":
                gids = folder / device / "ports" / port / "gids"
                for gid in filter(None, (read_text(gids / index) for index in entries(gids))):
                    found.setdefault(gid, f"{text(os.fsencode(device))}/{port}")
    return found


class _Path:
    def __init__(self, fs: KernelFs, info: DeviceInfo, ports: _Ports) -> None:
        self._folder = fs.sys / "class/block" / info.device
        self.info = info
        self.last: NvmePath | None = None
        self.next_open = 0.0
        self._open()
        self._target, self._port, self._link = _ends(info, ports)

    def _open(self) -> None:
        self._fds = [_opened(self._folder / "device/state"), _opened(self._folder / "ana_state")]

    def reopen(self) -> None:
        """Open the states anew: those of a controller that was removed stay dead if it comes back by the same name."""
        self.close()
        self._open()

    def sample(self) -> NvmePath:
        info, (state, ana_state) = self.info, map(_read, self._fds)
        transport = (info.transport or "").removeprefix("nvme-")
        head = head_of(info.device) or info.device
        return NvmePath(info.device, head, transport, self._target, self._port, self._link, state, ana_state)

    def close(self) -> None:
        for fd in self._fds:
            if fd is not None:
                os.close(fd)
        self._fds = [None, None]


class NvmePaths:
    """Reports each path that changed."""

    def __init__(self, fs: KernelFs, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._fs = fs
        self._clock = clock
        self._paths: dict[str, _Path] = {}

    def follow(self, devices: Iterable[DeviceInfo]) -> None:
        """Take these block devices for those that are there."""
        now = {one.device: one for one in devices if _is_path(one)}
        for name in [name for name, path in self._paths.items() if now.get(name) != path.info]:
            self._paths.pop(name).close()
        ports = functools.cache(lambda: _rdma_ports(self._fs.sys / "class/infiniband"))
        for name, info in now.items():
            if name not in self._paths and len(self._paths) < MAX_PATHS:
                self._paths[name] = _Path(self._fs, info, ports)

    def read(self) -> list[NvmePath]:
        samples = []
        for path in self._paths.values():
            sample = path.sample()
            if sample.state is None and (now := self._clock()) >= path.next_open:
                path.next_open = now + AGAIN_SECONDS
                path.reopen()
                sample = path.sample()
            if sample != path.last:
                path.last = sample
                samples.append(sample)
        return samples

    def close(self) -> None:
        self.follow(())


def _is_path(info: DeviceInfo) -> bool:
    if info.transport not in FABRICS or info.below:
        return False
    return head_of(info.device) is not None or NVME_HEAD.fullmatch(info.device) is not None


def _ends(info: DeviceInfo, ports: _Ports) -> tuple[str | None, int | None, str | None]:
    """Parse a controller's address: address and port of the target, and the local link.

    `traddr=10.0.0.1,trsvcid=4420,host_traddr=10.0.0.9,host_iface=eth1,src_addr=10.0.0.9` (nvmf_get_address).
    """
    said = dict(part.strip().partition("=")[::2] for part in (info.backing or "").split(","))
    target, service = said.get("traddr"), said.get("trsvcid", "")
    port = int(service) if service.isdecimal() and len(service) <= _LONGEST_PORT else None
    if info.transport == "nvme-fc":
        return target or None, None, None
    link = said.get("host_iface") or None
    if link is None and info.transport == "nvme-rdma":
        own = _address(said.get("host_traddr"))
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


def _opened(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _read(fd: int | None) -> str | None:
    """Read a state; None if there is none, or the path is gone (ENODEV)."""
    if fd is None:
        return None
    try:
        return text(os.pread(fd, _MOST_BYTES, 0)).strip() or None
    except OSError:
        return None
