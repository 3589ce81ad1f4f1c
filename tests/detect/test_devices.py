"""What the devices and NICs under a checkpoint did meanwhile, through mounts and stacks, wraps and hot-plug."""

from __future__ import annotations

from ckptprof.detect.devices import DeviceBook
from ckptprof_collectors.samples import DeviceInfo, DiskSample, Gone, MountInfo, NicInfo, NicSample, Sample


def device(name: str, *below: str) -> DeviceInfo:
    """Return a device on top of others."""
    return DeviceInfo(name, 8, 0, "disk", below, not below, None, None, None, None, None, None)


def disk(name: str, *, sectors: int, io_ms: int = 0) -> DiskSample:
    """Return counters."""
    return DiskSample(name, 0, 0, sectors, 0, 0, 0, sectors * 2, 0, 0, io_ms, 0)


def mount(point: str, name: str | None, *, mount_id: int = 1, server: str | None = None) -> MountInfo:
    """Return a mount."""
    return MountInfo(mount_id, 8, 0, "/", point, "ext4", "/dev/x", name, server)


def book(*samples: tuple[int, Sample]) -> DeviceBook:
    """Return a book that has seen these."""
    made = DeviceBook()
    for at_ns, sample in samples:
        made.observe(at_ns, sample)
    return made


def test_a_mounts_device_and_those_below_it_are_told_each_with_its_own_difference() -> None:
    """Dm over a partition over a disk."""
    seen = book(
        (0, device("dm-0", "sda1")), (0, device("sda1", "sda")), (0, device("sda")), (0, mount("/data", "dm-0")),
        *((at, disk(name, sectors=at * 10, io_ms=at)) for name in ("dm-0", "sda1", "sda") for at in (1, 2, 3, 4)),
    )  # fmt: skip

    shares = seen.shares("/data/ckpt", 2, 3)

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
    seen = book(
        (0, mount("/", "sda")), (1, disk("sda", sectors=1, io_ms=2**32 - 500)), (9, disk("sda", sectors=2, io_ms=500))
    )

    (share,) = seen.shares("/x", 1, 9)

    assert share.busy_seconds == 1.0


def test_counters_that_went_back_give_no_share() -> None:
    """A device that was unplugged and plugged in again began anew."""
    seen = book((0, mount("/", "sda")), (1, disk("sda", sectors=100)), (9, disk("sda", sectors=2)))

    assert seen.shares("/x", 1, 9) == ()


def test_a_remote_mount_is_reached_through_the_countable_nics() -> None:
    """A bond's bytes are its ports' bytes."""
    infos = [NicInfo(name, None, None, None, countable) for name, countable in (("eth0", True), ("bond0", False))]
    seen = book(
        (0, mount("/nfs", None, server="nas")),
        *((0, info) for info in infos),
        *((at, NicSample(name, at, 0, 0, 0, at * 7, 0, 0, 0)) for name in ("eth0", "bond0") for at in (1, 5)),
    )

    (share,) = seen.shares("/nfs/x", 1, 5)

    assert (share.device, share.kind, share.read_bytes, share.written_bytes) == ("eth0", "nic", 4, 28)
    assert share.busy_seconds is None


def test_stacks_in_a_circle_end_and_unknown_mounts_are_nothing() -> None:
    """Samples that contradict each other are survived."""
    seen = book((0, device("a", "b")), (0, device("b", "a")), (0, mount("/data", "a")))

    assert seen.shares("/data/x", 0, 1) == ()
    assert seen.shares("/elsewhere", 0, 1) == ()


def test_what_is_kept_of_a_device_is_bounded() -> None:
    """Weeks of samples are some minutes of memory."""
    seen = DeviceBook()
    for number in range(10_000):
        seen.observe(number, disk("sda", sectors=number))

    assert len(seen._disks["sda"]._times) < 5000


def test_what_is_gone_is_forgotten() -> None:
    """A file system that was unmounted no longer hides what is under it; containers come and go for weeks."""
    seen = book((0, mount("/", "sda", mount_id=1)), (0, mount("/data", "sdb", mount_id=2)), (1, disk("sdb", sectors=1)))
    for entity, name in (("mount", "2"), ("device", "sdb"), ("interface", "eth9"), ("mount", "\x1b"), ("port", "x")):
        seen.observe(2, Gone(entity, name))
    under = seen.mount_of("/data/x")

    assert under is not None
    assert under.device == "sda"
    assert not seen._disks
