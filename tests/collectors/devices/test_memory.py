"""The memory collector: units, missing parts, and the live machine."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptprof_collectors.devices.memory import HostMemory, _stalled
from ckptprof_collectors.kernelfs import KernelFs, UnavailableError, number_after
from ckptprof_collectors.samples import MemorySample, Unavailable

PAGE = os.sysconf("SC_PAGE_SIZE")
# After a capture (Firecracker VM, Linux 6.18.44, 2026-11-21): the lines that matter and their neighbours, with zeros
# made numbers so that a mix-up shows.
MEMINFO = (
    b"MemTotal:       24684092 kB\nMemFree:        24254764 kB\nMemAvailable:   24270460 kB\nBuffers:  71684 kB\n"
    b"Cached:            83308 kB\nSwapCached: 9 kB\nDirty:              8200 kB\nWriteback:            12 kB\n"
    b"WritebackTmp:          7 kB\n"
)
VMSTAT = (
    b"nr_free_pages 1\nnr_dirty 2050\nnr_writeback 0\nnr_dirtied 548240\nnr_written 499247\n"
    b"nr_dirty_threshold 1213258\nnr_dirty_background_threshold 605888\npgfault 7\npgmajfault 1144\n"
)
IO = b"some avg10=3.09 avg60=0.70 avg300=0.27 total=3241074\nfull avg10=3.09 avg60=0.70 avg300=0.25 total=2985205\n"


def tree(root: Path, meminfo: bytes = MEMINFO, vmstat: bytes = VMSTAT, **pressure: bytes) -> KernelFs:
    """Write the files."""
    (root / "pressure").mkdir(exist_ok=True)
    (root / "meminfo").write_bytes(meminfo)
    (root / "vmstat").write_bytes(vmstat)
    for name, data in pressure.items():
        (root / "pressure" / name).write_bytes(data)
    return KernelFs(proc=root)


def test_units_of_a_captured_machine(tmp_path: Path) -> None:
    """Kilobytes of meminfo and pages of vmstat become bytes, counts and microseconds stay."""
    collector = HostMemory(tree(tmp_path, io=IO, memory=IO, cpu=IO))
    (sample,) = collector.read()
    tree(tmp_path, cpu=IO.replace(b"3241074", b"3241075"))  # some task always waits for a CPU: that alone is no news
    again = list(collector.read())
    collector.close()

    assert sample == MemorySample(
        total_bytes=24684092 << 10,
        available_bytes=24270460 << 10,
        cached_bytes=83308 << 10,
        dirty_bytes=8200 << 10,
        writeback_bytes=12 << 10,
        dirtied_bytes=548240 * PAGE,
        written_bytes=499247 * PAGE,
        dirty_threshold_bytes=1213258 * PAGE,
        dirty_background_threshold_bytes=605888 * PAGE,
        major_faults=1144,
        psi_io_some_us=3241074,
        psi_io_full_us=2985205,
        psi_memory_some_us=3241074,
        psi_memory_full_us=2985205,
        psi_cpu_some_us=3241074,
    )
    assert again == []


def test_pressure_that_is_off_is_said_once(tmp_path: Path) -> None:
    """Without /proc/pressure its fields are None, the reason comes once and the rest works."""
    collector = HostMemory(tree(tmp_path, memory=IO))
    said, sample = collector.read()
    tree(tmp_path, vmstat=VMSTAT.replace(b"1144", b"1145"))
    later = list(collector.read())
    collector.close()

    assert isinstance(said, Unavailable)
    assert "/proc/pressure/io" in said.reason
    assert isinstance(sample, MemorySample)
    assert (sample.psi_io_some_us, sample.psi_memory_some_us) == (None, 3241074)
    assert [type(item) for item in later] == [MemorySample]


def test_fields_that_a_kernel_lacks_are_none(tmp_path: Path) -> None:
    """An older or odd kernel's missing lines are unknown, not zero."""
    collector = HostMemory(tree(tmp_path, meminfo=b"MemTotal: x kB\n", vmstat=b"", io=b"", memory=b"some avg10=1\n"))
    (sample,) = collector.read()
    collector.close()

    assert sample == MemorySample(*[None] * 14)


@pytest.mark.parametrize("missing", ["meminfo", "vmstat"])
def test_absent_file_is_unavailable(tmp_path: Path, missing: str) -> None:
    """Without one of the two files the reason names it."""
    fs = tree(tmp_path)
    (tmp_path / missing).unlink()

    with pytest.raises(UnavailableError, match=missing):
        HostMemory(fs)


@given(st.binary())
def test_no_bytes_make_it_fail(data: bytes) -> None:
    """Whatever the files hold, a field is a number or None."""
    assert isinstance(number_after(data + b"key" + data, b"key", 1), int | None)
    assert isinstance(_stalled(b"some " + data, b"some "), int | None)


def test_live_values_are_the_kernels() -> None:
    """Total memory is what meminfo says, and the cumulative counters lie between two readings of vmstat."""

    def vmstat(key: str) -> int:
        found = re.search(rf"^{key} (\d+)$", Path("/proc/vmstat").read_text(), re.MULTILINE)
        assert found
        return int(found[1])

    low = [vmstat("nr_dirtied"), vmstat("nr_written"), vmstat("pgmajfault")]
    collector = HostMemory(KernelFs())
    (sample,) = [sample for sample in collector.read() if isinstance(sample, MemorySample)]
    collector.close()
    high = [vmstat("nr_dirtied"), vmstat("nr_written"), vmstat("pgmajfault")]

    assert sample.total_bytes == os.sysconf("SC_PHYS_PAGES") * PAGE
    seen = [(sample.dirtied_bytes or 0) // PAGE, (sample.written_bytes or 0) // PAGE, sample.major_faults or 0]
    assert all(a <= b <= c for a, b, c in zip(low, seen, high, strict=True)), (low, seen, high)
