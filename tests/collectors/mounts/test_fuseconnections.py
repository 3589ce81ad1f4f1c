"""Requests that wait at FUSE mounts, in a made-up tree and at a real mount."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.mounts.mountinfo import MAX_CONNECTIONS, FuseConnections, MountReader, is_fuse
from ckptprof_collectors.samples import FuseSample, MountInfo


def connection(root: Path, number: int, waiting: str) -> None:
    """Make one."""
    folder = root / "fs/fuse/connections" / str(number)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "waiting").write_text(waiting)


def test_what_waits_is_told_when_it_changes(tmp_path: Path) -> None:
    """A plain mount by its minor number, one of a block device by both."""
    connection(tmp_path, 52, "3\n")
    connection(tmp_path, 8 << 20 | 17, "0\n")
    connections = FuseConnections(KernelFs(sys=tmp_path))
    connections.set_devices([(0, 52), (8, 17), (0, 52)])

    assert sorted(connections.read(), key=lambda sample: sample.major) == [FuseSample(0, 52, 3), FuseSample(8, 17, 0)]
    assert connections.read() == []
    connection(tmp_path, 52, "4\n")
    assert connections.read() == [FuseSample(0, 52, 4)]
    connections.set_devices([(8, 17)])
    connection(tmp_path, 52, "5\n")
    assert connections.read() == []
    connections.close()


def test_without_a_control_file_system_it_is_not_known(tmp_path: Path) -> None:
    """Said once; once it is there and mounts change, it is."""
    connections = FuseConnections(KernelFs(sys=tmp_path))
    connections.set_devices([(0, 52)])
    assert (connections.read(), connections.read()) == ([FuseSample(0, 52, None)], [])

    connection(tmp_path, 52, "garbage")
    connections.set_devices([(0, 52)])
    assert connections.read() == []
    connection(tmp_path, 52, "0")
    assert connections.read() == [FuseSample(0, 52, 0)]
    connections.close()


def test_the_number_is_bounded(tmp_path: Path) -> None:
    """However many there are."""
    connections = FuseConnections(KernelFs(sys=tmp_path))
    connections.set_devices([(0, minor) for minor in range(2000)])

    assert len(connections.read()) == MAX_CONNECTIONS


def test_which_file_systems_have_one() -> None:
    """Not the control file system itself."""
    assert [is_fuse(name) for name in (b"fuse", b"fuse.s3fs", b"fuseblk", b"virtiofs")] == [True] * 4
    assert [is_fuse(name) for name in (b"fusectl", b"ext4", b"fusefs2")] == [False] * 3


@pytest.mark.root
@pytest.mark.fuse
@pytest.mark.programs("bindfs")
def test_a_real_mount_is_told_with_its_numbers(tmp_path: Path) -> None:
    """Known or not known, but told beside its mount, with the same device."""
    below, place = tmp_path / "below", tmp_path / "place"
    below.mkdir()
    place.mkdir()
    subprocess.run(["bindfs", below, place], check=True)
    try:
        collector = MountReader(KernelFs())
        samples = collector.read()
        collector.close()
    finally:
        subprocess.run(["umount", place], check=True)

    (mount,) = [s for s in samples if isinstance(s, MountInfo) and s.mount_point == str(place)]
    (fuse,) = [s for s in samples if isinstance(s, FuseSample) and (s.major, s.minor) == (mount.major, mount.minor)]
    assert fuse.waiting is None or fuse.waiting >= 0
