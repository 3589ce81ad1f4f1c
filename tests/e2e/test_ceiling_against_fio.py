"""`ckptprof ceiling` against fio: the same work on the same throttled device in the same run, in turns."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kernel.filesystems import call
from tests.leftovers import given_back, own

from ckptprof.diagnose.ceilings import MIB, Ended, Measure
from ckptprof.service.probing.phases import PHASES
from ckptprof.service.probing.planning import plan
from ckptprof.service.probing.probe import probe
from ckptprof_collectors.kernelfs import KernelFs

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.xdist_group("live")]

BLKIO = Path("/sys/fs/cgroup/blkio")
AGREEMENT = 0.10
SLOW_BYTES, SLOW_OPERATIONS = 40_000_000, 300  # per second
EVERYDAY = ["write-direct", "write-buffered-many"]  # CKPTPROF_JOBS=all: all four
ROWS = [*EVERYDAY, "write-direct-many", "write-buffered"] if os.environ.get("CKPTPROF_JOBS") == "all" else EVERYDAY
MEMORY = Path("/dev/shm")  # below a device whose speed is not to depend on this host's disk


class Device:
    """A loop device over memory with ext4 on it, which the kernel holds to a rate."""

    def __init__(self, base: Path) -> None:
        self.directory = base / "mounted"
        self.directory.mkdir()
        image = base / "image"
        with image.open("wb") as made:
            made.truncate(2 << 30)
        call("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", image)
        call("mount", "-o", "loop,noatime", image, self.directory)
        state = self.directory.stat().st_dev
        self._number = f"{os.major(state)}:{os.minor(state)}"
        self._rules = contextlib.ExitStack()

    def throttle(self, **rules: int) -> None:
        """Hold it to `write_bps_device`, `write_iops_device` and so on per second; 0 lifts it."""
        for rule, value in rules.items():
            # Of the root group of version 1: writeback is charged to it whoever wrote
            file = BLKIO / f"blkio.throttle.{rule}"
            self._rules.enter_context(given_back(file, f"{self._number} 0\n"))
            file.write_text(f"{self._number} {value}\n")

    def close(self) -> None:
        """Lift the rules and unmount it, which frees the loop device as soon as nobody looks at it."""
        self._rules.close()
        call("umount", "-l", self.directory)


@pytest.fixture
def device() -> Iterator[Device]:
    """Give a device of this test's own; skips where this kernel throttles by other means only."""
    if not (BLKIO / "blkio.throttle.write_bps_device").exists():
        pytest.skip("no blkio controller of cgroup version 1")
    if shutil.which("fio") is None:
        pytest.skip("not installed: fio")
    base = Path(tempfile.mkdtemp(prefix=own("ceiling-"), dir=MEMORY if MEMORY.is_dir() else None))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, base)
        made = Device(base)
        stack.callback(made.close)
        yield made


def measured(device: Device, name: str, seconds: float) -> Measure:
    """Return what the probe says of one row; a row that needs a file gets the first one written, too."""
    phases = tuple(
        phase for phase in PHASES if phase.rows[0].id in ({name, "write-direct"} if "4k" in name else {name})
    )
    found = probe(
        plan(device.directory, size_bytes=2 << 30, phase_seconds=seconds, fs=KernelFs()),
        halt=threading.Event(),
        tell=lambda *_: None,
        phases=phases,
    )
    (row,) = (one for one in found.measures if one.id == name)
    assert row.missing is None, row.missing
    assert row.ended is not Ended.FULL
    assert not list(device.directory.glob(".ckptprof*"))
    return row


def fio(device: Device, row: Measure) -> dict[str, Any]:
    """Let fio do the same work: as many bytes, as large operations, as many writers, into new files, with an fsync."""
    place = device.directory / "fio"
    place.mkdir()
    size = row.moved_bytes // row.workers
    options = ["--rw=write", f"--size={size}", "--fallocate=none", "--end_fsync=1", f"--directory={place}"]
    if row.random:
        laid_out = place / "laid-out"
        with laid_out.open("wb") as file:
            for _ in range(64):
                file.write(os.urandom(MIB))
            os.fsync(file.fileno())
        options = [
            "--rw=randwrite",
            f"--size={64 * MIB}",
            f"--io_size={size}",
            f"--filename={laid_out}",
            "--end_fsync=1",
        ]
    elif row.direct is None:
        options[3] = "--fsync=1"
    options += [f"--bs={row.operation_bytes}", f"--direct={int(bool(row.direct))}", f"--numjobs={row.workers}"]
    command = ["fio", "--name=job", "--ioengine=psync", "--thread", "--group_reporting", "--eta=never", *options]
    done = subprocess.run([*command, "--output-format=json"], capture_output=True, check=True)
    shutil.rmtree(place)
    (job,) = json.loads(done.stdout)["jobs"]
    said: dict[str, Any] = job
    assert said["write"]["io_bytes"] == pytest.approx(row.moved_bytes, rel=0.05)  # in whole operations of each writer
    return said


