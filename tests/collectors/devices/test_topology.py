"""The stack of block devices, on sysfs trees made by hand after the kernel's layout (no such hardware here)."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckptprof_collectors.devices.topology import DeviceTopology
from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.samples import DeviceInfo


class Tree:
    """Builds a sysfs with the kernel's own shape: class/block holds links into devices/."""

    def __init__(self, root: Path) -> None:
        """Lay the empty roots."""
        self.fs = KernelFs(proc=root / "proc", sys=root / "sys", dev=root / "dev")
        for folder in ("proc/self", "sys/class/block", "sys/dev/block", "dev"):
            (root / folder).mkdir(parents=True)

    def device(self, way: str, number: str = "", /, **attributes: str) -> Path:
        """Make a device at devices/<way>; an attribute `queue__rotational` is the file queue/rotational."""
        folder = self.fs.sys / "devices" / way
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in attributes.items():
            file = folder / name.replace("__", "/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(value + "\n")
        (self.fs.sys / "class/block" / folder.name).symlink_to(folder)
        if number:
            (self.fs.sys / "dev/block" / number).symlink_to(folder)
        return folder

    def stack(self, way: str, *slaves: str, **attributes: str) -> Path:
        """Make a device that lies on others."""
        folder = self.device(way, "", **attributes)
        (folder / "slaves").mkdir()
        for slave in slaves:
            (folder / "slaves" / slave).symlink_to(self.fs.sys / "class/block" / slave)
        return folder

    def controller(self, way: str, **attributes: str) -> Path:
        """Make an NVMe controller."""
        folder = self.fs.sys / "devices" / way
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in attributes.items():
            (folder / name).write_text(value + "\n")
        return folder

    def describe(self, device: str) -> DeviceInfo:
        """Describe a device that must be there."""
        info = DeviceTopology(self.fs).describe(device, 1, 2)
        assert info is not None
        return info


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Give an empty tree."""
    return Tree(tmp_path)


def test_sata_disk_and_its_partition(tree: Tree) -> None:
    """The disk counts and its partition does not; the queue and transport of the partition are the disk's."""
    way = "pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0/block/sda"
    folder = tree.device(way, size="2048", queue__rotational="1", device__model="ST4000NM0035-1V4")
    (folder / "device/vpd_pg80").write_bytes(b"\x00\x80\x00\x08ZC1A2B3C")
    tree.device(way + "/sda1", size="1024", partition="1")

    disk, partition = tree.describe("sda"), tree.describe("sda1")

    assert (disk.kind, disk.is_countable, disk.below, disk.transport, disk.rotational) == (
        "disk",
        True,
        (),
        "sata",
        True,
    )
    assert (disk.size_bytes, disk.model, disk.serial) == (1 << 20, "ST4000NM0035-1V4", "ZC1A2B3C")
    assert (partition.kind, partition.is_countable, partition.below) == ("partition", False, ("sda",))
    assert (partition.transport, partition.rotational, partition.size_bytes) == ("sata", True, 1 << 19)


@pytest.mark.parametrize(
    ("way", "transport"),
    [
        ("pci0000:00/0000:00:14.0/usb2/2-1/2-1:1.0/host6/target6:0:0/6:0:0:0/block/sdx", "usb"),
        ("platform/host2/session1/target2:0:0/2:0:0:0/block/sdx", "iscsi"),
        ("pci0000:80/0000:80:02.0/host7/rport-7:0-1/target7:0:0/7:0:0:0/block/sdx", "fc"),
        ("pci0000:80/0000:82:00.0/host8/port-8:0/end_device-8:0/target8:0:0/8:0:0:0/block/sdx", "sas"),
        ("pci0000:00/0000:00:02.0/virtio1/block/sdx", "virtio"),
        ("pci0000:00/0000:03:00.0/host0/target0:2:0/0:2:0:0/block/sdx", None),
    ],
)
def test_transport_is_read_off_the_way_to_the_device(tree: Tree, way: str, transport: str | None) -> None:
    """Each bus shows in the path of the device; a RAID controller that hides it gives None."""
    tree.device(way)

    assert transport == tree.describe("sdx").transport


def test_logical_volume_on_crypt_on_md_on_two_disks(tree: Tree) -> None:
    """In a stack of four levels only the two disks at the bottom count."""
    for disk in ("sda", "sdb"):
        tree.device(f"pci0000:00/ata1/host0/block/{disk}")
    tree.stack("virtual/block/md0", "sdb", "sda", md__level="raid1")
    tree.stack("virtual/block/dm-0", "md0", dm__name="secret", dm__uuid="CRYPT-LUKS2-0a1b-secret")
    tree.stack("virtual/block/dm-1", "dm-0", dm__name="vg0-scratch", dm__uuid="LVM-abcdef")

    infos = {name: tree.describe(name) for name in ("sda", "sdb", "md0", "dm-0", "dm-1")}

    assert {"sda", "sdb"} == {name for name, info in infos.items() if info.is_countable}
    assert [infos[name].below for name in ("md0", "dm-0", "dm-1")] == [("sda", "sdb"), ("md0",), ("dm-0",)]
    assert (infos["md0"].model, infos["dm-0"].model, infos["dm-1"].model) == ("raid1", "crypt", "lvm")
    assert (infos["dm-1"].backing, infos["dm-1"].serial) == ("vg0-scratch", "LVM-abcdef")


def test_dm_multipath_counts_each_path(tree: Tree) -> None:
    """The two SCSI paths below a multipath map carry different bytes: both count, the map does not."""
    for at, disk in enumerate(("sda", "sdb")):
        tree.device(f"pci0000:80/host{at}/rport-{at}:0-1/block/{disk}")
    tree.stack("virtual/block/dm-0", "sda", "sdb", dm__name="mpatha", dm__uuid="mpath-3600508b4")

    infos = [tree.describe(name) for name in ("sda", "sdb", "dm-0")]

    assert [info.is_countable for info in infos] == [True, True, False]
    assert infos[2].model == "mpath"


def test_plain_nvme_namespace_counts(tree: Tree) -> None:
    """A local drive has no path device: its namespace is the leaf, and a PCI address is no target."""
    nvme = tree.controller("pci0000:00/0000:81:00.0/nvme/nvme0", transport="pcie", address="0000:81:00.0")
    (nvme / "model").write_text("SAMSUNG MZQL23T8HCLS-00A07                  \n")
    (nvme / "serial").write_text("S64HNE0R500000      \n")
    folder = tree.device("pci0000:00/0000:81:00.0/nvme/nvme0/nvme0n1", queue__rotational="0")
    (folder / "device").symlink_to(nvme)
    tree.device("pci0000:00/0000:81:00.0/nvme/nvme0/nvme0n1/nvme0n1p1", partition="1")

    info, partition = tree.describe("nvme0n1"), tree.describe("nvme0n1p1")

    assert (
        info.kind,
        info.is_countable,
        info.below,
        info.transport,
        info.rotational,
    ) == ("disk", True, (), "nvme-pcie", False)
    assert (info.model, info.serial, info.backing) == ("SAMSUNG MZQL23T8HCLS-00A07", "S64HNE0R500000", None)
    assert partition.below == ("nvme0n1",)


def test_nvme_multipath_counts_the_paths(tree: Tree) -> None:
    """The hidden paths count and the head above them does not, whichever of them the kernel keeps statistics of."""
    for number in (2, 10):
        address = f"traddr=10.0.0.{number},trsvcid=4420"
        fabric = tree.controller(f"virtual/nvme-fabrics/ctl/nvme{number}", transport="tcp", address=address)
        folder = tree.device(f"virtual/nvme-fabrics/ctl/nvme{number}/nvme1c{number}n1")
        (folder / "device").symlink_to(fabric)
    tree.device("virtual/nvme-subsystem/nvme-subsys1/nvme1n1")

    head, path = tree.describe("nvme1n1"), tree.describe("nvme1c10n1")

    assert (
        head.kind,
        head.is_countable,
        head.below,
        head.transport,
    ) == ("disk", False, ("nvme1c2n1", "nvme1c10n1"), "nvme-tcp")
    assert (path.kind, path.is_countable, path.transport) == ("nvme-path", True, "nvme-tcp")
    assert path.backing == "traddr=10.0.0.10,trsvcid=4420"


def test_loop_on_a_file_is_placed_by_the_mounts_without_touching_the_file(tree: Tree) -> None:
    """The file's longest mount names the device under the loop, although the file cannot be looked at."""
    tree.device("pci0000:00/virtio1/block/vda", "254:0")
    tree.device("pci0000:00/virtio2/block/vdb", "254:16")
    mountinfo = b"1 0 254:0 / / rw - ext4 /dev/vda rw\n2 1 254:16 / /mnt/big\\040disk rw - xfs /dev/vdb rw\n"
    (tree.fs.proc / "self/mountinfo").write_bytes(mountinfo)
    tree.device("virtual/block/loop0", loop__backing_file="/mnt/big disk/image (deleted)")
    tree.device("virtual/block/loop1", loop__backing_file="/mnt/bigger/image")

    infos = [tree.describe("loop0"), tree.describe("loop1")]

    assert [info.below for info in infos] == [("vdb",), ("vda",)]
    assert [(info.kind, info.is_countable) for info in infos] == [("loop", False)] * 2
    assert infos[0].backing == "/mnt/big disk/image (deleted)"


def test_loop_on_a_device_and_loop_on_nothing(tree: Tree) -> None:
    """A loop may lie on a block device itself; one that is not attached lies on nothing."""
    tree.device("pci0000:00/virtio1/block/vda", "254:0")
    (tree.fs.dev / "vda").touch()
    tree.device("virtual/block/loop0", loop__backing_file="/dev/vda")
    tree.device("virtual/block/loop1", size="0")

    assert (tree.describe("loop0").below, tree.describe("loop1").below) == (("vda",), ())
    assert tree.describe("loop1").backing is None


def test_memory_and_pooled_volumes_are_no_storage_of_their_own(tree: Tree) -> None:
    """Neither zram, ram nor a ZFS volume counts; persistent memory and remote disks do."""
    for name in ("zram0", "ram0", "zd16", "pmem0", "rbd0", "nbd0"):
        tree.device(f"virtual/block/{name}")

    infos = {name: tree.describe(name) for name in ("zram0", "ram0", "zd16", "pmem0", "rbd0", "nbd0")}

    assert {"pmem0", "rbd0", "nbd0"} == {name for name, info in infos.items() if info.is_countable}
    assert (infos["zram0"].kind, infos["ram0"].kind) == ("zram", "ram")


def test_cache_over_disks_does_not_count(tree: Tree) -> None:
    """Whatever has slaves (bcache, drbd) leaves the counting to them, known by name or not."""
    tree.device("pci0000:00/ata1/block/sda")
    tree.stack("virtual/block/bcache0", "sda")

    assert (tree.describe("bcache0").is_countable, tree.describe("bcache0").below) == (False, ("sda",))


def test_name_with_a_slash(tree: Tree) -> None:
    """Sysfs spells the slash in a device's name as an exclamation mark."""
    tree.device("pci0000:00/cciss0/block/cciss!c0d0")
    tree.device("pci0000:00/cciss0/block/cciss!c0d0/cciss!c0d0p1", partition="1")

    assert tree.describe("cciss/c0d0").device == "cciss/c0d0"
    assert tree.describe("cciss/c0d0p1").below == ("cciss/c0d0",)


def test_what_cannot_be_read_is_none(tree: Tree) -> None:
    """A device without attributes has no size and no rotation, and one that is not there no description."""
    tree.device("virtual/block/odd0", size="not a number")

    info = tree.describe("odd0")

    assert (info.size_bytes, info.rotational, info.model, info.serial) == (None, None, None, None)
    assert DeviceTopology(tree.fs).describe("gone0", 1, 2) is None
