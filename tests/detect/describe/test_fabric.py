"""What is told of the fabric of a checkpoint: congestion of RDMA ports, pauses and bytes at the wire."""

from __future__ import annotations

from typing import Any

import pytest
from tests.detect.observed import frame

from ckptprof.detect.world.host.network_counters import NetworkCounters
from ckptprof.measures import LinkMeasure
from ckptprof_collectors.samples import NicInfo, NicSample, RdmaInfo, RdmaSample, WireSample

SECOND = 1_000_000_000
MIB = 1 << 20
PORT = RdmaInfo("mlx5_0/1", 400_000_000_000, "ACTIVE", "Ethernet", "eth0")
NIC = NicInfo("eth0", 400_000_000_000, True, "mlx5_core", True)  # noqa: FBT003 - a struct of the collectors


def port(second: float, **more: Any) -> RdmaSample:
    """Return a port that moves 100 MiB/s, waits for credit as long, and is told to slow down ten times a second."""
    moved = int(second * 100 * MIB)
    told: dict[str, Any] = {
        "port": "mlx5_0/1", "rx_bytes": 0, "tx_bytes": moved, "rx_packets": 0, "tx_packets": 0,
        "tx_wait_ticks": moved // 4, "tx_discards": int(second), "cnp_handled": int(10 * second), "ecn_marked": 0,
        "out_of_sequence": int(2 * second), "sequence_errors": int(3 * second), "ack_timeouts": 0,
    }  # fmt: skip
    return RdmaSample(**{**told, **more})


def played(*kinds: Any, seconds: int = 30) -> NetworkCounters:
    """Return what was seen of samples that grow with the seconds."""
    made = NetworkCounters()
    made.ingest(frame(0, 0, PORT, NIC))
    for second in range(seconds + 1):
        at_ns = second * SECOND
        made.ingest(frame(at_ns, max(0, at_ns - SECOND), *(kind(second) for kind in kinds)))
    return made


def told(made: NetworkCounters, start_s: float = 20.0, end_s: float = 24.0, *, writes: bool = True) -> LinkMeasure:
    """Return the busiest link of a time."""
    return made.measures(int(start_s * SECOND), int(end_s * SECOND), writes=writes)[0]


def test_an_rdma_port_is_told_with_what_the_fabric_did_to_it() -> None:
    """Of that time only; waits against what it sent, and the pace that it had before."""
    link = told(played(port))

    assert (link.name, link.kind, link.sent_bytes) == ("mlx5_0/1", "rdma", 400 * MIB)
    assert (link.congestion_notifications, link.discards, link.ack_timeouts) == (40, 4, 0)
    assert (link.out_of_sequence, link.marked_packets) == (20, 0)
    assert link.wait_share == pytest.approx(0.5)
    assert link.before_bytes_per_second == pytest.approx(100 * MIB)


def test_what_a_driver_does_not_count_is_not_known() -> None:
    """None, and not zero."""

    def bare(second: float) -> RdmaSample:
        return port(second, tx_wait_ticks=None, cnp_handled=None, out_of_sequence=None, sequence_errors=None,
                    tx_discards=None, ack_timeouts=None, ecn_marked=None)  # fmt: skip

    link = told(played(bare))
    assert link.sent_bytes == 400 * MIB
    assert (link.wait_share, link.congestion_notifications, link.out_of_sequence, link.discards) == (None,) * 4


@pytest.mark.parametrize(("start_s", "known"), [(4.5, False), (5.5, True), (20.0, True)])
def test_the_pace_before_it_is_that_of_seconds(start_s: float, known: bool) -> None:  # noqa: FBT001 - a case
    """Of ten, and of five at least."""

    def late(second: float) -> RdmaSample:
        return port(max(0.0, second - 12))

    assert (told(played(port), start_s, start_s + 2).before_bytes_per_second is not None) == known
    assert told(played(late), 20.0, 24.0).before_bytes_per_second == pytest.approx(80 * MIB)
    assert told(played(late), 24.0, 28.0).before_bytes_per_second == pytest.approx(100 * MIB)


def wire(second: float, **more: Any) -> WireSample:
    """Return a wire over which go 200 MiB/s out, and that is paused 50 times a second."""
    told_: dict[str, Any] = {
        "interface": "eth0", "rx_bytes": int(second * MIB), "tx_bytes": int(second * 200 * MIB),
        "rx_pauses": int(50 * second), "tx_pauses": 0, "rx_discards": None, "tx_discards": int(second),
    }  # fmt: skip
    return WireSample(**{**told_, **more})


def nic(second: float, rate: int = MIB) -> NicSample:
    """Return what the kernel counts of it."""
    moved = int(second * rate)
    return NicSample("eth0", moved, 0, 0, 0, moved, 0, 0, 0)


def test_what_goes_past_the_kernel_is_told_by_the_wire() -> None:
    """Its speed and its course, too: the kernel's numbers are of something else."""
    link = told(played(nic, wire))

    assert (link.sent_bytes, link.wire_sent_bytes, link.wire_received_bytes) == (4 * MIB, 800 * MIB, 4 * MIB)
    assert (link.pauses_received, link.pauses_sent, link.discards) == (200, 0, 4)
    assert link.peak_bytes_per_second == pytest.approx(200 * MIB, rel=0.01)
    assert link.shown_bytes_per_second == pytest.approx(200 * MIB, rel=0.01)


def test_a_port_of_ethernet_is_told_with_the_pauses_of_its_interface() -> None:
    """They are those of the wire that both have; the port's own count of what it discarded goes before that."""
    made = played(port, nic, wire)
    links = {one.name: one for one in made.measures(20 * SECOND, 24 * SECOND, writes=True)}
    bare = told(played(lambda second: port(second, tx_discards=None), wire))

    assert links["mlx5_0/1"].interface == "eth0"
    assert (links["mlx5_0/1"].pauses_received, links["mlx5_0/1"].pauses_sent) == (200, 0)
    assert links["mlx5_0/1"].discards == 4
    assert links["mlx5_0/1"].wire_sent_bytes is None
    assert (bare.name, bare.discards, bare.pauses_received) == ("mlx5_0/1", 4, 200)
    assert told(played(port)).pauses_received is None


@pytest.mark.parametrize(("rate", "past"), [(90 * MIB, True), (110 * MIB, False)])
def test_headers_do_not_go_past_the_kernel(rate: int, past: bool) -> None:  # noqa: FBT001 - a case
    """Where the kernel saw half of it and more, its numbers are the finer ones."""
    link = told(played(lambda second: nic(second, rate), wire))
    assert (link.peak_bytes_per_second == pytest.approx(200 * MIB, rel=0.01)) == past


def test_a_port_that_is_gone_is_forgotten() -> None:
    """Another one may have its name."""
    made = played(port, nic, wire)
    made.forget("mlx5_0/1")
    made.forget("eth0")
    assert made.measures(0, 30 * SECOND, writes=True) == ()


def test_data_units_are_four_octets() -> None:
    """A tick of a port is the time of one: of 400 bytes and 25 ticks a fifth was waiting."""

    def small(second: float) -> RdmaSample:
        return port(second, tx_bytes=int(second * 400), tx_wait_ticks=int(second * 25))

    assert told(played(small)).wait_share == pytest.approx(0.2)
