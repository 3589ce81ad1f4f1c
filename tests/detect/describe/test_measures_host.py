"""What devices, links, mounts and memory did while a checkpoint went on, each as the counters say."""

from __future__ import annotations

from typing import Any

import pytest
from tests.detect.observed import frame

from ckptprof.detect.describe.durability import Durability, measure_writeback
from ckptprof.detect.world.host.device_counters import DeviceCounters, DeviceUsers
from ckptprof.detect.world.host.devices import Devices, is_network_mount
from ckptprof.detect.world.host.fuse_mounts import FuseMounts
from ckptprof.detect.world.host.host_memory import HostMemoryHistory
from ckptprof.detect.world.host.network_counters import NetworkCounters
from ckptprof.measures import DeviceMeasure, LinkMeasure
from ckptprof_collectors.samples import (
    DeviceInfo,
    DiskSample,
    FuseSample,
    MemorySample,
    MountInfo,
    NicInfo,
    NicSample,
    QdiscSample,
    RdmaInfo,
    RdmaSample,
    ThrottleInfo,
)

SECOND = 1_000_000_000
TICK = SECOND // 5
MIB = 1 << 20


def disk_at(seconds: float, *, rate_mib: float = 100.0) -> DiskSample:
    """Return the counters of a disk that writes evenly, half a MiB a request, and is busy half of the time."""
    moved = int(seconds * rate_mib * MIB)
    requests = moved // (MIB // 2)
    return DiskSample(
        "sda", 4, 0, 8, 2, requests, 0, moved // 512, requests * 20, 0, int(seconds * 500), int(seconds * 4000),
        flush_ios=int(seconds * 3), flush_ms=0,
    )  # fmt: skip


def disks(*, throttle: ThrottleInfo | None = None, seconds: float = 20.0) -> DeviceCounters:
    """Return what was seen of it."""
    made = DeviceCounters()
    made.ingest(frame(0, 0, DeviceInfo("sda", 8, 0, "disk", (), True, "nvme-pcie", False, None, None, None, None)))  # noqa: FBT003 - a struct of the collectors
    if throttle is not None:
        made.ingest(frame(0, 0, throttle))
    for tick in range(int(seconds * 5) + 1):
        made.ingest(frame(tick * TICK, max(0, tick - 1) * TICK, disk_at(tick / 5)))
    return made


def measured(book: DeviceCounters, start_s: float = 5.05, end_s: float = 9.05, *, cgroup: str = "/job",
             writes: bool = True) -> DeviceMeasure:  # fmt: skip
    """Return what is told of sda."""
    span = int(start_s * SECOND), int(end_s * SECOND)
    users = DeviceUsers(frozenset((100,)), frozenset((cgroup,)))
    (found,) = book.measures(["sda", "unknown"], span, users, writes=writes)
    return found


def test_a_device_is_told_by_what_it_did_and_what_it_was_seen_to_do() -> None:
    """Four seconds at 100 MiB/s, and what was counted with them: up to the looks around."""
    device = measured(disks())

    assert (device.device, device.transport, device.rotational, device.countable) == ("sda", "nvme-pcie", False, True)
    assert (device.seconds, device.read_bytes, device.reads, device.discards) == (4.2, 0, 0, None)
    assert device.written_bytes == pytest.approx(420 * MIB, rel=0.01)
    assert device.writes == pytest.approx(840, rel=0.01)
    assert device.flushes == pytest.approx(12, abs=1)
    assert device.busy_seconds == pytest.approx(2.1, rel=0.01)
    assert device.mean_queue == pytest.approx(4.0, rel=0.01)
    assert device.write_wait_seconds == pytest.approx(0.02, rel=0.01)
    assert device.read_wait_seconds is None
    assert device.peak_bytes_per_second == pytest.approx(100 * MIB, rel=0.02)
    assert device.shown_bytes_per_second == pytest.approx(100 * MIB, rel=0.02)
    assert device.shown_operations_per_second == pytest.approx(200, rel=0.02)
    assert device.shown_request_bytes == pytest.approx(MIB / 2, rel=0.02)
    assert device.steadiness == 1.0
    assert (device.throttled_bytes_per_second, device.throttled_operations_per_second) == (None, None)


