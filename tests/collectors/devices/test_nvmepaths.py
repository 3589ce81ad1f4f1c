"""Paths to NVMe namespaces behind fabrics, on trees made after the kernel's formats."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.nvmetree import HEAD, NvmeTree

from ckptprof_collectors.devices import nvme_paths
from ckptprof_collectors.devices.block_devices import REVIEW_SECONDS, BlockDevices
from ckptprof_collectors.devices.nvme_paths import MAX_PATHS, REOPEN_SECONDS, NvmePathReader
from ckptprof_collectors.kernelfs import KernelFs, read_text
from ckptprof_collectors.samples import DeviceInfo, EntityGone, NvmePath, Sample


def paths(samples: object) -> list[NvmePath]:
    """Return the paths of some samples."""
    assert isinstance(samples, list)
    return [one for one in samples if isinstance(one, NvmePath)]


def read(collector: BlockDevices) -> list[Sample]:
    """Return what one reading tells."""
    return list(collector.read())


def test_paths_are_told_with_their_target_and_when_they_change(tmp_path: Path) -> None:
    """Once each, and again only when a state is another one."""
    tree = NvmeTree(tmp_path)
    collector = BlockDevices(tree.fs)
    first, still = paths(read(collector)), paths(read(collector))
    tree.state(1, "connecting")
    lost = paths(read(collector))
    tree.access(0, "non-optimized")
    moved = paths(read(collector))
    collector.close()

    assert first == [
        NvmePath("nvme1c0n1", HEAD, "tcp", "10.0.0.2", 4420, None, "live", "optimized"),
        NvmePath("nvme1c1n1", HEAD, "tcp", "10.0.0.3", 4420, None, "live", "optimized"),
    ]
    assert still == []
    assert [(one.device, one.state) for one in lost] == [("nvme1c1n1", "connecting")]
    assert [(one.device, one.ana_state) for one in moved] == [("nvme1c0n1", "non-optimized")]


def test_a_controller_that_is_removed_is_gone(tmp_path: Path) -> None:
    """Its descriptors are given back, and the others are read on."""
    tree = NvmeTree(tmp_path)
    now = 0.0
    collector = BlockDevices(tree.fs, clock=lambda: now)
    read(collector)
    tree.remove(1)
    now += REVIEW_SECONDS
    told = read(collector)
    tree.state(0, "resetting")
    after = paths(read(collector))
    collector.close()

    assert EntityGone("device", "nvme1c1n1") in told
    assert [(one.device, one.state) for one in after] == [("nvme1c0n1", "resetting")]


def test_a_controller_that_came_back_by_its_name_is_read_again(tmp_path: Path) -> None:
    """Between two readings the device did not change; its states are other files, which are looked for now and then."""
    tree = NvmeTree(tmp_path)
    now = 0.0
    collector = BlockDevices(tree.fs, clock=lambda: now)
    read(collector)
    tree.state(0, "")  # what was opened tells nothing any more
    dead = paths(read(collector))
    for file in tmp_path.glob("sys/devices/virtual/nvme-fabrics/ctl/nvme0/state"):
        file.unlink()
    tree.state(0, "live")
    soon = paths(read(collector))
    now += REOPEN_SECONDS
    later = paths(read(collector))
    collector.close()

    assert [(one.device, one.state) for one in dead] == [("nvme1c0n1", None)]
    assert soon == []
    assert [(one.device, one.state) for one in later] == [("nvme1c0n1", "live")]


def test_without_multipathing_the_namespace_is_its_path(tmp_path: Path) -> None:
    """With `nvme_core.multipath=N` there is no head above it."""
    tree = NvmeTree(tmp_path, multipath=False, addresses=("traddr=10.0.0.2,trsvcid=4420,host_iface=eth1",))
    collector = BlockDevices(tree.fs)
    told = paths(read(collector))
    collector.close()

    assert told == [NvmePath(HEAD, HEAD, "tcp", "10.0.0.2", 4420, "eth1", "live", "optimized")]


@pytest.mark.parametrize(
    ("transport", "address", "told"),
    [
        ("rdma", "traddr=10.0.0.2,trsvcid=4420,host_traddr=10.0.0.9", ("10.0.0.2", 4420, "mlx5_0/1")),
        ("rdma", "traddr=10.0.0.2,trsvcid=4420,host_traddr=10.0.0.7", ("10.0.0.2", 4420, None)),
        ("rdma", "traddr=10.0.0.2,trsvcid=4420", ("10.0.0.2", 4420, None)),
        ("tcp", "traddr=fd00::2%eth0,trsvcid=4420", ("fd00::2", 4420, None)),
        ("tcp", "traddr=storage,trsvcid=none", ("storage", None, None)),
        ("tcp", "traddr=10.0.0.2,trsvcid=99999999999999999999", ("10.0.0.2", None, None)),
        ("fc", "traddr=nn-0x1:pn-0x2,host_traddr=nn-0x3:pn-0x4", ("nn-0x1:pn-0x2", None, None)),
        ("tcp", "garbage", (None, None, None)),
    ],
)
def test_what_the_address_of_a_controller_says(
    tmp_path: Path, transport: str, address: str, told: tuple[str | None, int | None, str | None]
) -> None:
    """The port of RDMA is the one whose GID is the address of this host."""
    tree = NvmeTree(tmp_path, transport=transport, addresses=(address,))
    gids = tmp_path / "sys/class/infiniband/mlx5_0/ports/1/gids"
    gids.mkdir(parents=True)
    (gids / "0").write_text("fe80:0000:0000:0000:0e42:a1ff:fe00:0001\n")
    (gids / "1").write_text("0000:0000:0000:0000:0000:ffff:0a00:0009\n")
    collector = BlockDevices(tree.fs)
    (path,) = paths(read(collector))
    collector.close()

    assert (path.target, path.port, path.link) == told


def test_addresses_of_rdma_ports_are_read_once_for_all_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A port has hundreds; of one of InfiniBand they are none of IP. One that vanishes meanwhile has none."""
    addresses = [f"traddr=10.0.0.2,trsvcid=4420,host_traddr=10.0.0.{last}" for last in (8, 9)]
    tree = NvmeTree(tmp_path, transport="rdma", addresses=tuple(addresses))
    devices = tmp_path / "sys/class/infiniband"
    for device, layer, last in (("mlx5_0", "InfiniBand", 8), ("mlx5_1", "Ethernet", 9)):
        (devices / device / "ports/1/gids").mkdir(parents=True)
        (devices / device / "ports/1/link_layer").write_text(f"{layer}\n")
        (devices / device / "ports/1/gids/0").write_text(f"0000:0000:0000:0000:0000:ffff:0a00:000{last}\n")
    (devices / "mlx5_2").symlink_to(tmp_path / "gone")
    asked: list[Path] = []

    def asking(path: Path) -> str | None:
        asked.append(path)
        return read_text(path)

    monkeypatch.setattr(nvme_paths, "read_text", asking)
    collector = BlockDevices(tree.fs)
    told = paths(read(collector))
    collector.close()

    assert [one.link for one in told] == [None, "mlx5_1/1"]
    assert [path for path in asked if path.parent.name == "gids"] == [devices / "mlx5_1/ports/1/gids/0"]


