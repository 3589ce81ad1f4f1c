"""What the devices and NICs under a checkpoint did meanwhile, through mounts and stacks, wraps and hot-plug."""

from __future__ import annotations

import math

import pytest
from tests.detect.observed import frame

from ckptprof.detect.world.host.devices import Devices
from ckptprof.model import DeviceShare
from ckptprof_collectors.samples import (
    BlockActivity,
    DeviceInfo,
    DiskSample,
    EntityGone,
    MountInfo,
    NicInfo,
    NicSample,
    Sample,
)


def device(name: str, *below: str) -> DeviceInfo:
    """Return a device on top of others."""
    return DeviceInfo(name, 8, 0, "disk", below, not below, None, None, None, None, None, None)


def disk(name: str, *, sectors: int, io_ms: int = 0) -> DiskSample:
    """Return counters."""
    return DiskSample(name, 0, 0, sectors, 0, 0, 0, sectors * 2, 0, 0, io_ms, 0)


def asked(
    requests: int, *, writes: bool = True, in_flight: int = 0, sequential: int = 0, **latencies: int
) -> BlockActivity:
    """Return what a disk was asked for so far, 100 KB a request; `latencies`: requests in each bucket, as `ns_4096`."""
    slow = tuple((int(name.removeprefix("ns_")), number) for name, number in latencies.items())
    size = requests * 100_000
    return BlockActivity("sda", 8, 0, writes, requests, size, size, sequential, in_flight, (), slow)


def mount(point: str, name: str | None, *, mount_id: int = 1, server: str | None = None) -> MountInfo:
    """Return a mount."""
    return MountInfo(mount_id, 8, 0, "/", point, "ext4", "/dev/x", name, server)


def book(*samples: tuple[int, Sample]) -> Devices:
    """Return a book that has seen these."""
    made = Devices()
    for at_ns, sample in samples:
        made.ingest(frame(at_ns, 0, sample))
    return made


def test_a_mounts_device_and_those_below_it_are_told_each_with_its_own_difference() -> None:
    """Dm over a partition over a disk."""
    seen = book(
        (0, device("dm-0", "sda1")), (0, device("sda1", "sda")), (0, device("sda")), (0, mount("/data", "dm-0")),
        *((at, disk(name, sectors=at * 10, io_ms=at)) for name in ("dm-0", "sda1", "sda") for at in (1, 2, 3, 4)),
    )  # fmt: skip

    shares = seen.shares("/data/ckpt", 2, 3, writes=True)

    assert [share.device for share in shares] == ["dm-0", "sda1", "sda"]
    assert {share.written_bytes for share in shares} == {(40 - 20) * 2 * 512}
    assert {share.under for share in shares} == {"/data"}


def test_the_longest_mount_point_counts_and_of_equals_the_latest() -> None:
    """A mount hides what is under it; a sibling whose name begins alike does not."""
    seen = book(
        (0, mount("/", "root", mount_id=1)), (0, mount("/data", "old", mount_id=2)),
        (0, mount("/data", "new", mount_id=3)), (0, mount("/data2", "other", mount_id=4)),
    )  # fmt: skip

    found = [seen.mount_of(path) for path in ("/data/x", "/data", "/data2/x", "/dataset/x", "/")]

    assert [mount.device if mount else None for mount in found] == ["new", "new", "other", "root", "root"]


