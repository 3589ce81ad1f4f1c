"""What nvidia-fs counts, by the two forms of its statistics: no such driver is here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ckptprof_collectors.gpus.gpudirect_counters import MIB, REOPEN_SECONDS, GpuDirectReader, parse
from ckptprof_collectors.kernelfs import KernelFs, UnavailableError
from ckptprof_collectors.samples import GpuDirectSample

_HEAD = """GDS Version: 1.10.0.4
NVFS statistics(ver: 4.0)
NVFS Driver(version: 2.20.5)
Mellanox PeerDirect Supported: True
IO stats: {state}, peer IO stats: {state}
Logging level: info

Active Shadow-Buffer (MiB): 128
Active Process: 1
"""
ENABLED = _HEAD.format(state="Enabled") + (
    "Batches\t\t\t\t: n=0 ok=0 err=0 Avg-Submit-Latency(usec)=0\n"
    "Reads\t\t\t\t: n=8 ok=8 err=0 readMiB=32 io_state_err=0\n"
    "Reads\t\t\t\t: Bandwidth(MiB/s)=100 Avg-Latency(usec)=2000\n"
    "Sparse Reads\t\t        : n=0 io=0 holes=0 pages=0 \n"
    "Writes\t\t\t\t: n={writes} ok={writes} err=1 writeMiB={mib} io_state_err=0 pg-cache=2 pg-cache-fail=1 "
    "pg-cache-eio=0\n"
    "Writes\t\t\t\t: Bandwidth(MiB/s)=500 Avg-Latency(usec)=1900\n"
    "Ops\t\t\t\t: Read=0 Write=0 BatchIO=0\n"
)
DISABLED = _HEAD.format(state="Disabled") + (
    "Reads\t\t\t\t: err=3 io_state_err=0\n"
    "Writes\t\t\t\t: err=0 io_state_err=0 pg-cache=0 pg-cache-fail=0 pg-cache-eio=0\n"
)


def put(root: Path, said: str) -> KernelFs:
    """Write the statistics."""
    file = root / "proc/driver/nvidia-fs/stats"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(said)
    return KernelFs(proc=root / "proc", sys=root / "sys")


def test_enabled_statistics_are_told_when_they_change(tmp_path: Path) -> None:
    """Bytes in whole MiB, with errors of both directions."""
    collector = GpuDirectReader(put(tmp_path, ENABLED.format(writes=40, mib=160)))
    first, still = collector.read(), collector.read()
    put(tmp_path, ENABLED.format(writes=41, mib=164))
    later = collector.read()
    collector.close()

    assert first == [GpuDirectSample("2.20.5", True, False, 8, 32 * MIB, 40, 160 * MIB, 1, 3)]  # noqa: FBT003 - a struct of the collectors
    assert still == []
    assert later == [GpuDirectSample("2.20.5", True, False, 8, 32 * MIB, 41, 164 * MIB, 1, 3)]  # noqa: FBT003 - a struct of the collectors
    assert collector.has_driver


def test_a_driver_that_is_loaded_again_is_read_again(tmp_path: Path) -> None:
    """What was opened of the one before fails for ever: that is said once."""
    now = 0.0
    collector = GpuDirectReader(put(tmp_path, ENABLED.format(writes=40, mib=160)), clock=lambda: now)
    collector.read()
    assert collector._file is not None
    directory = os.open(tmp_path, os.O_RDONLY)
    os.dup2(directory, collector._file.fd, inheritable=False)  # which cannot be read
    os.close(directory)
    with pytest.raises(OSError, match="directory"):
        collector.read()
    put(tmp_path, ENABLED.format(writes=1, mib=4))
    soon, hides = collector.read(), collector.has_driver
    now += REOPEN_SECONDS
    later = collector.read()

    assert (soon, hides) == (None, False)
    assert later == [GpuDirectSample("2.20.5", True, False, 8, 32 * MIB, 1, 4 * MIB, 1, 3)]  # noqa: FBT003 - a struct of the collectors
    assert collector.has_driver
    collector.close()


def test_disabled_statistics_count_errors_alone() -> None:
    """That is how the driver is loaded."""
    told = parse(DISABLED.encode())
    assert told == GpuDirectSample("2.20.5", False, False, None, None, None, None, 3, 0)  # noqa: FBT003 - a struct of the collectors


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\xff\x00\n" * 50,
        b"Writes : n=-1 err=x writeMiB=18446744073709551615",
        b"Writes: err=",
        b"IO stats:\nReads",
    ],
)
def test_nonsense_is_not_known(said: bytes) -> None:
    """Nor what cannot be."""
    told = parse(said)
    assert (told.driver, told.counts, told.writes, told.written_bytes, told.errors) == (None, False, None, None, None)


def test_where_there_is_none_nothing_is_read(tmp_path: Path) -> None:
    """With the reason; peer memory of another maker's device is none of a GPU."""
    pool = tmp_path / "sys/bus/pci/devices/0000:81:00.0/p2pmem"
    with pytest.raises(UnavailableError, match="no nvidia-fs"):
        GpuDirectReader(KernelFs(proc=tmp_path / "proc", sys=tmp_path / "sys"))
    pool.mkdir(parents=True)
    (pool.parent / "vendor").write_text("0x144d\n")
    with pytest.raises(UnavailableError, match="no nvidia-fs"):
        GpuDirectReader(KernelFs(proc=tmp_path / "proc", sys=tmp_path / "sys"))


def test_without_its_driver_cufile_needs_memory_of_the_gpu(tmp_path: Path) -> None:
    """It is told once."""
    pool = tmp_path / "sys/bus/pci/devices/0000:81:00.0/p2pmem"
    pool.mkdir(parents=True)
    (pool.parent / "vendor").write_text("0x10de\n")
    collector = GpuDirectReader(KernelFs(proc=tmp_path / "proc", sys=tmp_path / "sys"))

    assert not collector.has_driver
    assert collector.read() == [GpuDirectSample(None, False, True, None, None, None, None, None, None)]  # noqa: FBT003 - a struct of the collectors
    assert collector.read() == []
    collector.close()
