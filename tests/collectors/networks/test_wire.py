"""What interfaces count at the wire: the drivers' own names, and the ioctls held against a real driver."""

from __future__ import annotations

import mmap
import re
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.leftovers import own_link

from ckptprof_collectors.kernelfs import KernelFs, UnavailableError
from ckptprof_collectors.networks import wire_counters
from ckptprof_collectors.networks.wire_counters import WireReader
from ckptprof_collectors.samples import WireSample

MLX5 = {
    "rx_packets": 1, "rx_bytes": 2, "rx_bytes_phy": 100, "tx_bytes_phy": 200, "rx_prio0_pause": 3, "rx_prio3_pause": 4,
    "rx_prio3_pause_duration": 999, "tx_prio3_pause": 5, "tx_global_pause": 1, "tx_discards_phy": 7,
    "rx_discards_phy": 8, "rx_4096_to_8191_bytes_phy": 999,
}  # fmt: skip
ICE = {
    "rx_bytes": 2,
    "tx_bytes.nic": 200,
    "rx_bytes.nic": 100,
    "rx_priority_3_xoff.nic": 4,
    "rx_priority_3_xon.nic": 99,
}
I40E = {"port.rx_bytes": 100, "port.tx_bytes": 200, "port.tx_priority_1_xoff": 6}


class Drivers:
    """Drivers that answer as they would be asked by the kernel."""

    def __init__(self, root: Path, **interfaces: dict[str, int]) -> None:
        """Take the numbers of each interface, all of which have hardware."""
        self.interfaces = interfaces
        self.asked: list[tuple[str, int]] = []
        self.root = root
        for name in interfaces:
            (root / "class/net" / name / "device").mkdir(parents=True)

    def __call__(self, name: str, room: mmap.mmap) -> None:
        """Answer; raises OSError for an interface that has no statistics."""
        (command,) = struct.unpack_from("=I", room)
        self.asked.append((name, command))
        numbers = self.interfaces[name]
        if not numbers:
            raise OSError(95, "Operation not supported")
        if command == 0x37:
            struct.pack_into("=I", room, 16, len(numbers))
        elif command == 0x1B:
            struct.pack_into("=I", room, 8, len(numbers))
            for at, word in enumerate(numbers):
                struct.pack_into("=32s", room, 12 + 32 * at, word.encode())
        else:
            struct.pack_into(f"=I{len(numbers)}Q", room, 4, len(numbers), *numbers.values())

    def open(self, clock: Callable[[], float] = lambda: 0.0) -> WireReader:
        """Return a collector that asks them."""
        return WireReader(KernelFs(sys=self.root), call_ethtool=self, clock=clock)


def test_each_driver_has_its_own_names(tmp_path: Path) -> None:
    """Bytes at the wire, pauses of all priorities, discards; what a driver does not count is not known."""
    collector = Drivers(tmp_path, eth0=MLX5, eth1=ICE, eth2=I40E).open()
    samples = collector.read()
    collector.close()

    assert samples == [
        WireSample("eth0", 100, 200, 7, 6, 8, 7),
        WireSample("eth1", 100, 200, 4, None, None, None),
        WireSample("eth2", 100, 200, None, 6, None, None),
    ]


def test_interfaces_that_count_nothing_at_the_wire_are_left_alone(tmp_path: Path) -> None:
    """If there is no other, the reason says so; one without hardware is not asked at all."""
    drivers = Drivers(tmp_path, eth0={"rx_packets": 1}, lo={})
    (tmp_path / "class/net/veth0").mkdir()
    with pytest.raises(UnavailableError, match="counts at the wire"):
        drivers.open()
    assert {name for name, _ in drivers.asked} == {"eth0", "lo"}
    with pytest.raises(UnavailableError, match="ioctl"):
        WireReader(KernelFs(sys=tmp_path))


def test_only_what_changed_is_told_and_no_more_than_once_a_second(tmp_path: Path) -> None:
    """And nothing while nobody trains."""
    now = 0.0
    drivers = Drivers(tmp_path, eth0=dict(MLX5))
    collector = drivers.open(lambda: now)
    collector.read()
    assert collector.read() is None
    now = 1.5
    assert collector.read() == []
    drivers.interfaces["eth0"]["tx_bytes_phy"] = 300
    now = 3.0
    collector.is_enabled = False
    assert collector.read() is None
    collector.is_enabled = True
    assert collector.read() == [WireSample("eth0", 100, 300, 7, 6, 8, 7)]
    collector.close()


def test_a_driver_that_has_other_numbers_now_is_asked_for_their_names_again(tmp_path: Path) -> None:
    """More queues, or another driver; one that is gone says nothing."""
    now = 0.0
    drivers = Drivers(tmp_path, eth0=dict(MLX5), eth1=dict(ICE))
    collector = drivers.open(lambda: now)
    collector.read()
    drivers.interfaces["eth0"] = {"new": 1, **MLX5, "tx_bytes_phy": 900}
    drivers.interfaces["eth1"] = {}
    now = 2.0
    assert collector.read() == []
    now = 4.0
    assert collector.read() == [WireSample("eth0", 100, 900, 7, 6, 8, 7)]
    collector.close()


@pytest.mark.parametrize("count", [0, 1 << 30])
def test_a_driver_that_tells_absurd_counts_is_left_alone(tmp_path: Path, count: int) -> None:
    """There is room for so many."""

    def absurd(_: str, room: mmap.mmap) -> None:
        struct.pack_into("=I", room, 16, count)

    (tmp_path / "class/net/eth0/device").mkdir(parents=True)
    with pytest.raises(UnavailableError):
        WireReader(KernelFs(sys=tmp_path), call_ethtool=absurd)


@pytest.mark.root
@pytest.mark.capabilities("NET_ADMIN")
@pytest.mark.programs("ip")
def test_a_real_driver_is_asked_as_the_kernel_wants_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A veth, whose numbers have other names; in a tree that says that it has hardware."""
    name = own_link("wire")
    if subprocess.run(["ip", "link", "add", name, "type", "veth", "peer", "name", f"{name}p"], check=False).returncode:
        pytest.skip("no interface can be made here")
    try:
        (tmp_path / "class/net" / name / "device").mkdir(parents=True)
        patterns = (("rx_bytes", re.compile("peer_ifindex")), ("tx_bytes", re.compile("rx_queue_0_xdp_packets")))
        monkeypatch.setattr(wire_counters, "_NAMES", (*patterns, *wire_counters._NAMES[2:]))
        collector = WireReader.__new__(WireReader)
        asked: list[str] = []

        def through(interface: str, room: mmap.mmap) -> None:
            asked.append(interface)
            collector._ioctl(interface, room)

        collector.__init__(KernelFs(sys=tmp_path), call_ethtool=through)  # type: ignore[misc] # asks itself
        (sample,) = collector.read() or ()
        collector.close()
        peer = int(Path(f"/sys/class/net/{name}p/ifindex").read_text())
    finally:
        subprocess.run(["ip", "link", "del", name], check=False)
    assert sample == WireSample(name, peer, 0, None, None, None, None)
    assert len(asked) == 3
