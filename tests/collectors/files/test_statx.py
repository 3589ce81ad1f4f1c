"""statx against os.stat."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ckptprof_collectors.files.statx import AT_SYMLINK_NOFOLLOW, FileStatus, _from_stat, statx


def as_stat(status: FileStatus) -> tuple[int, int, int, int, int, int, int]:
    """Return what os.stat knows, too."""
    return (
        status.mode, status.device, status.inode, status.size, status.modified_ns, status.changed_ns,
        status.accessed_ns,
    )  # fmt: skip


def expected(path: Path, *, follow: bool = True) -> tuple[int, int, int, int, int, int, int]:
    """Return the same of os.stat."""
    found = path.stat(follow_symlinks=follow)
    return (
        found.st_mode, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns,
        found.st_atime_ns,
    )  # fmt: skip


@pytest.mark.parametrize("path", ["/", "/dev/null", "/proc/self/stat", "/etc/passwd", "/tmp"])
def test_it_says_what_stat_says(path: str) -> None:
    """On whatever file system; times that change as we look are left out."""
    assert as_stat(statx(path.encode()))[:3] == expected(Path(path))[:3]


def test_every_field_of_a_file(tmp_path: Path) -> None:
    """Times before the epoch and sizes beyond 4 GiB included; birth lies between two looks at the clock."""
    path = tmp_path / "a"
    before_ns = time.time_ns() - 50_000_000
    path.touch()
    os.truncate(path, 5 << 30)
    os.utime(path, ns=(1_234_567_890, -1_500_000_000))
    status = statx(os.fsencode(path))

    assert as_stat(status) == expected(path)
    assert status.birth_ns is None or before_ns <= status.birth_ns <= time.time_ns()


def test_links_are_followed_or_not_as_asked(tmp_path: Path) -> None:
    """AT_SYMLINK_NOFOLLOW."""
    (tmp_path / "target").write_bytes(bytes(10))
    (tmp_path / "link").symlink_to("target")
    link = os.fsencode(tmp_path / "link")

    assert as_stat(statx(link)) == expected(tmp_path / "target")
    assert as_stat(statx(link, flags=AT_SYMLINK_NOFOLLOW))[:4] == expected(tmp_path / "link", follow=False)[:4]


def test_a_path_may_be_relative_to_an_open_folder(tmp_path: Path) -> None:
    """As the entries of /proc/PID/fd are looked at."""
    (tmp_path / "a").write_bytes(bytes(10))
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        assert statx(b"a", dir_fd=fd).size == 10
        assert _from_stat(b"a", fd, 0).size == 10
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    ("path", "error"),
    [(b"/nowhere", FileNotFoundError), (b"/etc/passwd/x", NotADirectoryError), (b"/" + b"a" * 300, OSError)],
)
def test_errors_are_those_of_the_system(path: bytes, error: type[OSError]) -> None:
    """With their number, as os raises them."""
    with pytest.raises(error) as raised:
        statx(path)
    assert raised.value.errno


def test_without_statx_only_the_birth_is_missing(tmp_path: Path) -> None:
    """An older libc tells the rest."""
    path = tmp_path / "a"
    path.write_bytes(bytes(10))
    status = _from_stat(os.fsencode(path), -100, 0)

    assert status.birth_ns is None
    assert as_stat(status) == as_stat(statx(os.fsencode(path)))
