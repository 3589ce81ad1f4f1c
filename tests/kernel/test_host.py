"""What the trace sees beside single calls: paths in containers, writers that are held back, requests of devices."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.kernel.filesystems import call
from tests.kernel.tracer import Tracer

from ckptprof_collectors.samples import OperationKind

pytestmark = [pytest.mark.root, pytest.mark.bpf, pytest.mark.slow]

MIB = 1 << 20
_FLUSHES = 15  # of the fields after a device's name (Documentation/admin-guide/iostats.rst)


@pytest.fixture
def slow_disk(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """Give an ext4 on a loop device of its own of which little may be dirty: (folder, kernel name of the device)."""
    image, place = tmp_path / "disk.img", tmp_path / "disk"
    with image.open("wb") as stream:
        stream.truncate(512 * MIB)
    place.mkdir()
    call("mkfs.ext4", "-q", "-O", "^has_journal", image)
    call("mount", "-o", "loop", image, place)
    try:
        device = place.stat().st_dev
        yield place, Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").readlink().name
    finally:
        call("umount", place)


def test_a_path_in_a_container_is_as_its_process_sees_it(tracer: Tracer, tmp_path: Path) -> None:
    """Mounts are crossed and the walk ends at the root of the process; renames are told in the same view."""
    script = f"""
        set -e
        mkdir -p {tmp_path}/volume {tmp_path}/root/ckpt
        mount -t tmpfs none {tmp_path}/volume
        mount --bind {tmp_path}/volume {tmp_path}/root/ckpt
        for name in usr lib lib64 bin dev; do
            [ -e /$name ] || continue
            mkdir -p {tmp_path}/root/$name; mount --bind /$name {tmp_path}/root/$name
        done
        exec chroot {tmp_path}/root /bin/sh -c '
            dd if=/dev/zero of=/ckpt/a.tmp bs=1M count=3 2>/dev/null; mv /ckpt/a.tmp /ckpt/a.pt'
    """
    seen = tracer.run(["unshare", "-m", "--propagation", "private", "sh", "-c", script])

    (session,) = seen.of(Path("/ckpt/a.tmp"), writes=True)
    assert (session.operations, session.bytes, session.comm) == (3, 3 * MIB, "dd")
    renames = [(event.path, event.new_path) for event in seen.lives if event.kind == "renamed"]
    assert renames == [("/ckpt/a.tmp", "/ckpt/a.pt")]


def test_two_mounts_of_one_folder_are_one_file(tracer: Tracer, tmp_path: Path) -> None:
    """The device and inode are those of stat, by whatever path it was reached."""
    (tmp_path / "real").mkdir()
    (tmp_path / "other").mkdir()
    script = f"""
        mount --bind {tmp_path}/real {tmp_path}/other
        dd if=/dev/zero of={tmp_path}/other/x bs=4k count=2 2>/dev/null
    """
    seen = tracer.run(["unshare", "-m", "--propagation", "private", "sh", "-c", script])

    (session,) = seen.of(tmp_path / "other/x", writes=True)
    facts = (tmp_path / "real/x").stat()
    assert (session.device, session.inode, session.size) == (facts.st_dev, facts.st_ino, 8192)


def test_a_writer_that_is_held_back_is_told_of(tracer: Tracer, slow_disk: tuple[Path, str]) -> None:
    """Where only little may be dirty, balance_dirty_pages makes the writer wait, and its pauses are within its time."""
    place, _ = slow_disk
    device = place.stat().st_dev
    limits = Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}")
    if not (limits / "max_bytes").exists():
        pytest.skip("this kernel limits no single device in bytes (since 6.2)")
    (limits / "strict_limit").write_text("1")
    (limits / "max_bytes").write_text(str(8 * MIB))
    try:
        seen = tracer.run(["dd", "if=/dev/zero", f"of={place}/x", "bs=1M", "count=256"])
    finally:  # the loop device keeps them for its next user
        (limits / "max_ratio").write_text("100")
        (limits / "strict_limit").write_text("0")

    (session,) = seen.of(place / "x", writes=True)
    pauses = [pause for (pid, _), pause in seen.pauses.items() if pid == session.pid]
    assert session.call_ns is not None
    assert [pause.pauses > 0 for pause in pauses] == [True]
    assert 0 < pauses[0].paused_ns <= session.call_ns + 10_000_000


def test_requests_are_those_of_the_device(tracer: Tracer, slow_disk: tuple[Path, str]) -> None:
    """Requests and bytes equal those of /proc/diskstats; sizes and latencies speak for each of them."""
    place, name = slow_disk
    with tracer.watch() as earlier:  # of other file systems on the same device, and this one's making
        subprocess.run(
            ["dd", "if=/dev/zero", f"of={place}/y", "count=1", "conv=fsync"], check=True, capture_output=True
        )
        subprocess.run(["dd", f"if={place}/y", "of=/dev/null", "iflag=direct"], check=True, capture_output=True)
        os.sync()
    before = _diskstats(name)
    with tracer.watch() as seen:
        for job in (
            ["dd", "if=/dev/zero", f"of={place}/x", "bs=1M", "count=64", "conv=fsync"],
            ["dd", f"if={place}/x", "of=/dev/null", "bs=64k", "iflag=direct"],
        ):
            subprocess.run(job, check=True, capture_output=True)
        os.sync()
    after = _diskstats(name)

    for writes, (requests, sectors) in {False: (0, 2), True: (4, 6)}.items():
        first, last = earlier.blocks[name, writes], seen.blocks[name, writes]
        assert last.bytes - first.bytes == (after[sectors] - before[sectors]) * 512
        flushes = after[_FLUSHES] - before[_FLUSHES] if writes else 0  # of no data: diskstats takes some for writes
        assert 0 <= after[requests] - before[requests] - (last.requests - first.requests) <= flushes
        assert sum(count for _, count in last.sizes) >= last.requests
        assert sum(count for _, count in last.latencies) == last.requests
        assert last.in_flight == 0
        if not writes:
            assert last.sequential_bytes - first.sequential_bytes > 0.9 * (last.bytes - first.bytes)


def _diskstats(name: str) -> list[int]:
    for line in Path("/proc/diskstats").read_text().splitlines():
        fields = line.split()
        if fields[2] == name:
            return [int(field) for field in fields[3:]]
    raise AssertionError(name)


def test_a_mapping_is_written_and_read(tracer: Tracer, on: Callable[[str], Path]) -> None:
    """Pages that are written through a mapping are counted about once each, and no write is counted beside them.

    A folio of several pages gets dirty as one.
    """
    folder = on("ext4")
    tracer.listen_to_mappings(folder)
    code = f"""
