"""Paths are found for sessions that never said their name, and forgotten in bounds."""

from __future__ import annotations

import pytest

from ckptprof_collectors.ebpf import session_paths as tracepaths
from ckptprof_collectors.ebpf.layouts import SessionKey
from ckptprof_collectors.ebpf.session_paths import SessionPaths


def key(inode: int = 1, *, tid: int = 2, generation: int = 3) -> bytes:
    """Return the key of a session."""
    return bytes(SessionKey(inode=inode, device=9, generation=generation, tid=tid, tail=1))


def test_another_thread_finds_the_path_of_the_same_file() -> None:
    """A descriptor may be inherited; an inode that is used again is another file."""
    paths = SessionPaths()
    paths.record(key(), "/a")
    paths.record(key(7), None)

    assert paths.find(key(tid=8)) == "/a"
    assert paths.find(key(generation=4)) is None
    assert paths.find(key(7)) is None


def test_a_session_has_its_own_path_first() -> None:
    """Two names of one file: each thread keeps the one that it used, until its session ends."""
    paths = SessionPaths()
    paths.record(key(tid=1), "/one")
    paths.record(key(tid=2), "/two")

    assert paths.find(key(tid=1)) == "/one"
    paths.forget(key(tid=1))
    assert paths.find(key(tid=1)) == "/two"


def test_only_so_much_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest goes first."""
    monkeypatch.setattr(tracepaths, "_MAX_SESSIONS", 2)
    monkeypatch.setattr(tracepaths, "_MAX_RECENT", 1)
    paths = SessionPaths()
    for inode in range(3):
        paths.record(key(inode), f"/{inode}")
        paths.record_use(inode, f"/{inode}")
    for _ in range(100):
        paths.record_use(2, "/again")
    paths.record_use(2, None)

    assert [paths.find(key(inode)) for inode in range(3)] == [None, "/1", "/2"]
    assert (list(paths.recent(1)), len(paths.recent(2)), paths.recent(9)) == ([], 32, ())


def test_the_path_of_what_is_being_closed_is_known_until_it_is() -> None:
    """Once, and those of the last 256: a close follows at once, unless there are too many to be reported."""
    paths = SessionPaths()
    for number in range(10_000):
        paths.forget(key(number), f"/ckpt/{number}")

    assert paths.pop_closed(key(9_999)) == "/ckpt/9999"
    assert paths.pop_closed(key(9_999)) is None
    assert [number for number in range(9_999) if paths.pop_closed(key(number))] == list(range(9_744, 9_999))


def test_what_was_closed_takes_no_memory() -> None:
    """Its own path goes with it, and no event follows the close of what was only read."""
    paths = SessionPaths()
    paths.record(key(), "/a")
    paths.forget(bytes(SessionKey(inode=1, device=9, generation=3, tid=2)), "/a")

    assert (paths.pop_closed(key()), paths.find(key(tid=9))) == ("/a", "/a")
    assert (paths._sessions, paths._ended) == ({}, {})
