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

from ckptprof.diagnose.ceilings import FULL, Measure
from ckptprof.service.probing.probe import ROWS, probe
from ckptprof.service.probing.probe_plan import plan_probe
from ckptprof_collectors.kernelfs import KernelFs

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.xdist_group("live")]

BLKIO = Path("/sys/fs/cgroup/blkio")
AGREEMENT = 0.10
SLOW_BYTES = 40_000_000  # per second
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
    """Return what the probe says of one row."""
    found = probe(
        plan_probe(device.directory, size_bytes=2 << 30, phase_seconds=seconds, fs=KernelFs()),
        halt=threading.Event(),
        on_row=lambda *_: None,
        rows=[row for row in ROWS if row.id == name],
    )
    (row,) = found.measures
    assert row.missing is None, row.missing
    assert row.ended != FULL
    assert not list(device.directory.glob(".ckptprof*"))
    return row


def fio(device: Device, row: Measure) -> dict[str, Any]:
    """Let fio do the same work: as many bytes, as large operations, as many writers, into new files, with an fsync."""
    place = device.directory / "fio"
    place.mkdir()
    size = row.transferred_bytes // row.workers
    options = ["--rw=write", f"--size={size}", "--fallocate=none", "--end_fsync=1", f"--directory={place}"]
    options += [f"--bs={row.operation_bytes}", f"--direct={int(bool(row.direct))}", f"--numjobs={row.workers}"]
    command = ["fio", "--name=job", "--ioengine=psync", "--thread", "--group_reporting", "--eta=never", *options]
    done = subprocess.run([*command, "--output-format=json"], capture_output=True, check=True)
    shutil.rmtree(place)
    (job,) = json.loads(done.stdout)["jobs"]
    said: dict[str, Any] = job
    # In whole operations of each writer
    assert said["write"]["io_bytes"] == pytest.approx(row.transferred_bytes, rel=0.05)
    return said


def agreement(device: Device, name: str, seconds: float, count: int = 3) -> list[float]:
    """Return the medians of some turns, ours and fio's, in bytes per second."""
    pairs = []
    for _ in range(count):
        row = measured(device, name, seconds)
        said = fio(device, row)
        pairs.append((row.bytes_per_second or 0.0, said["write"]["io_bytes"] * 1000 / said["write"]["runtime"]))
    return [statistics.median(values) for values in zip(*pairs, strict=True)]


@pytest.mark.parametrize("name", ["write-direct-many", "write-buffered", "write-buffered-many"])
def test_bandwidth_agrees_with_fio(name: str, device: Device, record_property: Callable[[str, object], None]) -> None:
    """Of 1 MiB writes on a device that takes 40 MB/s, and both find these 40 MB/s."""
    device.throttle(write_bps_device=SLOW_BYTES)

    ours, theirs = agreement(device, name, 1.0)

    record_property("figure", f"ceiling {name}: {ours / 1e6:.1f} MB/s, fio {theirs / 1e6:.1f} MB/s of 40")
    assert ours == pytest.approx(theirs, rel=AGREEMENT)
    assert ours == pytest.approx(SLOW_BYTES, rel=0.15)
