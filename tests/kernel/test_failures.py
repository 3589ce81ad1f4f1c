"""Calls that fail: counted to the last one, with the error that their program was given."""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.kernel.test_portable_programs import portable_tracer
from tests.kernel.tracer import Tracer
from tests.silentfuse import silent

from ckptprof_collectors.samples import FileActivity

__all__ = ["portable_tracer"]  # a fixture
pytestmark = [pytest.mark.root, pytest.mark.bpf, pytest.mark.slow]

PROGRAM = """
import json, os, resource, sys
name, call, limit, more = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
fd = os.open(name, os.O_CREAT | os.O_RDWR, 0o644)
block = bytes(100_000)
source = os.memfd_create("source")
os.write(source, block)
calls = {
    "write": lambda at: os.write(fd, block),
    "writev": lambda at: os.writev(fd, [block[:100], block[100:]]),
    "pwrite": lambda at: os.pwrite(fd, block, at),
    "sendfile": lambda at: os.sendfile(fd, source, 0, len(block)),
}
at = failed = errors = 0
while failed < 3:
    try:
        at += calls[call](at)
    except OSError as error:
        failed, errors = failed + 1, error.errno
if more:
    os.ftruncate(fd, 0)
    at += os.pwrite(fd, block, 0)
os.close(fd)
print(json.dumps([at, failed, errors]))
"""


def run(tracer: Tracer, path: Path, call: str, *more: str, limit: int = 0) -> tuple[FileActivity, list[int]]:
    """Run the program; return its session as it was seen, and the truth: bytes, failed calls, the last error."""
    seen = tracer.run([sys.executable, "-I", "-S", "-c", PROGRAM, path, call, str(limit), *more])
    (session,) = seen.of(path, writes=True)
    return session, json.loads(seen.output)


@pytest.mark.parametrize("kind", ["full-tmpfs", "full-ext4"])
@pytest.mark.parametrize("call", ["write", "writev", "pwrite", "sendfile"])
def test_a_full_file_system_is_told(on: Callable[[str], Path], tracer: Tracer, kind: str, call: str) -> None:
    """After the last byte that went in, as often as it was tried."""
    session, truth = run(tracer, on(kind) / "model.bin", call)

    assert truth[1:] == [3, errno.ENOSPC]
    assert [session.bytes, session.failed_operations, session.error] == truth
    assert session.last_ns < (session.failed_ns or 0) < (session.closed_ns or 0)


def test_older_kernels_are_told_the_same(on: Callable[[str], Path], portable_tracer: Tracer) -> None:
    """By the programs that read with helpers."""
    session, truth = run(portable_tracer, on("full-ext4") / "model.bin", "pwrite")

    assert [session.bytes, session.failed_operations, session.error] == truth


def test_a_quota_is_told_as_such(on: Callable[[str], Path], tracer: Tracer) -> None:
    """Its file system has room for others."""
    session, truth = run(tracer, on("quota-btrfs") / "model.bin", "write")

    assert truth[1:] == [3, errno.EDQUOT]
    assert [session.bytes, session.failed_operations, session.error] == truth


def test_a_limit_on_the_size_of_files_is_told(on: Callable[[str], Path], tracer: Tracer) -> None:
    """setrlimit(2), of which `ulimit -f` is one."""
    session, truth = run(tracer, on("ext4") / "model.bin", "write", limit=250_000)

    assert truth == [250_000, 3, errno.EFBIG]
    assert [session.bytes, session.failed_operations, session.error] == truth


def test_what_is_written_after_a_failure_is_later_than_it(on: Callable[[str], Path], tracer: Tracer) -> None:
    """By which it is told that its writer got over it."""
    session, truth = run(tracer, on("full-tmpfs") / "model.bin", "pwrite", "again")

    assert [session.bytes, session.failed_operations, session.error] == truth
    assert 0 < (session.failed_ns or 0) < session.last_ns


STORED = """
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY)
os.write(fd, bytes(1 << 20))
for call in (os.fsync, os.fdatasync, os.close):
    try:
        call(fd)
    except OSError as error:
        print(error.errno)
"""


def test_what_could_not_be_stored_is_told_by_its_sync_and_its_close(tmp_path: Path, tracer: Tracer) -> None:
    """All was written, and none of it may have arrived: of a server that refuses it the last word is in close(2)."""
    with silent(tmp_path / "place", user=0, unanswered="refused") as mount:
        path = mount.place / "x"
        seen = tracer.run([sys.executable, "-I", "-S", "-c", STORED, path])

    assert seen.output.split() == [b"5"] * 3
    assert [(one.kind, one.error) for one in seen.events(path)] == [
        ("synced", errno.EIO),
        ("synced", errno.EIO),
        ("closed-written", errno.EIO),
    ]
    (session,) = seen.of(path, writes=True)
    assert (session.bytes, session.failed_operations, session.error) == (1 << 20, 0, None)