Compare = Callable[[Measure, dict[str, Any]], tuple[float, float]]


def rates(row: Measure, said: dict[str, Any]) -> tuple[float, float]:
    """Return bytes per second, ours and fio's."""
    return row.bytes_per_second or 0.0, said["write"]["io_bytes"] * 1000 / said["write"]["runtime"]


def latencies(row: Measure, said: dict[str, Any]) -> tuple[float, float]:
    """Return the median seconds of a write with its fsync, ours and fio's."""
    percentiles = said["sync"]["lat_ns"]["percentile"], said["write"]["clat_ns"]["percentile"]
    return row.latency_p50_seconds or 0.0, sum(one["50.000000"] for one in percentiles) / 1e9


def turns(device: Device, name: str, compare: Compare, seconds: float, count: int = 3) -> list[tuple[float, ...]]:
    """Return what both find when they take turns: ours, and fio's."""
    pairs = []
    for _ in range(count):
        row = measured(device, name, seconds)
        pairs.append(compare(row, fio(device, row)))
    return list(zip(*pairs, strict=True))


def agreement(device: Device, name: str, compare: Compare, seconds: float) -> list[float]:
    """Return the medians of some turns, ours and fio's."""
    return [statistics.median(values) for values in turns(device, name, compare, seconds)]


@pytest.mark.parametrize("name", ROWS)
def test_bandwidth_agrees_with_fio(name: str, device: Device, record_property: Callable[[str, object], None]) -> None:
    """Of 1 MiB writes on a device that takes 40 MB/s, and both find these 40 MB/s."""
    device.throttle(write_bps_device=SLOW_BYTES)

    ours, theirs = agreement(device, name, rates, 1.0)

    record_property("figure", f"ceiling {name}: {ours / 1e6:.1f} MB/s, fio {theirs / 1e6:.1f} MB/s of 40")
    assert ours == pytest.approx(theirs, rel=AGREEMENT)
    assert ours == pytest.approx(SLOW_BYTES, rel=0.15)


def test_random_operations_agree_with_fio(device: Device, record_property: Callable[[str, object], None]) -> None:
    """Of 4 KiB each on a device that takes 300 of them per second."""
    device.throttle(write_iops_device=SLOW_OPERATIONS)

    ours, theirs = (rate / 4096 for rate in agreement(device, "write-random-4k", rates, 1.0))

    record_property("figure", f"ceiling write-random-4k: {ours:.0f}/s, fio {theirs:.0f}/s of {SLOW_OPERATIONS}")
    assert ours == pytest.approx(theirs, rel=AGREEMENT)
    assert ours == pytest.approx(SLOW_OPERATIONS, rel=0.15)


def test_python_is_no_limit(device: Device, record_property: Callable[[str, object], None]) -> None:
    """Even where nothing holds the device, and each operation takes some 15 microseconds.

    The best of many turns is compared: there what else runs on this host disturbed least.
    """
    ours, theirs = (max(values) / 4096 for values in turns(device, "write-random-4k", rates, 0.3, count=9))

    record_property("figure", f"ceiling write-random-4k, device not throttled: {ours:,.0f}/s, fio {theirs:,.0f}/s")
    assert ours >= 0.4 * theirs  # measured: 0.65 to 1; a device of 10,000 a second is still far below


def test_the_cost_of_fsync_agrees_with_fio(device: Device, record_property: Callable[[str, object], None]) -> None:
    """A small write and an fsync: the median on a device of which each request has to wait for its turn."""
    device.throttle(write_iops_device=20)

    ours, theirs = agreement(device, "sync", latencies, 3.0)

    record_property("figure", f"ceiling sync: {ours * 1e3:.2f} ms, fio {theirs * 1e3:.2f} ms")
    assert ours == pytest.approx(theirs, rel=AGREEMENT)


def test_how_often_a_file_can_be_synced_agrees_with_fio(
    device: Device, record_property: Callable[[str, object], None]
) -> None:
    """And the rate of it where requests come in bursts."""
    device.throttle(write_iops_device=300)

    ours, theirs = (rate / 4096 for rate in agreement(device, "sync", rates, 2.0))

    record_property("figure", f"ceiling sync: {ours:.1f}/s, fio {theirs:.1f}/s")
    assert ours == pytest.approx(theirs, rel=AGREEMENT)
