"""How much of a file is not yet on its device, on real file systems and on those that cannot tell."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.leftovers import own

from ckptprof_collectors.files.cachestat import count_unwritten_bytes
from ckptprof_collectors.files.file_facts import FactQuery, find_facts
from ckptprof_collectors.files.process_roots import OWN_PROCESS

MIB = 1 << 20


@pytest.fixture
def counted(tmp_path: Path) -> Path:
    """Return a file on a file system whose pages can be counted."""
    path = tmp_path / "a.pt"
    path.write_bytes(os.urandom(4 * MIB))
    fd = os.open(path, os.O_RDONLY)
    try:
        if count_unwritten_bytes(fd) is None:
            pytest.skip("the kernel or the file system of the temporary folder cannot count dirty pages")
    finally:
        os.close(fd)
    return path


def test_what_was_synced_is_written_and_what_was_not_is_not(counted: Path) -> None:
    """All of a file that was just written, none of it after fsync."""
    with counted.open("r+b") as stream:
        stream.write(bytes(4 * MIB))
        stream.flush()
        before = count_unwritten_bytes(stream.fileno())
        os.fsync(stream.fileno())
        after = count_unwritten_bytes(stream.fileno())

    assert before == 4 * MIB
    assert after == 0


def test_a_fact_tells_it_only_when_asked(counted: Path) -> None:
    """Beside the contents, or without them."""
    with counted.open("rb") as stream:
        os.fsync(stream.fileno())
    path = os.fsencode(counted)

    def ask(*, contents: bool, unwritten: bool) -> tuple[int | None, bool]:
        (fact,) = find_facts(
            FactQuery(1, 1, OWN_PROCESS, (path,), (), 0, read_contents=contents, count_unwritten=unwritten)
        )
        return fact.unwritten_bytes, fact.magic is not None

    assert ask(contents=True, unwritten=True) == (0, True)
    assert ask(contents=False, unwritten=True) == (0, False)
    assert ask(contents=True, unwritten=False) == (None, True)


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no tmpfs at /dev/shm")
def test_a_file_system_without_a_device_never_becomes_durable() -> None:
    """None, not 0: what lies in memory is lost with it."""
    path = Path("/dev/shm", own(f"cachestat-{os.getpid()}"))
    try:
        path.write_bytes(bytes(MIB))
        with path.open("rb") as stream:
            assert count_unwritten_bytes(stream.fileno()) is None
    finally:
        path.unlink()


def test_what_is_no_file_tells_nothing() -> None:
    """A pipe, and a descriptor that is closed."""
    ends = os.pipe()
    try:
        assert count_unwritten_bytes(ends[0]) is None
    finally:
        for end in ends:
            os.close(end)
    assert count_unwritten_bytes(ends[0]) is None
