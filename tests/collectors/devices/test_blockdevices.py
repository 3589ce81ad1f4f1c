"""The disks collector: on trees made by hand, and on the live machine with the kernel as oracle."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.patience import wait_until

from ckptprof_collectors.devices.block_devices import REVIEW_SECONDS, BlockDevices
from ckptprof_collectors.kernelfs import KernelFs, UnavailableError
from ckptprof_collectors.samples import DeviceInfo, DiskSample, EntityGone, Sample

LOOP_CTL_ADD, LOOP_CTL_REMOVE, LOOP_SET_FD, LOOP_CLR_FD = 0x4C80, 0x4C81, 0x4C00, 0x4C01  # linux/loop.h
FIELDS = DiskSample.__struct_fields__[1:]


def line(device: str, written: int = 0, minor: int = 0) -> str:
    """Return a line of diskstats."""
    return f" 259 {minor} {device} 0 0 0 0 1 0 {written} 5 0 5 5 0 0 0 0 0 0\n"


def write_tree(root: Path, lines: str, *devices: str) -> KernelFs:
    """Write diskstats and bare sysfs entries."""
    (root / "proc").mkdir(exist_ok=True)
    (root / "proc/diskstats").write_text(lines)
    for device in devices:
        (root / "sys/class/block" / device).mkdir(parents=True, exist_ok=True)
    return KernelFs(proc=root / "proc", sys=root / "sys", dev=root / "dev")


def disks(samples: list[Sample] | tuple[Sample, ...]) -> dict[str, DiskSample]:
    """Return the counters by device."""
    return {sample.device: sample for sample in samples if isinstance(sample, DiskSample)}


def infos(samples: list[Sample] | tuple[Sample, ...]) -> dict[str, DeviceInfo]:
    """Return the descriptions by device."""
    return {sample.device: sample for sample in samples if isinstance(sample, DeviceInfo)}


def test_absent_diskstats_is_unavailable(tmp_path: Path) -> None:
    """Under ProcSubset=pid there is no diskstats: the reason names it."""
    with pytest.raises(UnavailableError, match="/proc/diskstats"):
        BlockDevices(KernelFs(proc=tmp_path, sys=tmp_path, dev=tmp_path))


def test_only_changed_devices_are_reported(tmp_path: Path) -> None:
    """After the first read a device is reported only when its line changed, with raw cumulative counters."""
    fs = write_tree(tmp_path, line("sda") + line("sdb"), "sda", "sdb")
    collector = BlockDevices(fs)
    first = list(collector.read())

    assert list(collector.read()) == []
    write_tree(tmp_path, line("sda") + line("sdb", written=4096))
    second = list(collector.read())
    collector.close()

    assert (set(infos(first)), set(disks(first))) == ({"sda", "sdb"}, {"sda", "sdb"})
    assert [type(sample) for sample in second] == [DiskSample]
    assert disks(second)["sdb"].write_sectors == 4096


def test_device_comes_and_goes(tmp_path: Path) -> None:
    """A new line brings its description, a vanished one its end, and its return a new description."""
    fs = write_tree(tmp_path, line("sda"), "sda", "sdb")
    collector = BlockDevices(fs)
    collector.read()

    write_tree(tmp_path, line("sda") + line("sdb"))
    came = list(collector.read())
    write_tree(tmp_path, line("sda"))
    went = list(collector.read())
    write_tree(tmp_path, line("sda") + line("sdb"))
    back = list(collector.read())
    collector.close()

    assert (set(infos(came)), set(disks(came))) == ({"sdb"}, {"sdb"})
    assert went == [EntityGone("device", "sdb")]
    assert came == back


def test_head_stops_counting_when_its_path_appears(tmp_path: Path) -> None:
    """When the first hidden path of an NVMe namespace shows up, the head's description is sent again."""
    fs = write_tree(tmp_path, line("nvme0n1"), "nvme0n1")
    collector = BlockDevices(fs)
    alone = infos(list(collector.read()))

    write_tree(tmp_path, line("nvme0c0n1") + line("nvme0n1"), "nvme0c0n1")
    together = infos(list(collector.read()))
    collector.close()

    assert alone["nvme0n1"].is_countable
    assert (together["nvme0n1"].is_countable, together["nvme0c0n1"].is_countable) == (False, True)


def test_loop_attached_without_events_is_seen_after_its_first_io(tmp_path: Path) -> None:
    """Where udev cannot be asked, a changeable device with I/O is described anew within the review time."""
    now = 0.0
    fs = write_tree(tmp_path, line("loop0"), "loop0")
    collector = BlockDevices(fs, clock=lambda: now)
    collector.read()
    (tmp_path / "sys/class/block/loop0/loop").mkdir()
    (tmp_path / "sys/class/block/loop0/loop/backing_file").write_text("/data/image\n")

    write_tree(tmp_path, line("loop0", written=8))
    early = infos(list(collector.read()))
    now = REVIEW_SECONDS
    late = infos(list(collector.read()))
    collector.close()

    assert early == {}
    assert late["loop0"].backing == "/data/image"


def test_more_devices_than_a_page_holds(tmp_path: Path) -> None:
    """All of 300 devices are read, and one change among them is one sample."""
    names = [f"nvme{number}n1" for number in range(300)]
    fs = write_tree(tmp_path, "".join(map(line, names)), *names)
    collector = BlockDevices(fs)
    first = list(collector.read())
    write_tree(tmp_path, "".join(line(name, written=int(name == "nvme299n1")) for name in names))
    second = list(collector.read())
    collector.close()

    assert set(infos(first)) == set(disks(first)) == set(names)
    assert list(disks(second)) == ["nvme299n1"]