def test_local_drives_have_no_paths(tmp_path: Path) -> None:
    """Nor has a target on this host itself: nothing is opened for them."""
    for transport in ("pcie", "loop"):
        tree = NvmeTree(tmp_path / transport, transport=transport)
        collector = BlockDevices(tree.fs)
        assert paths(read(collector)) == []
        collector.close()


def test_states_that_cannot_be_read_are_not_known(tmp_path: Path) -> None:
    """Without asymmetric access there is no state of it; what is empty or odd is as it is."""
    tree = NvmeTree(tmp_path, addresses=("traddr=10.0.0.2,trsvcid=4420",))
    (tmp_path / "sys/devices/virtual/nvme-fabrics/ctl/nvme0/nvme1c0n1/ana_state").unlink()
    tree.state(0, "")
    collector = BlockDevices(tree.fs)
    (path,) = paths(read(collector))
    tree.state(0, "a\x1bstate")
    (odd,) = paths(read(collector))
    collector.close()

    assert (path.state, path.ana_state) == (None, None)
    assert odd.state == "a\x1bstate"


def test_no_more_paths_are_read_than_there_is_room_for(tmp_path: Path) -> None:
    """Each has two descriptors open."""
    (tmp_path / "sys/class/block").mkdir(parents=True)
    many = [
        DeviceInfo(f"nvme1c{number}n1", 259, number, "nvme-path", (), True, "nvme-tcp", False, 0, None, None, None)  # noqa: FBT003 - a struct of the collectors
        for number in range(MAX_PATHS + 9)
    ]
    collector = NvmePathReader(KernelFs(sys=tmp_path / "sys"))
    collector.set_devices(many)

    assert len(collector.read()) == MAX_PATHS
    collector.set_devices(many[-9:])
    assert len(collector.read()) == 9
    collector.close()
