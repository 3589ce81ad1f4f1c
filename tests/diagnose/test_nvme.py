"""Saves to a disk behind NVMe over fabrics, played on the files of the kernel: there is no such hardware here.

Each plays a training that saves, tick by tick: states of paths and counters of block devices are written to a made-up
tree, read by the collector, and go through detection and diagnosis with what TCP or an RDMA port counts meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.detect.stage import MIB, Stage
from tests.diagnose.hand import GIB, device, link, local, measured, restore, save, thread
from tests.nvmetree import NvmeTree, nvme_mount

from ckptprof.diagnose.diagnosis import diagnose
from ckptprof.measures import ConnectionMeasure, LinkMeasure, PathMeasure
from ckptprof.model import Checkpoint, Level
from ckptprof.verdicts import Limit, Verdict
from ckptprof_collectors.devices.block_devices import BlockDevices
from ckptprof_collectors.samples import NicInfo, NicSample, RdmaInfo, RdmaSample, Sample, TcpSample, ThreadSample

START_S = 8.0
TO_TARGETS = ("10.0.0.2", "10.0.0.3")


@dataclass
class Played:
    """A training that saves to it from START_S on, in 10.5 s."""

    root: Path
    size: int = 4 * GIB
    seconds: float = 10.5
    transport: str = "tcp"
    each_s: float = 0.04  # of a request
    shares: tuple[float, ...] = (0.5, 0.5)  # of the bytes over each path
    on_its_way: float = 0.2  # of the time, data of its connections that is not acknowledged
    window: float = 0.0  # of that, held up by the window of the target
    rtt_us: int = 200
    lost_bytes: int = 0  # sent again
    notifications: int = 0  # of congestion, a second
    busy: float = 1.0  # of the time: a request is on its way
    more: Callable[[NvmeTree, float], None] | None = None

    def samples(self, until_s: float) -> Iterator[tuple[float, Sample]]:
        """Yield what is read in each tenth of a second."""
        tree, now = NvmeTree(self.root, transport=self.transport), 0.0
        collector = BlockDevices(tree.fs, clock=lambda: now)
        yield 0.05, nvme_mount()
        yield 0.05, NicInfo("eth1", 25_000_000_000, True, "mlx5_core", True)  # noqa: FBT003 - a struct of the collectors
        if self.transport == "rdma":
            yield 0.05, RdmaInfo("mlx5_0/1", 200_000_000_000, "ACTIVE", "Ethernet", "eth1")
        for tick in range(int(until_s * 10)):
            now = tick / 10
            if self.more is not None:
                self.more(tree, now)
            spent = min(max(0.0, now - START_S), self.seconds)
            sizes = [int(self.size * share * spent / self.seconds) for share in self.shares]
            tree.wrote(*sizes, each_s=self.each_s, busy_s=self.busy * spent)
            yield from ((now, sample) for sample in collector.read())
            yield from ((now, sample) for sample in self._network(sizes, now, spent))
        collector.close()

    def _network(self, sizes: list[int], now: float, spent: float) -> Iterator[Sample]:
        sent = int(1.01 * sum(sizes))
        if self.transport == "rdma":
            told = int(self.notifications * spent + now)
            yield RdmaSample("mlx5_0/1", 1, sent, 1, sent // 4096, 0, 0, 0, 0, told, 0, 0, 0, 0, 0)
        yield NicSample("eth1", int(now * 1000), 1, 0, 0, sent if self.transport == "tcp" else 1, 1, 0, 0)
        if self.transport != "tcp" or not spent:
            return
        for target, size in zip(TO_TARGETS, sizes, strict=True):
            busy = int(self.on_its_way * spent * 1e6 * size / max(1, sum(sizes)))
            yield TcpSample(
                remote=target, port=4420, is_accepted=False, local="10.0.0.9", interfaces=("eth1",), pid=None,
                start_ticks=None, sockets=8, bytes_acked=int(1.01 * size), bytes_received=int(spent * 1e5),
                bytes_retrans=self.lost_bytes, busy_us=busy, rwnd_limited_us=int(self.window * busy),
                sndbuf_limited_us=0, rtt_us=self.rtt_us, min_rtt_us=150, delivery_rate=None, is_new=spent <= 0.1,
            )  # fmt: skip

    def checkpoint(self) -> Checkpoint:
        """Return it as it is detected."""
        stage, until_s = Stage(hz=10.0), START_S + self.seconds + 9
        trainer = stage.process()
        stage.write(trainer, "/ckpt/step_1.pt", START_S, self.seconds, self.size)
        key = (trainer.pid, trainer.info.start_ticks, trainer.pid, "python3")
        looks: list[tuple[float, Sample]] = [
            (at / 10, ThreadSample(*key, at * 1000, 0, at // 50, at // 50, 0, None, "D", 1, ""))
            for at in range(int(START_S * 10), int((START_S + 0.5 + self.seconds) * 10))
        ]
        stage.extra = sorted([*looks, *self.samples(until_s)], key=lambda pair: pair[0])
        (found,) = stage.play(until_s)
        return found

    def verdict(self) -> Verdict:
        """Return its verdict."""
        return told(self.checkpoint())


def told(checkpoint: Checkpoint) -> Verdict:
    """Return the verdict of a checkpoint."""
    verdict = diagnose(checkpoint).verdict
    assert verdict is not None
    return verdict


def test_a_target_that_answers_late_is_the_server(tmp_path: Path) -> None:
    """Data is seldom on its way, and a request takes two hundred rounds; where it answers at once nothing is slow."""
    verdict = Played(tmp_path / "slow").verdict()

    assert (verdict.limit, verdict.cause) == (Limit.SERVER, "nvme-target")
    assert "its 2 NVMe targets over tcp (a request took 40 ms, a round trip 0.20 ms)" in verdict.evidence[0]
    assert any(one.startswith("no data was in flight") for one in verdict.excluded)
    assert Limit.DEVICE not in verdict.candidates
    assert Played(tmp_path / "fast", seconds=0.4, each_s=0.001).verdict().limit is Limit.NONE
    assert Played(tmp_path / "best", seconds=5.0, each_s=0.004).verdict().limit is Limit.NONE


def test_a_target_that_does_not_take_the_bytes_is_the_server(tmp_path: Path) -> None:
    """Its window lets no more out."""
    verdict = Played(tmp_path, on_its_way=1.0, window=0.6).verdict()

    assert (verdict.limit, verdict.cause) == (Limit.SERVER, "nvme-target")
    assert "the receive window of 10.0.0.2:4420 was full" in verdict.evidence[0]


def test_a_slow_way_to_the_target_is_the_network(tmp_path: Path) -> None:
    """Data is always on its way, in queues."""
    verdict = Played(tmp_path, on_its_way=1.0, window=0.02, rtt_us=30_000, lost_bytes=3 * MIB).verdict()

    assert (verdict.limit, verdict.cause) == (Limit.NETWORK, "slow-path")
    assert "a round trip of 30.0 ms, 0.15 ms without queues" in verdict.evidence[0]


def test_a_path_that_is_lost_is_a_finding_of_its_own(tmp_path: Path) -> None:
    """The other one carries all of it: told with its address, its state, and for how long."""

    def lose(tree: NvmeTree, at_s: float) -> None:
        if at_s == START_S + 2:
            tree.state(1, "connecting")

    found = Played(tmp_path, shares=(1.0, 0.0), more=lose).checkpoint()
    verdict = told(found)

    assert (verdict.limit, verdict.cause) == (Limit.SERVER, "nvme-path-lost")
    assert any("nvme1c1n1 to 10.0.0.3:4420 was connecting for 8.5" in one for one in verdict.evidence)
    assert "nvme list-subsys" in (verdict.remedy or "")
    assert found.measures is not None
    assert found.measures.mount is not None
    assert [(one.device, one.state) for one in found.measures.mount.paths] == [
        ("nvme1c1n1", "connecting"),
        ("nvme1c0n1", "live"),
    ]


def test_without_any_path_nothing_moves(tmp_path: Path) -> None:
    """Both reconnect for most of the save."""

    def lose(tree: NvmeTree, at_s: float) -> None:
        if at_s in (START_S + 1, START_S + 8):
            for number in (0, 1):
                tree.state(number, "live" if at_s > START_S + 1 else "resetting")

    verdict = Played(tmp_path, more=lose).verdict()

    assert (verdict.limit, verdict.cause) == (Limit.NETWORK, "nvme-path-lost")
    assert "no path to the disk was usable" in verdict.evidence[0]


def test_paths_that_are_lost_one_after_the_other_leave_a_way(tmp_path: Path) -> None:
    """Each is lost for most of the waiting, and at no time both."""

    def more(tree: NvmeTree, now: float) -> None:
        if abs(now - (START_S + 0.2)) < 0.01:
            tree.state(0, "connecting")
        if abs(now - (START_S + 5.3)) < 0.01:
            tree.state(0, "live")
            tree.state(1, "connecting")

    found = Played(tmp_path, more=more).checkpoint()
    assert found.measures is not None
    assert found.measures.mount is not None
    assert [round(one.lost_seconds or 0) for one in found.measures.mount.paths] == [5, 5]
    assert found.measures.mount.cut_off_seconds == 0
    assert not any("no path to the disk" in one for one in told(found).evidence)


def test_a_controller_that_is_removed_in_the_midst_is_told(tmp_path: Path) -> None:
    """After ctrl_loss_tmo its device is gone, and its past is not."""

    def lose(tree: NvmeTree, at_s: float) -> None:
        if at_s == START_S + 2:
            tree.state(1, "connecting")
        if at_s == START_S + 5:
            tree.remove(1)

    verdict = Played(tmp_path, shares=(1.0, 0.0), more=lose).verdict()

    assert verdict.cause == "nvme-path-lost"
    assert any("10.0.0.3:4420 was " in one for one in verdict.evidence)


def test_a_path_that_is_not_optimized_is_a_finding(tmp_path: Path) -> None:
    """If it is used: another one may stand by."""

    def move(tree: NvmeTree, at_s: float) -> None:
        if at_s == START_S - 2:
            tree.access(1, "non-optimized")

    used = Played(tmp_path / "used", shares=(0.0, 1.0), more=move).verdict()
    spare = Played(tmp_path / "spare", shares=(1.0, 0.0), more=move).verdict()

    assert (used.limit, used.cause) == (Limit.SERVER, "nvme-not-optimized")
    assert "I/O used nvme1c1n1 to 10.0.0.3:4420 (non-optimized for its target)" in used.evidence
    assert spare.cause == "nvme-target"


def test_over_rdma_the_port_tells_of_the_way(tmp_path: Path) -> None:
    """There are no connections: congestion of the port, else its target as far as is known."""
    congested = Played(tmp_path / "congested", transport="rdma", notifications=2000).verdict()
    calm = Played(tmp_path / "calm", transport="rdma").verdict()

    assert (congested.limit, congested.cause) == (Limit.NETWORK, "congested-fabric")
    assert "mlx5_0/1 had" in congested.evidence[0]
    assert (calm.limit, calm.cause) == (Limit.SERVER, "nvme-target")
    assert calm.candidates == (Limit.NETWORK,)


def test_over_fibre_channel_nothing_tells_of_the_way(tmp_path: Path) -> None:
    """No link of this host is it, however busy."""
    verdict = Played(tmp_path, transport="fc").verdict()

    assert (verdict.limit, verdict.cause) == (Limit.SERVER, "nvme-target")
    assert verdict.candidates == (Limit.NETWORK,)
    assert "eth1" not in "".join((*verdict.evidence, *verdict.excluded))


def path(**more: Any) -> PathMeasure:
    """Return a path that was live all the time."""
    told_: dict[str, Any] = {"device": "nvme1c0n1", "transport": "tcp", "target": "10.0.0.2", "port": 4420}
    return PathMeasure(**{**told_, "state": "live", "lost_seconds": 0.0, "ana_state": "optimized", **more})


def to_target(**more: Any) -> ConnectionMeasure:
    """Return its connection, over which 1 GiB went."""
    told_: dict[str, Any] = {
        "remote": "10.0.0.2", "port": 4420, "links": ("eth0",), "relation": "server", "sockets": 8, "sent_bytes": GIB,
        "received_bytes": GIB, "seconds": 20.0, "busy_seconds": 11.0, "rwnd_share": 0.15, "rtt_seconds": 0.001,
        "min_rtt_seconds": 0.001,
    }  # fmt: skip
    return ConnectionMeasure(**{**told_, **more})


def said(*paths: PathMeasure, reads: bool = False, cpu: bool = True, **more: Any) -> Verdict:
    """Return the verdict of a checkpoint of 20 s in which the thread waited for 19 of them, each request 40 ms."""
    took = {"mean_queue": more.pop("in_flight", None), "write_wait_seconds": more.pop("wait", 0.04)}
    took |= {"busy_seconds": more.pop("busy")} if "busy" in more else {}
    disk = device(20, device="nvme1c0n1", read_wait_seconds=0.04, read_bytes=GIB, reads=2048, **took)
    mount = msgspec.structs.replace(local(), paths=paths)
    told_ = {"mount": mount, "devices": (disk,), "links": (link(received_bytes=GIB),), **more}
    at = thread(Level.TRACE, 20, data=19, copy=1)
    at = at if cpu else msgspec.structs.replace(at, on_cpu_ns=None, user_ns=None, system_ns=None)
    return told((restore if reads else save)(Level.TRACE, 20, measured(at, **told_)))


def test_what_a_round_tells_of_the_target() -> None:
    """Five of them and more is the target itself; less may be the way, as of a restore, whose sender is not seen.

    Without paths it is a disk of this host.
    """
    sure, near = said(path(), connections=(to_target(),)), said(path(), wait=0.004, connections=(to_target(),))

    assert (sure.limit, sure.candidates) == (Limit.SERVER, ())
    assert (near.limit, near.candidates) == (Limit.SERVER, (Limit.NETWORK,))
    assert sure.confidence > near.confidence
    assert said().limit is Limit.DEVICE
    assert said(path(), reads=True, connections=(to_target(),)).candidates == (Limit.NETWORK,)
    assert "a request took 40 ms, a round trip 1.0 ms" in sure.evidence[0]


def test_a_target_that_was_hardly_asked_is_not_told() -> None:
    """What held the thread up is on this host."""
    verdict = said(path(), in_flight=0.1)

    assert verdict.limit is Limit.UNCLEAR
    (idle,) = (one for one in verdict.accounts if "while its disks had no request" in one.text)
    assert (idle.limit, round(idle.seconds)) == (None, 17)


@pytest.mark.parametrize("paths", [(), (path(),)], ids=["a disk of this host", "a target"])
@pytest.mark.parametrize(
    ("in_flight", "busy", "waited"),
    [(0.1, 19, 2), (0.9, 19, 18), (0.9, 1, 2), (9, 6, 12), (9, None, 20), (None, 19, 20)],
)
def test_who_may_have_been_on_cpu_waited_no_longer_than_requests_took(
    paths: tuple[PathMeasure, ...], in_flight: float | None, busy: float | None, waited: float
) -> None:
    """A call that copies looks asleep where no time on CPU was sampled: neither a disk nor a target is accused.

    Of the time in which a disk is busy, kernels before 6.10 leave out up to half.
    """
    verdict = said(*paths, in_flight=in_flight, busy=busy, cpu=False)
    rest = sum(one.seconds for one in verdict.accounts if "while its disks had no request" in one.text)

    assert rest == pytest.approx(20 - waited)
    assert (verdict.limit is Limit.UNCLEAR) is (waited == 2)
    if waited != 2:
        assert verdict.limit is (Limit.SERVER if paths else Limit.DEVICE)


@pytest.mark.parametrize(
    ("lost", "cause"), [(0.0, "nvme-target"), (1.9, "nvme-target"), (2.1, "nvme-path-lost"), (None, "nvme-target")]
)
def test_how_long_a_path_has_to_be_lost(lost: float | None, cause: str) -> None:
    """A tenth of the save; one of which nothing is known is not lost."""
    other = path(device="nvme1c1n1", target="fd00::3", state="connecting", lost_seconds=lost)
    verdict = said(path(), other)

    assert verdict.cause == cause
    assert any("[fd00::3]:4420" in one for one in verdict.evidence) == (cause == "nvme-path-lost")


def test_the_link_is_that_of_the_paths() -> None:
    """Another one that moved more is not it; of RDMA the port of the interface that is named."""
    busy = link(name="eth0", sent_bytes=50 * GIB, peak_bytes_per_second=3.1e9)
    port = LinkMeasure(name="mlx5_1/1", kind="rdma", countable=True, received_bytes=0, sent_bytes=GIB, interface="eth1",
                       speed_bytes_per_second=5e10, congestion_notifications=90_000)  # fmt: skip
    others = LinkMeasure(name="mlx5_0/1", kind="rdma", countable=True, received_bytes=0, sent_bytes=9 * GIB)

    assert said(path(), links=(busy,)).cause == "full-link"
    assert said(path(link="eth1"), links=(busy, link(name="eth1"))).cause == "nvme-target"
    assert said(path(transport="rdma", link="eth1"), links=(busy, others, port)).cause == "congested-fabric"
    assert said(path(transport="rdma"), links=(busy, others, port)).cause == "nvme-target"
    assert said(path(transport="fc", port=None), links=(busy,)).cause == "nvme-target"
