"""The probe itself, run for moments on real file systems."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.kernel.filesystems import call
from tests.patience import PATIENCE_SECONDS

from ckptprof.diagnose.ceilings import FULL, READ, STOPPED, TIME, Ceilings, Measure
from ckptprof.errors import CkptprofError, PermissionDeniedError, UsageError
from ckptprof.service.probing import probe as probing
from ckptprof.service.probing import probe_plan
from ckptprof.service.probing.probe import ROWS, measured_row, probe
from ckptprof.service.probing.probe_plan import ProbePlan, busy_share, plan_probe, usable_bytes
from ckptprof_collectors.kernelfs import KernelFs

MIB = 1 << 20
SIZE = 32 * MIB


def planned(directory: Path, *, size: int = SIZE, seconds: float = 0.02) -> ProbePlan:
    """Return a plan of moments."""
    return plan_probe(directory, size_bytes=size, phase_seconds=seconds, fs=KernelFs())


def ran(what: ProbePlan, halt: threading.Event | None = None) -> tuple[Ceilings, dict[str, Measure]]:
    """Run a plan; return what came out, and its rows by their names."""
    found = probe(what, halt=halt or threading.Event(), on_row=lambda *_: None)
    return found, {one.id: one for one in found.measures}


def test_a_probe_measures_and_leaves_nothing(tmp_path: Path) -> None:
    """Every row has a rate or a reason; bytes over time is the rate; never more is written than was said."""
    what = planned(tmp_path)
    told: list[tuple[str, int, int]] = []
    found = probe(what, halt=threading.Event(), on_row=lambda row, number, total: told.append((row.id, number, total)))

    assert [one.id for one in found.measures] == [row.id for row in ROWS]
    assert [number for _, number, _ in told] == list(range(1, len(ROWS) + 1))
    assert found.complete
    assert found.path == str(tmp_path.resolve())
    assert tmp_path.is_relative_to(found.mount_point)
    for one in found.measures:
        assert (one.missing is None) == (one.bytes_per_second is not None), one
        if one.bytes_per_second is not None:
            assert one.bytes_per_second == pytest.approx(one.transferred_bytes * 1e9 / one.spent_ns)
    assert 0 < sum(one.transferred_bytes for one in found.measures if one.work != READ) <= SIZE
    assert list(tmp_path.iterdir()) == []


def test_what_comes_from_the_page_cache_is_no_ceiling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the kernel does not let go of the file's pages, cold reads have no figure, but a reason."""
    monkeypatch.setattr(os, "posix_fadvise", lambda *_: None)
    what = msgspec.structs.replace(planned(tmp_path, seconds=0.3), device="sda", fs_type="odd")
    _, rows = ran(what)

    assert rows["read-buffered"].missing == "the file could not be dropped from the page cache"
    assert rows["read-buffered"].bytes_per_second is None


def test_a_halted_probe_ends_without_rates(tmp_path: Path) -> None:
    """And is not complete."""
    halt = threading.Event()
    halt.set()
    found, rows = ran(planned(tmp_path), halt)

    assert not found.complete
    assert {one.ended for one in rows.values()} == {STOPPED}
    assert {one.bytes_per_second for one in rows.values()} == {None}
    assert list(tmp_path.iterdir()) == []


def test_halting_takes_one_operation(tmp_path: Path) -> None:
    """A long phase that is under way ends, and cleans up."""
    halt = threading.Event()
    timer = threading.Timer(0.3, halt.set)
    timer.start()
    found, _ = ran(planned(tmp_path, size=1 << 30, seconds=10 * PATIENCE_SECONDS), halt)
    timer.join()

    assert not found.complete
    assert list(tmp_path.iterdir()) == []