def test_what_a_device_wrote_until_a_save_was_durable_is_told_where_that_was_after_its_end() -> None:
    """100 MiB/s for two seconds more, of which it was busy half; nothing where it was durable before, or is not yet."""
    devices = Devices()
    devices.ingest(frame(0, 0, MountInfo(1, 8, 0, "/", "/", "ext4", "/dev/sda", "sda", None)))
    devices.disks = disks()
    span = (5 * SECOND, 6 * SECOND)

    def told(at_s: float | None, not_before_s: float | None = None) -> dict[str, int | None]:
        at_ns, not_before_ns = (None if one is None else int(one * SECOND) for one in (at_s, not_before_s))
        return measure_writeback(
            Durability(at_ns, last_unwritten_ns=not_before_ns), "/ckpt/a.pt", span, devices, lambda at: at + 1
        )

    assert told(8.0, 7.0) == {
        "unwritten_ns": 7 * SECOND + 1, "written_back_bytes": pytest.approx(300 * MIB, rel=0.01),
        "written_back_ns": pytest.approx(1.5 * SECOND, rel=0.01),
    }  # fmt: skip
    assert told(5.5) == {"unwritten_ns": None}
    assert told(None, 7.0) == {"unwritten_ns": 7 * SECOND + 1}


def test_what_a_device_is_able_to_is_of_its_best_second_ever_in_the_direction() -> None:
    """It was faster before; it was never seen to read."""
    book = disks(seconds=4.0)
    for tick in range(1, 40):
        last_ns = 4 * SECOND + (tick - 1) * TICK
        book.ingest(frame(last_ns + TICK, last_ns, disk_at(4 + tick / 100)))  # a twentieth of the pace
    device = measured(book, 6.0, 10.0)

    assert device.peak_bytes_per_second == pytest.approx(5 * MIB, rel=0.05)
    assert device.shown_bytes_per_second == pytest.approx(100 * MIB, rel=0.02)
    assert measured(book, 6.0, 10.0, writes=False).shown_bytes_per_second is None


def limit(cgroup: str = "/job", **fields: Any) -> ThrottleInfo:
    """Return a limit on sda."""
    described: dict[str, Any] = {
        "device": "8:0", "cgroup": cgroup, "read_bytes_per_second": None, "write_bytes_per_second": 50 * MIB,
        "read_operations_per_second": None, "write_operations_per_second": None,
    }  # fmt: skip
    return ThrottleInfo(**{**described, **fields})


@pytest.mark.parametrize(
    ("throttle", "cgroup", "bytes_limit", "operations"),
    [
        (limit(), "/job", 50 * MIB, None),
        (limit(), "/job/step_0", 50 * MIB, None),
        (limit("/"), "/job", 50 * MIB, None),
        (limit(), "/jobs", None, None),
        (limit("/elsewhere", pid=100), "/job", 50 * MIB, None),
        (limit("/elsewhere", pid=101), "/job", None, None),
        (limit("/job/below"), "/job", None, None),
        (limit(device="9:9"), "/job", None, None),
        (limit(device="9:9", name="sda"), "/job", 50 * MIB, None),
        (limit(write_bytes_per_second=None, write_operations_per_second=100), "/job", None, 100),
        (limit(write_bytes_per_second=None, read_bytes_per_second=7), "/job", None, None),
    ],
)
def test_a_limit_holds_the_cgroup_and_what_is_below_it(
    throttle: ThrottleInfo, cgroup: str, bytes_limit: int | None, operations: int | None
) -> None:
    """On this device, in this direction, at this process."""
    device = measured(disks(throttle=throttle), cgroup=cgroup)

    assert (device.throttled_bytes_per_second, device.throttled_operations_per_second) == (bytes_limit, operations)


