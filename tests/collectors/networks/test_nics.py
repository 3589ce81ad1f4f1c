"""The nics collector: on trees made by hand, and on the live machine with the kernel as oracle."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.leftovers import own_link

from ckptprof_collectors.kernelfs import KernelFs, UnavailableError
from ckptprof_collectors.networks.nics import REVIEW_SECONDS, NicReader, parse_line, parse_name
from ckptprof_collectors.samples import EntityGone, NicInfo, NicSample, Sample

HEADER = (
    b"Inter-|   Receive                                                |  Transmit\n"
    b" face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier"
    b" compressed\n"
)
# After a capture (Firecracker VM, Linux 6.18.44, 2026-11-21), with errors and drops made numbers so a mix-up shows.
ETH0 = (
    b"  eth0: 107843840    2675    1    2    0     0          0         0   203926    1794    3    4    0     0   0   0"
)


class Tree:
    """Builds /proc/self/net/dev and /sys/class/net."""

    def __init__(self, root: Path) -> None:
        """Lay the empty roots."""
        self.fs = KernelFs(proc=root / "proc", sys=root / "sys", dev=root / "dev")
        (self.fs.proc / "self/net").mkdir(parents=True)
        (self.fs.sys / "class/net").mkdir(parents=True)
        self.traffic: dict[str, int] = {}
        self.write()

    def write(self, **traffic: int) -> None:
        """Write the counters with these received bytes."""
        self.traffic.update(traffic)
        lines = [b"%6s: %d 1 0 0 0 0 0 0 5 6 7 8 0 0 0 0\n" % (k.encode(), v) for k, v in self.traffic.items()]
        (self.fs.proc / "self/net/dev").write_bytes(HEADER + b"".join(lines))

    def nic(self, name: str, *lower: str, driver: str | None = None, **attributes: object) -> Path:
        """Make an interface; with a driver it has hardware."""
        folder = self.fs.sys / "class/net" / name
        folder.mkdir()
        for attribute, value in attributes.items():
            (folder / attribute).write_text(f"{value}\n")
        for below in lower:
            (folder / f"lower_{below}").symlink_to(folder.parent / below)
        if driver:
            (folder / "device").mkdir()
            (folder / "device/driver").symlink_to(f"/sys/bus/pci/drivers/{driver}")
        self.write(**{name: 0})
        return folder

    def countable(self) -> set[str]:
        """Return what a collector counts."""
        collector = NicReader(self.fs)
        samples = collector.read()
        collector.close()
        return {sample.interface for sample in samples if isinstance(sample, NicInfo) and sample.is_countable}


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Give an empty tree."""
    return Tree(tmp_path)


def test_real_line() -> None:
    """Each number of a captured line lands in its field."""
    assert parse_line(ETH0) == NicSample("eth0", 107843840, 2675, 1, 2, 203926, 1794, 3, 4)


@pytest.mark.parametrize("line", [b"", b"eth0", b"eth0: 1 2 3", b": 1", b"eth0:" + b" x" * 16, *HEADER.split(b"\n")])
def test_malformed_lines_are_left_out(line: bytes) -> None:
    """Headers, short lines and words for numbers yield no sample."""
    assert parse_line(line) is None


@given(st.binary())
def test_no_bytes_make_it_fail(line: bytes) -> None:
    """Whatever a line holds, it gives a sample with a name or None."""
    assert parse_line(line) is None or parse_name(line)


def test_absent_file_is_unavailable(tmp_path: Path) -> None:
    """Without /proc/net/dev the reason names it."""
    with pytest.raises(UnavailableError, match="/proc/net/dev"):
        NicReader(KernelFs(proc=tmp_path, sys=tmp_path))


def test_physical_interface_is_described(tree: Tree) -> None:
    """Speed comes in bits per second, with carrier and driver."""
    tree.nic("ens1f0", driver="mlx5_core", speed=200000, carrier=1)
    collector = NicReader(tree.fs)
    first, second = list(collector.read()), list(collector.read())
    collector.close()

    assert first[0] == NicInfo("ens1f0", 200_000_000_000, carrier=True, driver="mlx5_core", is_countable=True)
    assert isinstance(first[1], NicSample)
    assert second == []


def test_what_the_driver_does_not_know_is_none(tree: Tree) -> None:
    """Speed -1 (virtio) and an unreadable carrier are unknown, not slow and not down."""
    tree.nic("eth0", driver="virtio_net", speed=-1)
    collector = NicReader(tree.fs)
    info = collector.read()[0]
    collector.close()

    assert info == NicInfo("eth0", None, carrier=None, driver="virtio_net", is_countable=True)


def test_bond_vlan_and_bridge_leave_the_counting_to_the_physical_ports(tree: Tree) -> None:
    """In a stack of bond, vlan, bridge and containers each byte is counted once, at the hardware."""
    tree.nic("eth0", driver="mlx5_core")
    tree.nic("eth1", driver="mlx5_core")
    tree.nic("bond0", "eth0", "eth1")
    tree.nic("bond0.7", "bond0")
    tree.nic("veth12ab", ifindex=9, iflink=2)
    tree.nic("br0", "bond0.7", "veth12ab")
    tree.nic("lo", ifindex=1, iflink=1)
    tree.nic("ib0", driver="mlx5_core")

    assert tree.countable() == {"eth0", "eth1", "ib0"}


