"""Paths are found for sessions that never said their name, and forgotten in bounds."""

from __future__ import annotations

import pytest

from ckptprof_collectors.ebpf import paths as tracepaths
from ckptprof_collectors.ebpf.layouts import Key
from ckptprof_collectors.ebpf.paths import PathBook


def key(inode: int = 1, *, tid: int = 2, generation: int = 3) -> bytes:
    """Return the key of a session."""
    return bytes(Key(inode=inode, device=9, generation=generation, tid=tid, tail=1))


def test_another_thread_finds_the_path_of_the_same_file() -> None:
    """A descriptor may be inherited; an inode that is used again is another file."""
    book = PathBook()
    book.know(key(), "/a")
    book.know(key(7), None)

    assert book.of(key(tid=8)) == "/a"
    assert book.of(key(generation=4)) is None
    assert book.of(key(7)) is None


def test_a_session_has_its_own_path_first() -> None:
    """Two names of one file: each thread keeps the one that it used, until its session ends."""
    book = PathBook()
    book.know(key(tid=1), "/one")
    book.know(key(tid=2), "/two")

    assert book.of(key(tid=1)) == "/one"
    book.end(key(tid=1))
    assert book.of(key(tid=1)) == "/two"


def test_only_so_much_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest goes first."""
    monkeypatch.setattr(tracepaths, "_KNOWN", 2)
    monkeypatch.setattr(tracepaths, "_PROCESSES", 1)
    book = PathBook()
    for inode in range(3):
        book.know(key(inode), f"/{inode}")
        book.recall(inode, f"/{inode}")
    for _ in range(100):
        book.recall(2, "/again")
    book.recall(2, None)

    assert [book.of(key(inode)) for inode in range(3)] == [None, "/1", "/2"]
    assert (list(book.lately(1)), len(book.lately(2)), book.lately(9)) == ([], 32, ())


def test_the_path_of_what_is_being_closed_is_known_until_it_is() -> None:
    """Once, and in bounded number."""
    book = PathBook()
    for number in range(10_000):
        book.end(number.to_bytes(24, "little"), f"/ckpt/{number}")

    assert book.closed((9_999).to_bytes(24, "little")) == "/ckpt/9999"
    assert book.closed((9_999).to_bytes(24, "little")) is None
    assert book.closed((0).to_bytes(24, "little")) is None