def test_the_busy_time_may_wrap() -> None:
    """The kernel's milliseconds have 32 bits."""
    end_ns = 8_000_000_000
    seen = book(
        (0, mount("/", "sda")),
        (1, disk("sda", sectors=1, io_ms=2**32 - 500)),
        (end_ns, disk("sda", sectors=2, io_ms=500)),
    )

    (share,) = seen.shares("/x", 1, end_ns, writes=True)
    assert share.busy_seconds == 1.0
    (short,) = seen.shares("/x", 1, end_ns // 10, writes=True)
    assert short.busy_seconds is None  # it was also busy outside of this time


def test_counters_that_went_back_give_no_share() -> None:
    """A device that was unplugged and plugged in again began anew."""
    seen = book((0, mount("/", "sda")), (1, disk("sda", sectors=100)), (9, disk("sda", sectors=2)))

    assert seen.shares("/x", 1, 9, writes=True) == ()


def test_a_remote_mount_is_reached_through_the_countable_nics() -> None:
    """A bond's bytes are its ports' bytes."""
    infos = [NicInfo(name, None, None, None, countable) for name, countable in (("eth0", True), ("bond0", False))]
    seen = book(
        (0, mount("/nfs", None, server="nas")),
        *((0, info) for info in infos),
        *((at, NicSample(name, at, 0, 0, 0, at * 7, 0, 0, 0)) for name in ("eth0", "bond0") for at in (1, 5)),
    )

    (share,) = seen.shares("/nfs/x", 1, 5, writes=True)

    assert (share.device, share.kind, share.read_bytes, share.written_bytes) == ("eth0", "nic", 4, 28)
    assert share.busy_seconds is None


def test_stacks_in_a_circle_end_and_unknown_mounts_are_nothing() -> None:
    """Samples that contradict each other are survived."""
    seen = book((0, device("a", "b")), (0, device("b", "a")), (0, mount("/data", "a")))

    assert seen.shares("/data/x", 0, 1, writes=True) == ()
    assert seen.shares("/elsewhere", 0, 1, writes=True) == ()


def test_what_is_kept_of_a_device_is_bounded() -> None:
    """Weeks of samples are some minutes of memory."""
    seen = Devices()
    for number in range(10_000):
        seen.ingest(frame(number, 0, disk("sda", sectors=number)))

    assert len(seen.disks._histories["sda"]) * 11 * 8 <= 128 << 10


def test_what_is_gone_is_forgotten() -> None:
    """A file system that was unmounted no longer hides what is under it; containers come and go for weeks."""
    seen = book((0, mount("/", "sda", mount_id=1)), (0, mount("/data", "sdb", mount_id=2)), (1, disk("sdb", sectors=1)))
    for entity, name in (("mount", "2"), ("device", "sdb"), ("interface", "eth9"), ("mount", "\x1b"), ("port", "x")):
        seen.ingest(frame(2, 0, EntityGone(entity, name)))
    under = seen.mount_of("/data/x")

    assert under is not None
    assert under.device == "sda"
    assert not seen.disks._histories


SECOND = 1_000_000_000


def asked_of(*looks: tuple[float, BlockActivity], start: float, end: float, writes: bool = True) -> DeviceShare:
    """Return what is told of sda between two times; its own counters go on for a minute."""
    others = ((0, device("sda")), (0, mount("/", "sda")), *((at, disk("sda", sectors=at)) for at in range(60)))
    samples = sorted((*others, *looks), key=lambda pair: pair[0])
    seen = book(*((int(at * SECOND), sample) for at, sample in samples))
    (share,) = seen.shares("/x", int(start * SECOND), int(end * SECOND), writes=writes)
    return share


def test_requests_are_those_from_the_look_before_to_the_look_after() -> None:
    """Each number is a difference, in the direction of the checkpoint, and the gauge is the largest meanwhile."""
    share = asked_of(
        (1, asked(100, in_flight=90, ns_1024=100)),
        (2, asked(700, writes=False)),
        (3, asked(150, in_flight=7, sequential=4_000_000, ns_1024=149, ns_1048576=1)),
        (4, asked(200, in_flight=2, sequential=7_500_000, ns_1024=198, ns_1048576=2)),
        (5, asked(999, in_flight=99, sequential=9_000_000, ns_1024=990, ns_1048576=9)),
        start=2.0, end=3.5,
    )  # fmt: skip

    assert (share.requests, share.mean_request_bytes, share.sequential_share_bytes) == (100, 100_000, 0.75)
    assert (share.max_in_flight, share.device) == (7, "sda")
    assert share.latency_p50_seconds == pytest.approx(1024 * math.sqrt(2) / 1e9)
    assert share.latency_p99_seconds == pytest.approx(1048576 * math.sqrt(2) / 1e9)


def test_a_disk_that_did_nothing_before_began_at_nothing() -> None:
    """Its first look holds all that it was asked for since tracing began, which is since the checkpoint began."""
    share = asked_of((3, asked(40)), (4, asked(50)), start=2.5, end=3.5)

    assert share.requests == 50
    assert share.latency_p50_seconds is None
    assert share.latency_p99_seconds is None


@pytest.mark.parametrize(("end", "requests"), [(5.0, 30), (57.5, None)])
def test_what_was_not_read_again_is_not_told(end: float, requests: int | None) -> None:
    """Counters stand still only if there was time to read them again; else the last requests are missing."""
    share = asked_of((1, asked(10)), (4, asked(40)), start=2.0, end=end)

    assert share.requests == requests


@pytest.mark.parametrize(("start", "requests"), [(2.0, None), (5.5, 20)])
def test_tracing_that_began_anew_gives_no_difference(start: float, requests: int | None) -> None:
    """However far the new counters have come; what lies after is told."""
    share = asked_of((1, asked(10)), (5, asked(5)), (6, asked(25)), (7, asked(26)), start=start, end=5.8)

    assert share.requests == requests


@pytest.mark.parametrize("looks", [(), ((1, asked(10, writes=False)), (9, asked(20, writes=False)))])
def test_without_a_look_nothing_is_said_of_requests(looks: tuple[tuple[float, BlockActivity], ...]) -> None:
    """Polled, or only the other direction was seen."""
    share = asked_of(*looks, start=2, end=3)

    assert (share.requests, share.mean_request_bytes, share.sequential_share_bytes) == (None, None, None)
    assert (share.latency_p50_seconds, share.latency_p99_seconds, share.max_in_flight) == (None, None, None)
    assert share.written_bytes > 0


def test_no_request_is_a_number_and_has_no_mean() -> None:
    """A save that stayed in memory."""
    share = asked_of((1, asked(10, in_flight=1)), start=2, end=3)

    assert (share.requests, share.max_in_flight) == (0, 1)
    assert (share.mean_request_bytes, share.sequential_share_bytes, share.latency_p99_seconds) == (None, None, None)


def test_latencies_beyond_the_buckets_count_at_their_ends() -> None:
    """A sample that claims impossible times is survived."""
    share = asked_of((3, asked(4, ns_0=2, ns_1=1, ns_999999999999999=1)), start=2, end=2.5)

    assert share.latency_p50_seconds == pytest.approx(256 * math.sqrt(2) / 1e9)
    assert share.latency_p99_seconds == pytest.approx(2**39.5 / 1e9)


def test_what_is_kept_of_requests_is_bounded() -> None:
    """A disk that works for days takes an eighth of a megabyte; older saves still have a difference, more roughly."""
    seen = book((0, device("sda")), (0, mount("/", "sda")))
    for at in range(5000):
        seen.ingest(frame(at * SECOND, 0, disk("sda", sectors=at)))
        seen.ingest(frame(at * SECOND, 0, asked(at)))
    (past,) = seen._requests._histories.values()
    (recent,) = seen.shares("/x", 4900 * SECOND, 4950 * SECOND, writes=True)
    (long,) = seen.shares("/x", 2000 * SECOND, 4500 * SECOND, writes=True)
    (older,) = seen.shares("/x", 100 * SECOND, 4500 * SECOND, writes=True)

    assert past.times.itemsize * len(past) + past._values.itemsize * len(past._values) <= 128 << 10
    assert recent.requests == pytest.approx(51, abs=2)
    assert long.requests == pytest.approx(2500, rel=0.03)
    assert older.requests == pytest.approx(4400, rel=0.03)