def test_failover_pair_and_representor(tree: Tree) -> None:
    """A paravirtual interface above its virtual function, and the representor of a function, repeat its bytes."""
    tree.nic("ens5", driver="mlx5_core", phys_port_name="p0")
    tree.nic("eth0", "ens5", driver="hv_netvsc")
    tree.nic("pf0vf1", driver="mlx5_core", phys_port_name="pf0vf1")
    tree.nic("sf3", driver="mlx5_core", phys_port_name="c1pf0sf3")

    assert tree.countable() == {"ens5"}


def test_container_counts_the_end_of_its_own_veth(tree: Tree) -> None:
    """With no hardware in sight the interface whose other end is outside counts; tunnels and loopback do not."""
    tree.nic("lo", ifindex=1, iflink=1)
    tree.nic("tunl0", ifindex=2, iflink=0)
    tree.nic("eth0", ifindex=3, iflink=117)
    tree.nic("dummy0", ifindex=4, iflink=4)

    assert tree.countable() == {"eth0"}


def test_carrier_is_asked_again_after_the_review_time(tree: Tree) -> None:
    """A link that goes down is told at the next review and not before, although no traffic shows it."""
    now = 0.0
    folder = tree.nic("eth0", driver="e1000", carrier=1)
    collector = NicReader(tree.fs, clock=lambda: now)
    collector.read()
    (folder / "carrier").write_text("0\n")
    early = list(collector.read())
    now = REVIEW_SECONDS
    late = list(collector.read())
    collector.close()

    assert early == []
    assert late == [NicInfo("eth0", None, carrier=False, driver="e1000", is_countable=True)]


def test_only_changed_interfaces_and_more_than_a_page(tree: Tree) -> None:
    """Of 200 interfaces the one with traffic is reported, raw."""
    tree.write(**{f"veth{number}": 0 for number in range(200)})
    collector = NicReader(tree.fs)
    first = [sample for sample in collector.read() if isinstance(sample, NicSample)]
    tree.write(veth199=77)
    second = list(collector.read())
    collector.close()

    assert len(first) == 200
    assert second == [NicSample("veth199", 77, 1, 0, 0, 5, 6, 7, 8)]


def test_hostile_name(tree: Tree) -> None:
    """A name of escape codes and stray bytes is stored as text, and its sysfs is still found."""
    raw = b"\x1b[31m\xff"
    folder = tree.fs.sys / "class/net" / os.fsdecode(raw)
    folder.mkdir()
    (folder / "speed").write_text("10\n")
    (tree.fs.proc / "self/net/dev").write_bytes(HEADER + raw + b": 1 2 3 4 0 0 0 0 5 6 7 8 0 0 0 0\n")
    collector = NicReader(tree.fs)
    info, sample = collector.read()
    collector.close()

    assert isinstance(info, NicInfo)
    assert isinstance(sample, NicSample)
    assert (info.interface, info.speed_bits_per_second) == ("\x1b[31m\\xff", 10_000_000)
    assert sample.interface == info.interface


def statistics(interface: str) -> dict[str, int]:
    """Return the kernel's own files of an interface."""
    folder = Path("/sys/class/net", interface, "statistics")
    names = ("rx_bytes", "rx_packets", "rx_errors", "tx_bytes", "tx_packets", "tx_errors", "tx_dropped")
    return {name: int((folder / name).read_text()) for name in names}


def test_live_counters_are_the_kernels() -> None:
    """Each counter lies between two readings of /sys/class/net/*/statistics."""
    before = {"lo": statistics("lo")}
    for path in Path("/sys/class/net").iterdir():
        if (path / "device").exists():
            before[path.name] = statistics(path.name)
    collector = NicReader(KernelFs())
    seen = {sample.interface: sample for sample in collector.read() if isinstance(sample, NicSample)}
    collector.close()

    for name, low in before.items():
        high = statistics(name)
        for field in low:
            assert low[field] <= getattr(seen[name], field) <= high[field], (name, field)


@pytest.mark.root
@pytest.mark.capabilities("NET_ADMIN")
@pytest.mark.programs("ip")
def test_live_veth_comes_and_goes() -> None:
    """A new veth pair is described in the next read and does not count; its removal is told."""
    one, two = own_link("one"), own_link("two")
    collector = NicReader(KernelFs())
    collector.read()
    try:
        subprocess.run(["ip", "link", "add", one, "type", "veth", "peer", "name", two], check=True)
        came: list[Sample] = list(collector.read())
    finally:
        subprocess.run(["ip", "link", "delete", one], check=False)
    went = list(collector.read())
    collector.close()

    infos = {sample.interface: sample for sample in came if isinstance(sample, NicInfo)}
    assert (infos[one].is_countable, infos[two].is_countable) == (False, False)
    assert {one, two} <= {sample.interface for sample in came if isinstance(sample, NicSample)}
    assert {EntityGone("interface", one), EntityGone("interface", two)} <= {
        sample for sample in went if isinstance(sample, EntityGone)
    }