import mmap
with open({str(folder / "m.bin")!r}, "wb+") as stream:
    stream.truncate(8 << 20)
    mapped = mmap.mmap(stream.fileno(), 8 << 20)
    for at in range(0, 8 << 20, 4096):
        mapped[at] = 1
    mapped.flush()
    mapped.close()
"""
    seen = tracer.run(["python3", "-c", code])

    (session,) = seen.of(folder / "m.bin", writes=True)
    assert session.faulted_bytes == pytest.approx(8 * MIB, rel=0.1)
    assert session.faulted_bytes == session.bytes
    assert session.direct_bytes == 0


def test_what_is_written_as_soon_as_it_is_mapped_is_told_by_its_faults(
    tracer: Tracer, on: Callable[[str], Path]
) -> None:
    """At least one page of each folio, and no page twice, until its getting dirty is listened to."""
    path = on("ext4") / "m.bin"
    code = f"""
import mmap
with open({str(path)!r}, "wb+") as stream:
    stream.truncate(8 << 20)
    mapped = mmap.mmap(stream.fileno(), 8 << 20)
    for at in range(0, 8 << 20, 4096):
        mapped[at] = 1
"""
    seen = tracer.run(["python3", "-c", code])

    (session,) = seen.of(path, writes=True)
    assert 0 < session.faulted_bytes <= 8.8 * MIB
    assert session.high_offset >= 7 * MIB


def test_a_mapping_that_outlives_its_descriptors_counts_every_page_once(
    tracer: Tracer, on: Callable[[str], Path]
) -> None:
    """Each closing ends a session, and the last of them tells what came in without an event, beside all before it."""
    path = on("ext4") / "warm.bin"
    with path.open("wb", buffering=0) as stream:
        for _ in range(3):
            for piece, count in ((64 << 10, 128), (4 * MIB, 6)):  # in small folios, then in those of 2 MiB
                for _ in range(count):
                    stream.write(bytes(piece))
    code = f"""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
first, second = (os.open({str(path)!r}, os.O_RDONLY) for _ in range(2))
mapped = libc.mmap(None, ctypes.c_size_t(96 << 20), 1, 1, first, ctypes.c_long(0))
for third, fd in enumerate((first, second, None)):
    for at in range(third << 25, third + 1 << 25, 4096):
        ctypes.string_at(mapped + at, 1)
    if fd is not None:
        os.close(fd)
assert not libc.munmap(ctypes.c_void_p(mapped), ctypes.c_size_t(96 << 20))
"""
    seen = tracer.run(["python3", "-c", code])

    sessions = [one for one in seen.of(path, writes=False) if one.faulted_bytes]
    assert sum(one.faulted_bytes for one in sessions) == pytest.approx(96 * MIB, rel=0.02)
    assert len(sessions) >= 3
    assert any(one.kinds & OperationKind.UNMAPPED for one in sessions)
    assert all(one.closed_ns is not None for one in sessions)
