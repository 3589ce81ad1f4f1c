"""The rdma collector, on trees made by hand after the kernel's ABI document: there is no such hardware here."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckptprof_collectors.kernelfs import KernelFs, UnavailableError
from ckptprof_collectors.networks.rdma import REVIEW_SECONDS, RdmaPorts
from ckptprof_collectors.samples import EntityGone, RdmaInfo, RdmaSample

COUNTERS = {
    "port_rcv_data": "1000",
    "port_xmit_data": "18446744073709551615",
    "port_rcv_packets": "30",
    "port_xmit_packets": "40",
    "port_xmit_wait": "50",
}


def add_port(root: Path, device: str, number: int, **attributes: str) -> Path:
    """Make a port with all counters; `gid_netdev` is the netdev of its first GID."""
    port = root / "class/infiniband" / device / "ports" / str(number)
    (port / "counters").mkdir(parents=True)
    for name, value in COUNTERS.items():
        (port / "counters" / name).write_text(value + "\n")
    if netdev := attributes.pop("gid_netdev", None):
        (port / "gid_attrs/ndevs").mkdir(parents=True)
        (port / "gid_attrs/ndevs/0").write_text(netdev + "\n")
    for name, value in attributes.items():
        (port / name).write_text(value + "\n")
    return port


def test_absent_hardware_is_unavailable(tmp_path: Path) -> None:
    """Without the class, or with an empty one, the reason says so."""
    with pytest.raises(UnavailableError, match="no RDMA port"):
        RdmaPorts(KernelFs(sys=tmp_path))
    (tmp_path / "class/infiniband/mlx5_0/ports").mkdir(parents=True)
    with pytest.raises(UnavailableError, match="no RDMA port"):
        RdmaPorts(KernelFs(sys=tmp_path))


def test_port_and_its_counters(tmp_path: Path) -> None:
    """Data counters are multiplied by four octets, nothing else is scaled; all ones are what nobody counted."""
    add_port(
        tmp_path, "mlx5_0", 1, rate="400 Gb/sec (4X NDR)", state="4: ACTIVE", link_layer="InfiniBand", gid_netdev="ib0"
    )
    collector = RdmaPorts(KernelFs(sys=tmp_path))
    first, second = list(collector.read()), list(collector.read())
    collector.close()

    assert first == [
        RdmaInfo("mlx5_0/1", 400_000_000_000, "ACTIVE", "InfiniBand", "ib0"),
        RdmaSample("mlx5_0/1", 4000, None, 30, 40, 50),
    ]
    assert second == []


def test_counters_that_are_missing_or_not_supported_are_none(tmp_path: Path) -> None:
    """A counter without a file, and one that reads N/A, is unknown; so are rate and state."""
    port = add_port(tmp_path, "rxe0", 1, rate="unknown", state="")
    (port / "counters/port_xmit_wait").unlink()
    (port / "counters/port_rcv_data").write_text("N/A (no PMA)\n")
    collector = RdmaPorts(KernelFs(sys=tmp_path))
    info, sample = collector.read()
    collector.close()

    assert info == RdmaInfo("rxe0/1", None, None, None, None)
    assert isinstance(sample, RdmaSample)
    assert (sample.rx_bytes, sample.rx_packets, sample.tx_wait_ticks) == (None, 30, None)


@pytest.mark.parametrize("said", ["-1", "18446744073709551615", "garbage", "", "99999999999999999999999"])
def test_what_cannot_be_counted_is_not_known(tmp_path: Path, said: str) -> None:
    """It would not go through the pipe to the recorder, whose numbers have 64 bits."""
    port = add_port(tmp_path, "mlx5_0", 1)
    for name in COUNTERS:
        (port / "counters" / name).write_text(f"{said}\n")
    collector = RdmaPorts(KernelFs(sys=tmp_path))
    _, sample = collector.read()
    collector.close()

    assert sample == RdmaSample("mlx5_0/1", None, None, None, None, None)


def test_netdev_of_the_second_port_of_a_device(tmp_path: Path) -> None:
    """Without GIDs the netdev is the one of the same device and port number, counted from zero."""
    add_port(tmp_path, "mlx4_0", 2, rate="2.5 Gb/sec (1X SDR)")
    for at, name in enumerate(("eth4", "eth5")):
        folder = tmp_path / "class/infiniband/mlx4_0/device/net" / name
        folder.mkdir(parents=True)
        (folder / "dev_port").write_text(f"{at}\n")
    collector = RdmaPorts(KernelFs(sys=tmp_path))
    info = collector.read()[0]
    collector.close()

    assert info == RdmaInfo("mlx4_0/2", 2_500_000_000, None, None, "eth5")


def test_ports_come_change_and_go(tmp_path: Path) -> None:
    """At each review a port that lost its link, a new one and one that is gone are told."""
    now = 0.0
    one = add_port(tmp_path, "mlx5_0", 1, state="4: ACTIVE")
    collector = RdmaPorts(KernelFs(sys=tmp_path), clock=lambda: now)
    collector.read()
    (one / "state").write_text("1: DOWN\n")
    add_port(tmp_path, "mlx5_1", 1, state="4: ACTIVE")
    early = list(collector.read())
    now = REVIEW_SECONDS
    late = list(collector.read())
    one.rename(tmp_path / "unplugged")
    now *= 2
    last = list(collector.read())
    collector.close()

    assert early == []
    assert [(type(sample), sample.port) for sample in late if isinstance(sample, (RdmaInfo, RdmaSample))] == [
        (RdmaInfo, "mlx5_0/1"),
        (RdmaInfo, "mlx5_1/1"),
        (RdmaSample, "mlx5_1/1"),
    ]
    assert last == [EntityGone("port", "mlx5_0/1")]


MLX5 = {  # as ConnectX names them; of a test node of prometheus/procfs (Apache-2.0) are the names
    "np_cnp_sent": "3", "rp_cnp_handled": "40", "np_ecn_marked_roce_packets": "5", "out_of_sequence": "6",
    "packet_seq_err": "7", "local_ack_timeout_err": "8", "rnr_nak_retry_err": "9", "lifespan": "10",
}  # fmt: skip
BNXT = {
    "tx_cnp_pkts": "3", "rx_cnp_pkts": "40", "rx_ecn_marked_pkts": "5", "seq_err_naks_rcvd": "7",
    "to_retransmits": "8", "rnr_naks_rcvd": "9",
}  # fmt: skip
IRDMA = {"cnpSent": "3", "cnpHandled": "40", "RxECNMrkd": "5"}


@pytest.mark.parametrize(
    ("named", "told"),
    [(MLX5, (3, 40, 5, 6, 7, 8, 9)), (BNXT, (3, 40, 5, None, 7, 8, 9)), (IRDMA, (3, 40, 5, None, None, None, None))],
)
def test_congestion_is_found_under_the_names_of_each_driver(
    tmp_path: Path, named: dict[str, str], told: tuple[int | None, ...]
) -> None:
    """What a driver does not count is not known."""
    port = add_port(tmp_path, "mlx5_0", 1)
    (port / "counters/port_xmit_discards").write_text("11\n")
    (port / "hw_counters").mkdir()
    for name, value in named.items():
        (port / "hw_counters" / name).write_text(value + "\n")
    collector = RdmaPorts(KernelFs(sys=tmp_path))
    (sample,) = [one for one in collector.read() if isinstance(one, RdmaSample)]
    (port / "hw_counters" / next(iter(named))).write_text("4\n")
    (later,) = collector.read()
    collector.close()

    found = (
        sample.cnp_sent, sample.cnp_handled, sample.ecn_marked, sample.out_of_sequence, sample.sequence_errors,
        sample.ack_timeouts, sample.receiver_not_ready,
    )  # fmt: skip
    assert found == told
    assert (sample.tx_discards, sample.rx_errors, sample.tx_bytes) == (11, None, None)
    assert isinstance(later, RdmaSample)
    assert later.cnp_sent == 4


def test_a_port_without_data_counters_has_those_of_its_driver(tmp_path: Path) -> None:
    """In bytes: efa has no counters of InfiniBand."""
    port = add_port(tmp_path, "rdmap0s6", 1)
    for name in COUNTERS:
        (port / "counters" / name).unlink()
    (port / "hw_counters").mkdir()
    for name, value in (("rx_bytes", "70"), ("tx_bytes", "80"), ("retrans_timeout_events", "2"), ("tx_pkts", "9")):
        (port / "hw_counters" / name).write_text(value + "\n")
    collector = RdmaPorts(KernelFs(sys=tmp_path))
    (sample,) = [one for one in collector.read() if isinstance(one, RdmaSample)]
    collector.close()

    assert (sample.rx_bytes, sample.tx_bytes, sample.tx_packets, sample.ack_timeouts) == (70, 80, 9, 2)