def test_a_limit_on_files_ends_in_an_honest_part(tmp_path: Path) -> None:
    """RLIMIT_FSIZE, which ends a write as a quota does: what went before it counts, and that it ended is said."""
    script = f"""
import resource, sys, threading, msgspec
from ckptprof.service.probing.probe_plan import plan_probe
from ckptprof.service.probing.probe import probe
from ckptprof_collectors.kernelfs import KernelFs
resource.setrlimit(resource.RLIMIT_FSIZE, ({3 * MIB + 512}, resource.RLIM_INFINITY))
what = plan_probe({str(tmp_path)!r}, size_bytes={64 * MIB}, phase_seconds=2.0, fs=KernelFs())
sys.stdout.buffer.write(msgspec.json.encode(probe(what, halt=threading.Event(), on_row=lambda *_: None)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, timeout=PATIENCE_SECONDS)
    found = msgspec.json.decode(done.stdout, type=Ceilings)
    rows = {one.id: one for one in found.measures}

    assert not found.complete
    assert rows["write-buffered"].ended == FULL
    assert rows["write-buffered"].transferred_bytes in (3 * MIB, 3 * MIB + 512)
    assert rows["write-buffered"].bytes_per_second is not None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.root
@pytest.mark.mount
def test_a_full_file_system_is_told(tmp_path: Path) -> None:
    """Though the plan thought there was room: the rows say so, or hold the part that was measured."""
    call("mount", "-t", "tmpfs", "-o", "size=6m", "none", tmp_path)
    try:
        what = planned_anyway(tmp_path, size=256 * MIB, seconds=2.0)
        what = msgspec.structs.replace(what, footprint_bytes=1 << 30)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("ckptprof.service.probing.probe.usable_bytes", lambda _: 1 << 30)  # others fill it meanwhile
            found, rows = ran(what)
        names = list(tmp_path.iterdir())
    finally:
        call("umount", "-l", tmp_path)

    assert not found.complete
    assert rows["write-buffered"].ended == FULL
    assert rows["write-direct-many"].missing == "tmpfs keeps files in memory: there is no disk"
    assert names == []


def planned_anyway(directory: Path, size: int, seconds: float) -> ProbePlan:
    """Return a plan for a file system that is too small for one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probe_plan, "_MIN_FOOTPRINT", 0)
        return planned(directory, size=size, seconds=seconds)


@pytest.mark.root
@pytest.mark.mount
def test_a_small_file_system_is_refused(tmp_path: Path) -> None:
    """Before anything is written, with the numbers."""
    call("mount", "-t", "tmpfs", "-o", "size=6m", "none", tmp_path)
    try:
        with pytest.raises(CkptprofError, match="too little free space") as refused:
            planned(tmp_path)
        names = list(tmp_path.iterdir())
    finally:
        call("umount", "-l", tmp_path)

    assert refused.value.hint is not None
    assert names == []


@pytest.mark.root
@pytest.mark.mount
def test_refused_direct_io_is_told(tmp_path: Path) -> None:
    """Of ramfs, were it not known for what it is: the rows that need it say so, the others are measured."""
    call("mount", "-t", "ramfs", "none", tmp_path)
    try:
        what = ProbePlan(
            path=str(tmp_path), directory=os.fsencode(tmp_path), mount_point=str(tmp_path), fs_type="odd",
            source="none", device=None, server=None, size_bytes=SIZE, footprint_bytes=SIZE,
                phase_seconds=0.02, busy=None,
        )  # fmt: skip
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("ckptprof.service.probing.probe.usable_bytes", lambda _: 1 << 30)  # ramfs says 0
            found, rows = ran(what)
    finally:
        call("umount", "-l", tmp_path)

    assert found.complete
    for name in ("write-direct-many", "read-direct-many"):
        assert rows[name].missing == "O_DIRECT is not supported here"
        assert rows[name].bytes_per_second is None
    assert rows["write-buffered"].missing is None


def test_the_room_is_a_tenth_and_leaves_a_reserve(tmp_path: Path) -> None:
    """By the file system's own numbers for this user."""
    state = os.statvfs(tmp_path)

    assert 0 <= usable_bytes(os.fsencode(tmp_path)) <= state.f_bavail * state.f_frsize // 10 * 1.01
    assert planned(tmp_path, size=1 << 50).footprint_bytes < 1 << 50


