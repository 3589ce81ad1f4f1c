"""Paths are found for sessions that never said their name, and forgotten in bounds."""

from __future__ import annotations

import pytest

from ckptprof_collectors.ebpf import paths as tracepaths
from ckptprof_collectors.ebpf.layouts import Key
from ckptprof_collectors.ebpf.paths import SessionPaths


def key(inode: int = 1, *, tid: int = 2, generation: int = 3) -> bytes:
    """Return the key of a session."""
    return bytes(Key(inode=inode, device=9, generation=generation, tid=tid, tail=1))


def test_another_thread_finds_the_path_of_the_same_file() -> None:
    """A descriptor may be inherited; an inode that is used again is another file."""
    paths = SessionPaths()
    paths.know(key(), "/a")
    paths.know(key(7), None)

    assert paths.of(key(tid=8)) == "/a"
    assert paths.of(key(generation=4)) is None
    assert paths.of(key(7)) is None


def test_a_session_has_its_own_path_first() -> None:
    """Two names of one file: each thread keeps the one that it used, until its session ends."""
    paths = SessionPaths()
    paths.know(key(tid=1), "/one")
    paths.know(key(tid=2), "/two")

    assert paths.of(key(tid=1)) == "/one"
    paths.end(key(tid=1))
    assert paths.of(key(tid=1)) == "/two"


def test_only_so_much_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest goes first."""
    monkeypatch.setattr(tracepaths, "_KNOWN", 2)
    monkeypatch.setattr(tracepaths, "_PROCESSES", 1)
    paths = SessionPaths()
    for inode in range(3):
        paths.know(key(inode), f"/{inode}")
        paths.recall(inode, f"/{inode}")
    for _ in range(100):
        paths.recall(2, "/again")
    paths.recall(2, None)

    assert [paths.of(key(inode)) for inode in range(3)] == [None, "/1", "/2"]
    assert (list(paths.lately(1)), len(paths.lately(2)), paths.lately(9)) == ([], 32, ())


def test_the_path_of_what_is_being_closed_is_known_until_it_is() -> None:
    """Once, and in bounded number."""
    paths = SessionPaths()
    for number in range(10_000):
        paths.end(number.to_bytes(24, "little"), f"/ckpt/{number}")

    assert paths.closed((9_999).to_bytes(24, "little")) == "/ckpt/9999"
    assert paths.closed((9_999).to_bytes(24, "little")) is None
    assert paths.closed((0).to_bytes(24, "little")) is None
