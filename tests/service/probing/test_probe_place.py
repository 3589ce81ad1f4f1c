"""The files that a probe writes: gone in the end, and those of others are never touched."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.descriptors import held
from tests.kernel.filesystems import call

from ckptprof.service.probing.probe_plan import PREFIX, ProbeFiles, probe_files, remove_stale

OURS = f"{PREFIX}{os.uname().nodename}-"
HOLD = """
import os, sys
from ckptprof.service.probing.probe_plan import ProbeFiles
place = ProbeFiles(sys.argv[1])
place._supports_tmpfile = False
os.write(place.open(direct=False), b"x")
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Give a process that writes a file with a name in this test's directory."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def left(directory: Path) -> list[str]:
    """Return what is in a directory."""
    return sorted(path.name for path in directory.iterdir())


def tidied(directory: Path) -> list[str]:
    """Return what is left after what is stale was removed."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        remove_stale(fd)
    finally:
        os.close(fd)
    return left(directory)


@pytest.mark.parametrize("nameless", [True, False])
def test_nothing_is_left(nameless: bool, tmp_path: Path) -> None:  # noqa: FBT001 # a parameter
    """With and without names for the files, which only their owner could read."""
    with probe_files(str(tmp_path)) as place:
        place._supports_tmpfile = nameless  # as on a file system without O_TMPFILE
        fd = place.open(direct=False)
        os.write(fd, b"x" * 5000)
        inside = left(tmp_path)
        mode = os.fstat(fd).st_mode & 0o777

    assert [name.startswith(OURS) for name in inside] == ([] if nameless else [True])
    assert mode == 0o600
    assert left(tmp_path) == []


def test_an_exception_leaves_nothing(tmp_path: Path) -> None:
    """Whatever happens while it is there."""

    def fail() -> None:
        with probe_files(str(tmp_path)) as place:
            place._supports_tmpfile = False
            place.open(direct=False)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert left(tmp_path) == []


def test_descriptors_are_given_back(tmp_path: Path) -> None:
    """All of them, so that a process may probe often."""
    before = held()
    place = ProbeFiles(str(tmp_path))
    place.open(direct=False)
    place.close()
    place.close()

    assert held() <= before


def test_a_killed_probe_is_tidied_up_by_the_next(holder: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """But not while it lives: its lock tells."""
    (name,) = tidied(tmp_path)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    after = left(tmp_path)

    assert name.startswith(OURS)
    assert after == [name]
    assert tidied(tmp_path) == []


def test_what_only_looks_like_ours_stays(tmp_path: Path) -> None:
    """A symlink, a folder, a pipe, a file of another host."""
    outside = tmp_path / "outside"
    outside.touch()
    there = tmp_path / "there"
    there.mkdir()
    (there / f"{OURS}link").symlink_to(outside)
    (there / f"{OURS}folder").mkdir()
    os.mkfifo(there / f"{OURS}pipe")
    (there / f"{PREFIX}another.host-1").touch()
    before = left(there)

    assert tidied(there) == before
    assert outside.exists()


@pytest.mark.root
def test_what_another_user_left_stays(tmp_path: Path) -> None:
    """Even for root: who it is of may want to know why it is there."""
    theirs = tmp_path / f"{OURS}1"
    theirs.touch()
    os.chown(theirs, 65534, 65534)

    assert tidied(tmp_path) == [theirs.name]


@pytest.mark.root
@pytest.mark.mount
def test_a_file_system_without_direct_io_says_so(tmp_path: Path) -> None:
    """And keeps no name of the file that was refused."""
    call("mount", "-t", "ramfs", "none", tmp_path)
    try:
        with probe_files(str(tmp_path)) as place:
            with pytest.raises(OSError, match="Invalid argument") as refused:
                place.open(direct=True)
            names = left(tmp_path)
            os.write(place.open(direct=False), b"x")
    finally:
        call("umount", "-l", tmp_path)

    assert refused.value.errno == errno.EINVAL
    assert names == []


@pytest.mark.root
@pytest.mark.fuse
@pytest.mark.programs("bindfs")
def test_fuse_keeps_nothing_either(tmp_path: Path) -> None:
    """It has no files without a name, gives another name to what is removed while it is open, and closes late."""
    below, place = tmp_path / "below", tmp_path / "place"
    below.mkdir()
    place.mkdir()
    call("bindfs", below, place)
    try:
        for _ in range(5):
            with probe_files(str(place)) as made:
                for _ in range(4):
                    os.write(made.open(direct=False), b"x" * 10_000)
        names = left(below)
    finally:
        call("umount", "-l", place)

    assert names == []