def test_where_nothing_can_be_probed(tmp_path: Path) -> None:
    """What is no directory, is not there, or may not be written, is refused with the reason."""
    (tmp_path / "file").touch()
    for name in ("file", "nowhere", "file/below"):
        with pytest.raises(UsageError, match="is not a directory"):
            planned(tmp_path / name)
    with pytest.raises((PermissionDeniedError, CkptprofError)):
        planned(Path("/proc"))


def test_hostile_names_are_survived(tmp_path: Path) -> None:
    """A directory whose name is no text, and moves the cursor."""
    place = os.path.join(os.fsencode(tmp_path), b"\xff\x1b[2J\n")  # noqa: PTH118 # bytes
    os.mkdir(place)  # noqa: PTH102
    found, _ = ran(planned(Path(os.fsdecode(place))))

    assert found.path.endswith("\\xff\x1b[2J\n")
    assert msgspec.json.encode(found)
    assert os.listdir(place) == []  # noqa: PTH208


def test_written_bytes_cannot_be_saved_on() -> None:
    """They do not compress, and no 4 KiB block comes twice, within a buffer or from one write to the next."""
    data = probing.UniqueData(64 << 10)
    blocks: set[bytes] = set()
    for _ in range(50):
        data.renew()
        blocks.update(bytes(data.view[at : at + 4096]) for at in range(0, 64 << 10, 4096))

    assert len(blocks) == 50 * 16
    assert len(zlib.compress(bytes(data.view))) > len(data.view) * 0.98


def limits(seconds: float = PATIENCE_SECONDS, most: int = 1 << 40) -> probing.RowLimits:
    """Return limits."""
    return probing.RowLimits(seconds, most, threading.Event())


@pytest.mark.parametrize(
    ("given", "step", "ended"),
    [
        (limits(most=10 * MIB), lambda _: MIB, probing.SIZE), (limits(seconds=0.02), lambda _: MIB, TIME),
        (limits(), lambda at: MIB * (at < 5), FULL),
    ],
)  # fmt: skip
def test_each_limit_ends_the_work(given: probing.RowLimits, step: Callable[[int], int], ended: str) -> None:
    """And is named."""
    tally = probing.repeat(step, itertools.count(), given)

    assert tally.ended == ended
    assert tally.transferred_bytes <= given.max_bytes


def test_an_error_that_is_no_full_disk_is_raised() -> None:
    """A rate that ends in EIO is none."""

    def step(at: int) -> int:
        if at == 3:
            raise OSError(5, "Input/output error")
        return MIB

    with pytest.raises(OSError, match="Input/output"):
        probing.repeat(step, itertools.count(), limits())


def test_workers_add_up() -> None:
    """From the first begin to the last end, with the worst ending."""

    def work(moved: int, ended: str) -> probing.RowResult:
        begin = time.perf_counter_ns()
        return probing.RowResult(begin, begin + 10, moved, ended)

    whole = probing.run_parallel([lambda: work(3, TIME), lambda: work(4, FULL), lambda: work(5, probing.SIZE)])

    assert (whole.transferred_bytes, whole.ended) == (12, FULL)
    assert whole.duration_ns >= 10


def test_nothing_done_is_no_rate() -> None:
    """But a reason."""
    assert measured_row(ROWS[0], (probing.RowResult(0, 5),)).missing == "no bytes were transferred"


def test_a_busy_device_is_seen(tmp_path: Path) -> None:
    """By what the kernel counts; a device that is not listed is not seen."""
    (tmp_path / "diskstats").write_text("8 0 sda 1 0 8 5 1 0 8 5 0 1000 10\n")
    fs = KernelFs(tmp_path, tmp_path, tmp_path)

    assert busy_share(fs, "sda", 0.01) == 0.0
    assert busy_share(fs, "sdb", 0.01) is None
    assert busy_share(KernelFs(tmp_path / "x", tmp_path, tmp_path), "sda", 0.01) is None
