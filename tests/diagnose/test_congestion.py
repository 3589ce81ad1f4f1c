"""A fabric that is congested is told by what its ports say, however far from full they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.detect.stage import MIB, Stage
from tests.diagnose.hand import GIB, link, measured, restore, save, thread

from ckptprof.diagnose.diagnosis import diagnose
from ckptprof.measures import LinkMeasure, MountMeasure
from ckptprof.model import Checkpoint, Level
from ckptprof.verdicts import Limit, Verdict
from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.networks.rdma import RdmaPorts
from ckptprof_collectors.samples import MountInfo, NicInfo, NicSample, Sample, ThreadSample, WireSample

FAR = MountMeasure(
    mount_point="/ckpt", fs_type="lustre", source="10.0.0.1@o2ib:/scratch", remote=True, server="10.0.0.1"
)


def port(**more: Any) -> LinkMeasure:
    """Return a port of 400 Gbit/s that sent 1 GiB in 20 s, at an uneven rate."""
    told = {"name": "mlx5_0/1", "kind": "rdma", "speed_bytes_per_second": 5e10, "shown_bytes_per_second": 2e10}
    return link(**{**told, "peak_bytes_per_second": 2e8, "steadiness": 0.3, **more})


def told(checkpoint: Checkpoint) -> Verdict:
    """Return the verdict."""
    verdict = diagnose(checkpoint).verdict
    assert verdict is not None
    return verdict


def said(*, reads: bool = False, **more: Any) -> Verdict:
    """Return the verdict of a save over such a port, in which the thread waited for 19 of 20 s."""
    at = thread(Level.TRACE, 20, data=19, copy=1)
    one = port(received_bytes=GIB, sent_bytes=0, **more) if reads else port(**more)
    make = restore if reads else save
    return told(make(Level.TRACE, 20, measured(at, mount=FAR, links=(one,))))


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ({"congestion_notifications": 90_000}, "90,000 congestion notifications"),
        ({"pauses_received": 5_000}, "5,000 received pause frames"),
        ({"out_of_sequence": 900}, "900 sequence errors"),
        ({"ack_timeouts": 300}, "300 acknowledgement timeouts"),
        ({"wait_share": 0.5}, "no credit to send for 50 % of the time"),
    ],
)
def test_what_a_port_says_of_congestion_is_the_network(seen: dict[str, Any], words: str) -> None:
    """Though it is far from its speed; a tenth of it is how a healthy fabric lives."""
    verdict = said(**seen)

    assert (verdict.limit, verdict.cause) == (Limit.NETWORK, "congested-fabric")
    assert f"mlx5_0/1 had {words}" in verdict.evidence[0]
    assert "its own link reached only 0.4 % of its speed" in verdict.excluded
    assert said(**{name: value // 50 if isinstance(value, int) else 0.1 for name, value in seen.items()}).limit is (
        Limit.SERVER
    )


def test_a_port_that_moved_as_much_before_is_shared() -> None:
    """What it says may be of the collectives: that is told, and lowers the confidence."""
    shared = said(congestion_notifications=90_000, before_bytes_per_second=4e9)

    assert (
        "the port is shared: it already transferred 4.00 GB/s before this, for example for collectives"
        in shared.evidence[0]
    )
    assert shared.confidence < said(congestion_notifications=90_000).confidence
    assert "shared" not in said(congestion_notifications=90_000, before_bytes_per_second=1e6).evidence[0]


def test_of_a_restore_it_is_what_came_in() -> None:
    """Pauses that the port was sent, and credit that it had not, are of what it sends."""
    assert said(reads=True, congestion_notifications=90_000, marked_packets=70).limit is Limit.NETWORK
    assert "70 packets marked in transit" in said(reads=True, out_of_sequence=900, marked_packets=70).evidence[0]
    assert said(reads=True, pauses_received=5_000, wait_share=0.9).limit is Limit.SERVER


def test_a_port_that_is_full_is_full() -> None:
    """Congestion there is of its own making."""
    full = said(congestion_notifications=90_000, sent_bytes=19 * 45 * 10**9, peak_bytes_per_second=4.8e10)
    assert full.cause != "congested-fabric"
    assert "congestion" not in full.evidence[0]


def test_what_goes_past_the_kernel_has_a_link_of_its_own() -> None:
    """The busiest by the kernel's numbers is not the one that the storage is behind."""
    at = thread(Level.TRACE, 20, data=19, copy=1)
    kernel = link(name="eth0", sent_bytes=GIB // 4)
    past = link(name="eth1", sent_bytes=MIB, wire_sent_bytes=2 * GIB, pauses_received=9_000)
    verdict = told(save(Level.TRACE, 20, measured(at, mount=FAR, links=(kernel, past))))
    assert verdict.limit is Limit.NETWORK
    assert "eth1 transferred 113 MB/s" in verdict.evidence[0]


def test_what_goes_over_a_port_is_told_of_the_port() -> None:
    """Its interface counts the same bytes at its wire, with their headers, and no congestion."""
    at = thread(Level.TRACE, 20, data=19, copy=1)
    roce = port(sent_bytes=GIB, interface="eth0", congestion_notifications=90_000)
    same = link(name="eth0", sent_bytes=MIB, wire_sent_bytes=GIB + GIB // 10)
    verdict = told(save(Level.TRACE, 20, measured(at, mount=FAR, links=(same, roce))))
    by_kernel = told(
        save(Level.TRACE, 20, measured(at, mount=FAR, links=(link(name="eth0", sent_bytes=4 * GIB), roce)))
    )

    assert (verdict.limit, verdict.cause) == (Limit.NETWORK, "congested-fabric")
    assert "mlx5_0/1 had 90,000 congestion notifications" in verdict.evidence[0]
    assert by_kernel.limit is Limit.SERVER


class MovingPort:
    """A port under /sys/class/infiniband whose counters play a training that saves, second by second."""

    FILES = (
        "counters/port_xmit_data",
        "counters/port_rcv_data",
        "counters/port_xmit_wait",
        "hw_counters/rp_cnp_handled",
    )

    def __init__(self, root: Path) -> None:
        """Make it: 200 Gbit/s of RoCE."""
        self.port = root / "class/infiniband/mlx5_0/ports/1"
        for folder in ("counters", "hw_counters"):
            (self.port / folder).mkdir(parents=True)
        (self.port / "gid_attrs/ndevs").mkdir(parents=True)
        for name, value in (
            ("rate", "200 Gb/sec (4X HDR)"), ("state", "4: ACTIVE"), ("link_layer", "Ethernet"),
            ("gid_attrs/ndevs/0", "eth1"),
        ):  # fmt: skip
            (self.port / name).write_text(f"{value}\n")
        self.write(*[0] * len(self.FILES))
        self.collector = RdmaPorts(KernelFs(sys=root))

    def write(self, *values: int) -> None:
        """Set the counters."""
        for name, value in zip(self.FILES, values, strict=True):
            (self.port / name).write_text(f"{value}\n")

    def play(
        self, saved_s: float, size: int, *, congested: bool = False, paused: int = 0, before: int = 0
    ) -> Iterator[tuple[float, Sample]]:
        """Yield what is read of a save of some seconds that begins at 20 s; `before`: bytes a second all the time.

        `paused`: how often its other end holds it up in a tenth of a second, as the wire of its interface tells.
        """
        yield 0.05, NicInfo("eth1", 200_000_000_000, True, "mlx5_core", True)  # noqa: FBT003 - a struct of the collectors
        for tick in range(400):
            at_s = tick / 10
            part = min(max(0.0, at_s - 20) / saved_s, 1.0)
            sent = int(size * part) + int(before * at_s)
            told = int(20_000 * part * saved_s) if congested else int(at_s)
            self.write(sent // 4, sent // 400, 0, told)
            yield from ((at_s, sample) for sample in self.collector.read())
            yield at_s, NicSample("eth1", tick, 1, 0, 0, tick, 1, 0, 0)
            yield at_s, WireSample("eth1", sent // 90, int(1.1 * sent), paused * tick, 0, 0, 0)
        self.collector.close()


def played(tmp_path: Path, **how: Any) -> Verdict:
    """Return the verdict of a save of 400 MiB in 10 s to a Lustre over such a port, as it is detected."""
    stage = Stage()
    trainer = stage.process()
    stage.write(trainer, "/ckpt/step_1.pt", 20.0, 10.0, 400 * MIB)
    mount = MountInfo(1, 0, 40, "/", "/ckpt", "lustre", "10.0.0.1@o2ib:/scratch", None, "10.0.0.1", ("10.0.0.1",))
    key = (trainer.pid, trainer.info.start_ticks, trainer.pid, "python3")
    looks = [
        (at / 10, ThreadSample(*key, at * 1000, 0, at // 50, at // 50, 0, None, "D", 1, "")) for at in range(200, 305)
    ]
    stage.extra = sorted(
        [(0.05, mount), *looks, *MovingPort(tmp_path).play(10.0, 400 * MIB, **how)], key=lambda pair: pair[0]
    )
    (found,) = stage.play(39)
    return told(found)


@pytest.mark.slow
def test_a_save_is_played_on_moving_counters(tmp_path: Path) -> None:
    """From files to a verdict: a port that is told to slow down, one that is not, one that ranks share, one paused.

    Its interface counts the same bytes at its wire.
    """
    congested = played(tmp_path / "congested", congested=True)
    calm = played(tmp_path / "calm")
    shared = played(tmp_path / "shared", congested=True, before=100_000_000)
    paused = played(tmp_path / "paused", paused=50)

    assert (congested.limit, congested.cause) == (Limit.NETWORK, "congested-fabric")
    assert "mlx5_0/1 had" in congested.evidence[0]
    assert calm.cause != "congested-fabric"
    assert (paused.limit, paused.cause) == (Limit.NETWORK, "congested-fabric")
    assert "received pause frames" in paused.evidence[0]
    assert "the port is shared" in shared.evidence[0]
    assert "the port is shared" not in congested.evidence[0]