def test_a_limit_that_one_process_saw_change_has_changed_for_all_of_its_cgroup() -> None:
    """Another process, whose cgroup was read before, is not read again while it does not write."""
    book = disks(throttle=limit("/", pid=101, write_bytes_per_second=15 * MIB))
    book.ingest(frame(21 * SECOND, 0, limit("/", pid=100, write_bytes_per_second=60 * MIB)))

    assert measured(book).throttled_bytes_per_second == 60 * MIB


def test_a_limit_that_was_lifted_and_a_device_that_is_gone_are_forgotten() -> None:
    """What is told of the next one is its own."""
    book = disks(throttle=limit())
    book.ingest(frame(21 * SECOND, 0, limit(write_bytes_per_second=None)))
    assert measured(book).throttled_bytes_per_second is None
    book.ingest(frame(21 * SECOND, 0, limit("/elsewhere", pid=100)))
    assert measured(book).throttled_bytes_per_second == 50 * MIB
    book.record_exit(100, 30 * SECOND)  # what it did last is told after its end
    book.forget_before(30 * SECOND)
    assert measured(book).throttled_bytes_per_second == 50 * MIB
    book.forget_before(31 * SECOND)
    assert measured(book).throttled_bytes_per_second is None
    book.ingest(frame(32 * SECOND, 0, limit("/elsewhere", pid=100)))
    book.record_exit(100, 33 * SECOND)
    book.ingest(frame(34 * SECOND, 0, limit("/elsewhere", pid=100)))  # another has its number
    book.forget_before(60 * SECOND)
    assert measured(book).throttled_bytes_per_second == 50 * MIB

    book.forget("sda")
    assert book.measures(["sda"], (0, SECOND), DeviceUsers(frozenset(), frozenset()), writes=True) == ()
    assert book.written_bytes("sda", 0, SECOND) is None


def links() -> NetworkCounters:
    """Return eth0 that sends 10 MB/s from 5 s on after 50 MB/s for 2 s, a veth, lo, and an RDMA port."""
    made = NetworkCounters()
    made.ingest(frame(0, 0, NicInfo("eth0", 1_000_000_000, True, "e1000", True)))  # noqa: FBT003 - a struct of the collectors
    made.ingest(frame(0, 0, NicInfo("veth1", 10_000_000_000, True, "veth", False)))  # noqa: FBT003
    made.ingest(frame(0, 0, RdmaInfo("mlx5_0/1", 200_000_000_000, "ACTIVE", "InfiniBand", None)))
    for tick in range(76):
        at, before = tick * TICK, max(0, tick - 1) * TICK
        sent = min(tick, 10) * 10_000_000 + max(0, tick - 25) * 2_000_000
        made.ingest(frame(at, before, NicSample("eth0", tick * 10, 0, 0, 0, sent, 0, 0, 0)))
        made.ingest(frame(at, before, NicSample("lo", tick * 1000, 0, 0, 0, tick * 1000, 0, 0, 0)))
        made.ingest(frame(at, before, NicSample("veth1", sent, 0, 0, 0, tick * 10, 0, 0, 0)))
        made.ingest(frame(at, before, RdmaSample("mlx5_0/1", 5, tick * 100, 0, 0, 0)))
        made.ingest(frame(at, before, RdmaSample("mlx5_1/1", None, tick, 0, 0, 0)))
        made.ingest(frame(at, before, qdisc(tick, backlog=40_000 if tick == 40 else 0)))
    return made


