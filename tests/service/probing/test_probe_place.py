"""The directory that a probe works in: gone in the end, and nobody else's is ever touched."""

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

from ckptprof.service.probing.place import PREFIX, Place, remove_stale, working

HOLD = """
import sys
from ckptprof.service.probing.place import Place
place = Place(sys.argv[1])
place._nameless = False
fd = place.open(direct=False)
open(f"{sys.argv[1]}/{place.name}/data", "wb").write(b"x")
print(place.name, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Give a process that has a place in this test's directory, and the place's name."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    yield process, process.stdout.readline().decode().strip()
    process.kill()
    process.communicate()


def left(directory: Path) -> list[str]:
    """Return what is in a directory."""
    return sorted(path.name for path in directory.iterdir())


def removed_from(directory: Path) -> list[str]:
    """Return what was stale and is removed."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        return remove_stale(fd)
    finally:
        os.close(fd)


@pytest.mark.parametrize("nameless", [True, False])
def test_nothing_is_left(nameless: bool, tmp_path: Path) -> None:  # noqa: FBT001 # a parameter
    """With and without names for the files, which only their owner could read."""
    with working(str(tmp_path)) as place:
        place._nameless = nameless  # as on a file system without O_TMPFILE
        fd = place.open(direct=False)
        os.write(fd, b"x" * 5000)
        inside = left(tmp_path)
        mode = (tmp_path / place.name).stat().st_mode & 0o777
        modes = os.fstat(fd).st_mode & 0o777
        names = left(tmp_path / place.name)

    assert inside == [place.name]
    assert place.name.startswith(PREFIX)
    assert (mode, modes) == (0o700, 0o600)
    assert names == (["lock"] if nameless else ["data-1", "lock"])
    assert left(tmp_path) == []


def test_an_exception_leaves_nothing(tmp_path: Path) -> None:
    """Whatever happens while it is there."""

    def fail() -> None:
        with working(str(tmp_path)) as place:
            os.close(os.open("name-1", os.O_CREAT | os.O_WRONLY, dir_fd=place.fd))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert left(tmp_path) == []


def test_descriptors_are_given_back(tmp_path: Path) -> None:
    """All of them, so that a process may probe often."""
    before = held()
    place = Place(str(tmp_path))
    place.open(direct=False)
    place.close()
    place.close()

    assert held() <= before


def test_a_killed_probe_is_tidied_up_by_the_next(holder: tuple[subprocess.Popen[bytes], str], tmp_path: Path) -> None:
    """But not while it lives: its lock tells."""
    process, name = holder
    with working(str(tmp_path)):
        assert (tmp_path / name / "data").exists()
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (tmp_path / name).exists()
    with working(str(tmp_path)) as place:
        during = left(tmp_path)

    assert during == [place.name]
    assert left(tmp_path) == []


def test_one_killed_before_it_had_a_lock_is_removed(tmp_path: Path) -> None:
    """It is empty."""
    (tmp_path / f"{PREFIX}0").mkdir(mode=0o700)

    assert removed_from(tmp_path) == [f"{PREFIX}0"]


def test_what_only_looks_like_ours_stays(tmp_path: Path) -> None:
    """Another mode, a symlink, a file, one with directories in it, one of another host, one without a lock."""
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o700)
    (outside / "lock").touch()
    there = tmp_path / "there"
    there.mkdir()
    (there / f"{PREFIX}link").symlink_to(outside)
    (there / f"{PREFIX}file").touch()
    for name in ("readable", "nested", "elsewhere", "unlocked"):
        (there / f"{PREFIX}{name}").mkdir(mode=0o700)
        (there / f"{PREFIX}{name}" / "data").touch()
    for name in ("readable", "nested", "elsewhere"):
        (there / f"{PREFIX}{name}" / "lock").touch()
    (there / f"{PREFIX}readable").chmod(0o755)
    (there / f"{PREFIX}nested" / "data").unlink()
    (there / f"{PREFIX}nested" / "a").mkdir()
    (there / f"{PREFIX}nested" / "a" / "precious").touch()
    (there / f"{PREFIX}elsewhere" / "lock").write_text("another.host")
    before = left(there)

    assert removed_from(there) == []
    assert left(there) == before
    assert (outside / "lock").exists()
    assert (there / f"{PREFIX}nested" / "a" / "precious").exists()


@pytest.mark.root
def test_what_another_user_left_stays(tmp_path: Path) -> None:
    """Even for root: who it is of may want to know why it is there."""
    theirs = tmp_path / f"{PREFIX}1"
    theirs.mkdir(mode=0o700)
    os.chown(theirs, 65534, 65534)

    assert removed_from(tmp_path) == []


@pytest.mark.root
@pytest.mark.mount
def test_a_file_system_without_direct_io_says_so(tmp_path: Path) -> None:
    """And keeps no name of the file that was refused."""
    call("mount", "-t", "ramfs", "none", tmp_path)
    try:
        with working(str(tmp_path)) as place:
            with pytest.raises(OSError, match="Invalid argument") as refused:
                place.open(direct=True)
            names = left(tmp_path / place.name)
            os.write(place.open(direct=False), b"x")
    finally:
        call("umount", "-l", tmp_path)

    assert refused.value.errno == errno.EINVAL
    assert names == ["lock"]


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
            with working(str(place)) as made:
                for number in range(4):
                    os.write(made.open(direct=False), b"x" * 10_000)
                    os.close(os.open(f"name-{number}", os.O_CREAT | os.O_WRONLY, dir_fd=made.fd))
        names = left(below)
    finally:
        call("umount", "-l", place)

    assert names == []
