"""The place of a block device in its stack, from sysfs (Documentation/ABI/stable/sysfs-block).

Which level counts (`countable`), so that a sum over countable devices counts no byte twice:
- leaves do: SCSI, NVMe, virtio, MMC, pmem, remote ones such as rbd and nbd, and every path of a dm multipath;
- a partition, dm, md or anything else with `slaves` does not: the devices below it do;
- of NVMe multipath the hidden paths (nvme0c1n1) do and the head (nvme0n1) does not. Before Linux 6.5 the head counts
  nothing (commit d4d957b53d91 "nvme-multipath: support io stats on the mpath device"), since then both count;
- loop does not: its bytes are file I/O, seen on the device, server or memory that its file is on;
- zram and ram do not: memory is no storage. Nor does a ZFS volume (zd0): the disks of its pool do.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from ckptprof_collectors.counters import SECTOR_BYTES
from ckptprof_collectors.kernelfs import KernelFs, read_int, read_text
from ckptprof_collectors.mounts.mountinfo import RawMount, device_of_node, find_device, find_mount, host_mounts, parse
from ckptprof_collectors.samples import DeviceInfo, text

NVME_PATH = re.compile(r"nvme(\d+)c\d+n(\d+)")
NVME_HEAD = re.compile(r"nvme(\d+)n(\d+)")
_KIND_BY_NAME = ((re.compile(r"loop\d+"), "loop"), (re.compile(r"zram\d+"), "zram"), (re.compile(r"ram\d+"), "ram"))
_ZVOL = re.compile(r"zd\d+")
_CHANGEABLE = {"loop", "dm", "md", "zram"}
_TRANSPORTS = (  # a directory on the way to the device in /sys/devices; the most specific first
    (re.compile(r"/usb\d+/"), "usb"),
    (re.compile(r"/session\d+/"), "iscsi"),
    (re.compile(r"/rport-\d+:"), "fc"),
    (re.compile(r"/end_device-\d+:"), "sas"),
    (re.compile(r"/ata\d+/"), "sata"),
    (re.compile(r"/virtio\d+/"), "virtio"),
)


def is_changeable(info: DeviceInfo) -> bool:
    """Test whether the device below may change while the name stays."""
    return info.kind in _CHANGEABLE


def nvme_head(path: str) -> str | None:
    """Name of the NVMe multipath head above a hidden path device; None if it is no path."""
    match = NVME_PATH.fullmatch(path)
    return f"nvme{match[1]}n{match[2]}" if match else None


class DeviceTopology:
    """Describes devices; an object serves one round, since it caches the mounts."""

    def __init__(self, fs: KernelFs) -> None:
        self._fs = fs
        self._mounts: list[RawMount] | None = None

    def describe(self, device: str, major: int, minor: int) -> DeviceInfo | None:
        """Describe a device from sysfs; None if it is not there."""
        try:
            folder = Path(os.path.realpath(self._entry(device), strict=True))
        except OSError:
            return None
        kind = _kind(device, folder)
        disk = folder.parent if kind == "partition" else folder
        below = self._below(device, kind, folder)
        model, serial = _model_and_serial(kind, folder)
        size = read_int(folder / "size")
        rotational = read_int(disk / "queue" / "rotational")
        return DeviceInfo(
            device=device,
            major=major,
            minor=minor,
            kind=kind,
            below=below,
            is_countable=kind == "nvme-path" or (kind == "disk" and not below and not _ZVOL.fullmatch(device)),
            transport=self._transport(disk, below if kind == "disk" else ()),
            rotational=None if rotational is None else bool(rotational),
            size_bytes=None if size is None else size * SECTOR_BYTES,
            model=model,
            serial=serial,
            backing=_backing(kind, folder),
        )

    def _entry(self, device: str) -> Path:
        return self._fs.sys / "class" / "block" / device.replace("/", "!")  # as the kernel does: cciss!c0d0

    def _below(self, device: str, kind: str, folder: Path) -> tuple[str, ...]:
        if kind == "partition":
            return (folder.parent.name.replace("!", "/"),)
        if kind == "loop":
            return self._below_loop(folder)
        if NVME_HEAD.fullmatch(device):
            names = [name for name in _names(self._fs.sys / "class" / "block") if nvme_head(name) == device]
            return tuple(sorted(names, key=lambda name: [int(digits) for digits in re.findall(r"\d+", name)]))
        return tuple(sorted(_names(folder / "slaves")))

    def _below_loop(self, folder: Path) -> tuple[str, ...]:
        try:
            path = (folder / "loop" / "backing_file").read_bytes().rstrip(b"\n")
        except OSError:  # not attached
            return ()
        device = device_of_node(self._fs, path)
        if device is None:
            if self._mounts is None:
                self._mounts = []
                with suppress(OSError):
                    self._mounts = parse((host_mounts(self._fs) / "mountinfo").read_bytes())
            mount = find_mount(self._mounts, path)
            device = None if mount is None else find_device(self._fs, mount, self._mounts)
        return () if device is None else (device,)

    def _transport(self, disk: Path, paths: tuple[str, ...]) -> str | None:
        transport = read_text(disk / "device" / "transport")
        if transport:
            return f"nvme-{transport}"
        if paths:  # a multipath head: what all its paths have in common
            found = {read_text(self._entry(path) / "device" / "transport") for path in paths}
            only = found.pop() if len(found) == 1 else None
            return f"nvme-{only}" if only else None
        way = f"{disk}/"
        return next((name for pattern, name in _TRANSPORTS if pattern.search(way)), None)


def _kind(device: str, folder: Path) -> str:
    if (folder / "partition").exists():
        return "partition"
    for kind in ("dm", "md"):
        if (folder / kind).is_dir():
            return kind
    if nvme_head(device) is not None:
        return "nvme-path"
    return next((kind for pattern, kind in _KIND_BY_NAME if pattern.fullmatch(device)), "disk")


def _names(folder: Path) -> list[str]:
    try:
        return [text(os.fsencode(name)).replace("!", "/") for name in os.listdir(folder)]
    except OSError:
        return []


def _model_and_serial(kind: str, folder: Path) -> tuple[str | None, str | None]:
    if kind == "dm":  # the part before the first dash names the subsystem: LVM-..., CRYPT-LUKS2-..., mpath-...
        uuid = read_text(folder / "dm" / "uuid") or None
        return (uuid.partition("-")[0].lower() if uuid and "-" in uuid else None), uuid
    if kind == "md":
        return read_text(folder / "md" / "level") or None, None
    if kind not in {"disk", "nvme-path"}:
        return None, None
    model = read_text(folder / "device" / "model") or read_text(folder / "device" / "name")
    serial = read_text(folder / "device" / "serial") or read_text(folder / "serial") or _scsi_serial(folder)
    return model or None, serial or None


def _scsi_serial(folder: Path) -> str | None:
    """Read the unit serial number: SCSI's VPD page 0x80, four bytes of header and then text (SPC-4, 7.8.18)."""
    try:
        page = (folder / "device" / "vpd_pg80").read_bytes()
    except OSError:
        return None
    return text(page[4:]).strip(" \0") or None


def _backing(kind: str, folder: Path) -> str | None:
    if kind == "loop":
        return read_text(folder / "loop" / "backing_file") or None
    if kind == "dm":
        return read_text(folder / "dm" / "name") or None
    transport = read_text(folder / "device" / "transport")
    if transport not in {None, "pcie"}:
        return read_text(folder / "device" / "address") or None
    return None