def qdisc(tick: int, *, backlog: int = 0, handle: int = 1) -> QdiscSample:
    """Return a token bucket on eth0."""
    return QdiscSample("eth0", "tbf", handle, 0xFFFFFFFF, tick, tick, tick // 10, tick * 7, backlog, 0, 10_000_000)


def of(name: str) -> LinkMeasure:
    """Return what is told of a link from 5 s to 13 s, of a save."""
    return next(link for link in links().measures(5 * SECOND, 13 * SECOND, writes=True) if link.name == name)


def test_a_link_is_told_with_what_it_did_before_and_how_it_was_held_back() -> None:
    """A plateau of 10 MB/s behind a token bucket, on a link that has shown five times as much."""
    link = of("eth0")

    assert (link.kind, link.countable, link.speed_bytes_per_second) == ("nic", True, 125_000_000)
    assert (link.received_bytes, link.sent_bytes) == (400, 80_000_000)
    assert link.peak_bytes_per_second == pytest.approx(10_000_000)
    assert link.shown_bytes_per_second == pytest.approx(50_000_000)
    assert (link.steadiness, link.active_seconds) == (1.0, 8.0)
    assert (link.shaped_drops, link.shaped_overlimits, link.backlog_bytes) == (4, 280, 40_000)


def test_each_kind_of_link_is_told_in_its_own_way() -> None:
    """Of a veth the busy direction counts: which end is the host's is not known. The busiest link comes first."""
    names = [link.name for link in links().measures(5 * SECOND, 13 * SECOND, writes=True)]

    assert names[:2] == ["eth0", "veth1"]
    assert set(names[2:]) == {"lo", "mlx5_0/1"}
    assert of("veth1").peak_bytes_per_second == pytest.approx(10_000_000)
    assert (of("veth1").countable, of("veth1").shaped_overlimits) == (False, None)
    assert (of("lo").kind, of("lo").countable, of("lo").speed_bytes_per_second) == ("loopback", False, None)
    assert (of("mlx5_0/1").kind, of("mlx5_0/1").speed_bytes_per_second) == ("rdma", 25_000_000_000)


def test_links_that_come_and_go_are_bounded() -> None:
    """A node that makes a veth for every container: a checkpoint is told with 32 of them at most."""
    made = NetworkCounters()
    for number in range(1000):
        made.ingest(frame(0, 0, NicSample(f"veth{number}", 0, 0, 0, 0, 0, 0, 0, 0)))
        made.ingest(frame(SECOND, 0, NicSample(f"veth{number}", 9, 0, 0, 0, 9, 0, 0, 0)))
        made.ingest(frame(SECOND, 0, qdisc(1, handle=number)))
    assert len(made.measures(0, SECOND, writes=True)) == 32
    assert len(made._histories) == len(made._qdiscs) == 512
    made.forget("eth0")
    assert not made._qdiscs
    assert made.measures(SECOND, SECOND, writes=True) == ()
    assert NetworkCounters().received_bytes(0, SECOND) is None


@pytest.mark.parametrize(("busy", "idle"), [(1_000_000, 50_000), (100_000_000, 750_000)])
def test_a_link_is_not_active_by_names_and_keep_alives(busy: int, idle: int) -> None:
    """It sends for four seconds; then so many bytes in each fifth of a second are no part of a save."""
    made, sent = NetworkCounters(), 0
    for tick in range(41):
        made.ingest(frame(tick * TICK, max(0, tick - 1) * TICK, NicSample("eth0", 0, 0, 0, 0, sent, 0, 0, 0)))
        sent += busy // 5 if tick < 20 else idle // 5
    (link,) = made.measures(0, 8 * SECOND, writes=True)

    assert link.active_seconds == 4.0


def mount(fs_type: str, source: str, *, server: str | None = None, device: str | None = None) -> MountInfo:
    """Return a mount on /data."""
    return MountInfo(7, 0, 60, "/", "/data", fs_type, source, device, server)


@pytest.mark.parametrize(
    ("fs_type", "source", "remote"),
    [
        ("nfs4", "nas:/x", True), ("lustre", "10.0.0.1@o2ib:/fs", True), ("cifs", "//nas/x", True),
        ("ceph", "10.0.0.1:6789:/", True), ("fuse.sshfs", "me@host:/x", True), ("fuse.s3fs", "s3fs", True),
        ("fuse.rclone", "remote:bucket/x", True), ("fuse", "mountpoint-s3", True), ("fuse.juicefs", "JuiceFS:x", True),
        ("fuse.gcsfuse", "bucket", True), ("fuse.something", "host.example:/volume", True),
        ("fuse.something", "s3://bucket", True), ("fuse.something", "[fe80::1]:/x", True),
        ("fuse.passthrough", "/var/data", False), ("fuse", "something", False), ("fuseblk", "/dev/sda1", False),
        ("fuse.lxcfs", "lxcfs", False), ("ext4", "/dev/sda", False), ("tmpfs", "tmpfs", False),
        ("overlay", "overlay", False), ("fuse.mergerfs", "a:b", False),
    ],
)  # fmt: skip
def test_a_server_is_behind_what_says_so(fs_type: str, source: str, remote: bool) -> None:  # noqa: FBT001 - a case
    """Of an unknown FUSE only a source that names a host, an address or a URL."""
    assert is_network_mount(mount(fs_type, source)) is remote


@pytest.mark.parametrize(
    ("fs_type", "source", "client"),
    [
        ("fuse.sshfs", "me@host:/x", "sshfs"), ("fuse", "mountpoint-s3", "mountpoint-s3"), ("nfs4", "nas:/x", None),
        ("fuse.passthrough", "/var/data", None),
    ],
)  # fmt: skip
def test_the_client_of_a_fuse_is_its_program(fs_type: str, source: str, client: str | None) -> None:
    """Where a server is behind it; what another client is its own counters say."""
    assert FuseMounts(100).measure(mount(fs_type, source), 0, SECOND).client == client


def test_how_long_fuse_was_awaited_is_by_time_and_not_by_look() -> None:
    """Two requests for a second, none for three; of another mount nothing is known."""
    book = FuseMounts(100)
    for at_s, waiting in ((0, 0), (5, 2), (6, 0), (30, 9)):
        book.observe(at_s * SECOND, FuseSample(0, 60, waiting))
    book.observe(0, FuseSample(0, 61, None))

    seen = book.measure(mount("fuse.sshfs", "nas:/x", server="nas"), 4 * SECOND, 8 * SECOND)
    unseen = book.measure(mount("nfs", "nas:/x", server="nas"), 40 * SECOND, 41 * SECOND)
    other = FuseMounts(100).measure(mount("nfs", "nas:/x", server="nas"), 0, SECOND)

    assert (seen.waiting_share, seen.waiting_mean, seen.server, seen.remote) == (0.25, 0.5, "nas", True)
    assert unseen.waiting_share == 1.0
    assert (other.waiting_share, other.waiting_mean, other.mount_point) == (None, None, "/data")


def memory(**fields: Any) -> MemorySample:
    """Return a sample of a host of 8 GiB."""
    described: dict[str, Any] = {
        "total_bytes": 8 << 30, "available_bytes": 4 << 30, "cached_bytes": 0, "dirty_bytes": 10 * MIB,
        "writeback_bytes": 0, "dirtied_bytes": 0, "written_bytes": 0, "dirty_threshold_bytes": 800 * MIB,
        "dirty_background_threshold_bytes": 400 * MIB, "major_faults": 0, "psi_io_some_us": 0, "psi_io_full_us": 0,
        "psi_memory_some_us": None, "psi_memory_full_us": None,
    }  # fmt: skip
    return MemorySample(**{**described, **fields})


def test_memory_is_told_by_its_extremes_and_its_pressure_by_the_time() -> None:
    """Something waited for I/O half of the time; memory pressure cannot be seen here."""
    book = HostMemoryHistory()
    assert book.between(0, SECOND) is None
    for second in range(20):
        busy = 5 <= second <= 15
        book.observe(
            second * SECOND,
            memory(
                dirty_bytes=(700 if second == 9 else 10) * MIB, writeback_bytes=50 * MIB if busy else 0,
                available_bytes=(1 << 30) if second == 10 else (4 << 30),
                dirty_threshold_bytes=300 * MIB if busy else 800 * MIB, psi_io_some_us=second * 500_000,
            ),
        )  # fmt: skip

    seen = book.between(6 * SECOND, 12 * SECOND)

    assert seen is not None
    assert (seen.total_bytes, seen.available_min_bytes, seen.dirty_max_bytes) == (8 << 30, 1 << 30, 750 * MIB)
    assert (seen.dirty_threshold_bytes, seen.dirty_background_bytes) == (300 * MIB, 400 * MIB)
    assert (seen.io_some_share, seen.io_full_share) == (0.5, 0.0)
    assert (seen.memory_some_share, seen.memory_full_share) == (None, None)