def test_garbage_between_the_lines(tmp_path: Path) -> None:
    """Lines that make no sense cost nobody else his sample."""
    fs = write_tree(tmp_path, "\n\nx\n 8 0 sdz a b c\n" + line("sda") + " \n", "sda")
    collector = BlockDevices(fs)

    assert set(disks(list(collector.read()))) == {"sda"}
    collector.close()


def kernel_stat(device: str) -> list[int]:
    """Return what the kernel says in the device's own file."""
    return [int(value) for value in Path(f"/sys/class/block/{device.replace('/', '!')}/stat").read_text().split()]


def test_live_counters_are_the_kernels() -> None:
    """Each counter lies between two readings of /sys/class/block/*/stat, and every device of sysfs is there."""
    paths = Path("/sys/block").iterdir()
    names = [path.name for path in paths if not path.name.startswith("loop")]  # others make and remove loops
    before = {name: kernel_stat(name) for name in names}
    collector = BlockDevices(KernelFs())
    try:
        seen = disks(list(collector.read()))
    finally:
        collector.close()
    after = {name: kernel_stat(name) for name in names}

    assert names
    for name in names:
        for field, low, high in zip(FIELDS, before[name], after[name], strict=True):
            assert field == "in_flight" or low <= getattr(seen[name], field) <= high, (name, field)


def test_making_and_reading_it_starts_no_program() -> None:
    """Pyudev would run `ldconfig` to find its library: the collector keeps it from that."""
    script = (
        "import sys\n"
        "seen = []\n"
        "names = {'subprocess.Popen', 'os.fork', 'os.forkpty', 'os.posix_spawn', 'os.system', 'os.exec'}\n"
        "sys.addaudithook(lambda event, _: seen.append(event) if event in names else None)\n"
        "from ckptprof_collectors.devices.block_devices import BlockDevices\n"
        "from ckptprof_collectors.kernelfs import KernelFs\n"
        "collector = BlockDevices(KernelFs())\n"
        "collector.read()\n"
        "sys.exit(f'{seen} {collector._unreported}' if seen or collector._unreported else 0)\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def collector() -> Iterator[BlockDevices]:
    """Give a collector of the live machine that has had its first read."""
    collector = BlockDevices(KernelFs())
    collector.read()
    yield collector
    collector.close()


@contextlib.contextmanager
def loop_device(number: int) -> Iterator[str]:
    """Add a loop device of this number and remove it again."""
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(control, LOOP_CTL_ADD, number)
        try:
            yield f"loop{number}"
        finally:
            wait_until(lambda: _removed(control, number))
    finally:
        os.close(control)


def _removed(control: int, number: int) -> bool:
    with contextlib.suppress(OSError):  # EBUSY while somebody (udev, another test's probe) has it open
        fcntl.ioctl(control, LOOP_CTL_REMOVE, number)
        return True
    return False


def own_number(offset: int) -> int:
    """Return a loop number that no other test process takes."""
    return 10_000 + os.getpid() % 100_000 * 8 + offset


def until(collector: BlockDevices, found: Callable[[list[Sample]], bool]) -> list[Sample]:
    """Read until something is found; return all that was read."""
    samples: list[Sample] = []

    def met() -> bool:
        samples.extend(collector.read())
        return found(samples)

    wait_until(met)
    return samples


@pytest.mark.root
@pytest.mark.loop
def test_live_loop_is_added_and_removed(collector: BlockDevices) -> None:
    """LOOP_CTL_ADD brings a description and counters in the next read, LOOP_CTL_REMOVE its end."""
    with loop_device(own_number(0)) as name:
        came = list(collector.read())
    gone = EntityGone("device", name)
    went = until(collector, lambda samples: gone in samples)

    assert not infos(came)[name].is_countable
    assert name in disks(came)
    assert gone in went


@pytest.mark.root
@pytest.mark.loop
def test_live_attach_to_an_existing_node_is_noticed_without_io(collector: BlockDevices, tmp_path: Path) -> None:
    """Attaching a file changes size, backing and what is below at once, and detaching takes them back."""
    image = tmp_path / "image with space"
    image.write_bytes(b"")
    os.truncate(image, 8 << 20)
    with loop_device(own_number(1)) as name:
        collector.read()
        with image.open("r+b") as file, Path(f"/dev/{name}").open("rb") as node:
            fcntl.ioctl(node, LOOP_SET_FD, file.fileno())
            attached = infos(until(collector, lambda samples: name in infos(samples)))[name]
            fcntl.ioctl(node, LOOP_CLR_FD)
        detached = infos(until(collector, lambda samples: name in infos(samples) and not infos(samples)[name].backing))

    device = image.stat().st_dev
    below = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve().name
    assert (attached.size_bytes, attached.backing, attached.below) == (8 << 20, str(image), (below,))
    assert (detached[name].size_bytes, detached[name].backing, detached[name].below) == (0, None, ())


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.loop
def test_live_file_of_more_than_a_page(collector: BlockDevices) -> None:
    """With 90 devices more, /proc/diskstats takes two reads: all of them are seen, at once."""
    first = 810_000 + os.getpid() % 2_500 * 90  # above every own_number, below the kernel's 2^20
    with contextlib.ExitStack() as stack:
        names = {stack.enter_context(loop_device(first + at)) for at in range(90)}
        size = len(Path("/proc/diskstats").read_bytes())
        came = disks(list(collector.read()))

    assert size > 4096
    assert names <= came.keys()
