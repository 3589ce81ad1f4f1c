"""NVMe over fabrics as sysfs and diskstats show it, made from the formats of drivers/nvme/host: counters that move.

One namespace, nvme1n1, with a path over each of some controllers. There is no such hardware here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ckptprof_collectors.counters import SECTOR_BYTES
from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.samples import MountInfo

HEAD = "nvme1n1"
REQUEST_BYTES = 512 << 10


def nvme_mount() -> MountInfo:
    """Return a mount of the namespace."""
    return MountInfo(1, 259, 0, "/", "/ckpt", "ext4", f"/dev/{HEAD}", HEAD, None)


@dataclass
class NvmeTree:
    """The namespace with its paths; what was written is set by `wrote`."""

    root: Path
    transport: str = "tcp"
    addresses: tuple[str, ...] = ("traddr=10.0.0.2,trsvcid=4420,src_addr=10.0.0.9", "traddr=10.0.0.3,trsvcid=4420")
    multipath: bool = True
    _lines: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make what does not move."""
        for folder in ("proc/self", "sys/class/block"):
            (self.root / folder).mkdir(parents=True)
        (self.root / "proc/self/mountinfo").touch()
        if self.multipath:
            self._device(f"virtual/nvme-subsystem/nvme-subsys1/{HEAD}", 0)
        for number, address in enumerate(self.addresses):
            controller = self._controller(number)
            controller.mkdir(parents=True)
            for name, value in (("transport", self.transport), ("address", address), ("state", "live")):
                (controller / name).write_text(f"{value}\n")
            folder = self._device(f"virtual/nvme-fabrics/ctl/nvme{number}/{self.paths[number]}", number + 1)
            (folder / "device").symlink_to(controller)
            (folder / "ana_state").write_text("optimized\n")
        self.wrote(*[0] * len(self.addresses))

    @property
    def fs(self) -> KernelFs:
        """Where a collector finds it."""
        return KernelFs(proc=self.root / "proc", sys=self.root / "sys", dev=self.root / "dev")

    @property
    def paths(self) -> list[str]:
        """The names of the paths."""
        return [f"nvme1c{number}n1" if self.multipath else HEAD for number in range(len(self.addresses))]

    def _controller(self, number: int) -> Path:
        return self.root / f"sys/devices/virtual/nvme-fabrics/ctl/nvme{number}"

    def _device(self, way: str, minor: int) -> Path:
        folder = self.root / "sys/devices" / way
        folder.mkdir(parents=True)
        (folder / "size").write_text("7814037168\n")
        (self.root / "sys/class/block" / folder.name).symlink_to(folder)
        self._lines[folder.name] = f" 259 {minor} {folder.name} " + " ".join("0" * 17)
        return folder

    def state(self, number: int, state: str) -> None:
        """Set the state of a controller."""
        (self._controller(number) / "state").write_text(f"{state}\n")

    def access(self, number: int, ana_state: str) -> None:
        """Set what access the target gives over a path."""
        (self._controller(number) / self.paths[number] / "ana_state").write_text(f"{ana_state}\n")

    def remove(self, number: int) -> None:
        """Remove a controller, as after ctrl_loss_tmo."""
        (self.root / "sys/class/block" / self.paths[number]).unlink()
        del self._lines[self.paths[number]]
        self.flush()

    def wrote(self, *sizes: int, each_s: float = 0.001, busy_s: float = 0.0) -> None:
        """Set what was written over each path so far, how long each request took, and how long it had some."""
        for number, size in enumerate(sizes):
            requests = size // REQUEST_BYTES
            counts = (0, 0, 0, 0, requests, 0, size // SECTOR_BYTES, int(requests * each_s * 1000), 0)
            busy = int(busy_s * 1000)
            numbers = (*counts, busy, int(requests * each_s * 1000), 0, 0, 0, 0, 0, 0)
            name = self.paths[number]
            if name in self._lines:
                self._lines[name] = f" 259 {number + 1} {name} " + " ".join(map(str, numbers))
        self.flush()

    def flush(self) -> None:
        """Write the counters."""
        (self.root / "proc/diskstats").write_text("".join(f"{line}\n" for line in self._lines.values()))
