"""The time in close, and in syncs that are not of one file: told at their end, by whoever called them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.kernel.tracer import Tracer
from tests.patience import wait_until

pytestmark = [pytest.mark.root, pytest.mark.bpf, pytest.mark.slow]

PROGRAM = """
import os, signal, sys, threading, time
name = sys.argv[1]
fd = os.open(name, os.O_CREAT | os.O_WRONLY, 0o644)
def write():
    os.write(fd, bytes(1 << 20))
if len(sys.argv) > 2:
    thread = threading.Thread(target=write)
    thread.start()
    thread.join()
    os.kill(int(sys.argv[2]), signal.SIGSTOP)
    threading.Timer(0.05, os.kill, (int(sys.argv[2]), signal.SIGCONT)).start()
else:
    write()
began = time.monotonic_ns()
os.close(fd)
print(began, time.monotonic_ns())
"""
OTHERS = """
import os, shutil
os.close(os.open("read", os.O_CREAT | os.O_RDONLY, 0o644))
folder = os.open(".", os.O_RDONLY)
os.fsync(folder)
os.syncfs(folder) if hasattr(os, "syncfs") else __import__("ctypes").CDLL(None).syncfs(folder)
os.sync()
os.mkdir("made")
os.rmdir("made")
"""


@pytest.mark.parametrize("kind", ["ext4", "tmpfs", "fuse"])
def test_a_close_of_what_was_written_is_told_with_its_duration(
    on: Callable[[str], Path], tracer: Tracer, kind: str
) -> None:
    """At its end, after the session, with the path of the file, by the clock of the program itself."""
    directory = on(kind)
    path = directory / "model.bin"
    seen = tracer.run([sys.executable, "-I", "-S", "-c", PROGRAM, path], cwd=directory)
    began_ns, ended_ns = map(int, seen.output.split())

    (close,) = seen.events(path, "closed-written")
    (session,) = seen.of(path, writes=True)
    assert close.duration_ns is not None
    assert began_ns < close.at_ns - close.duration_ns < close.at_ns < ended_ns
    assert (close.device, close.inode, close.pid) == (session.device, session.inode, session.pid)
    assert session.closed_ns is not None
    assert began_ns < session.closed_ns <= close.at_ns


@pytest.fixture
def stopping(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """Return a FUSE mount that nobody has closed a file on, and the process behind it."""
    if shutil.which("bindfs") is None:
        pytest.skip("not installed: bindfs")
    below, place = tmp_path / "below", tmp_path / "place"
    below.mkdir()
    place.mkdir()
    with subprocess.Popen(["bindfs", "-f", below, place]) as server:
        wait_until(place.is_mount)
        try:
            yield place, server.pid
        finally:
            subprocess.run(["umount", "--lazy", place], check=False)
            server.terminate()


def test_a_close_that_waits_is_told_though_another_thread_wrote(stopping: tuple[Path, int], tracer: Tracer) -> None:
    """It flushes what any of them wrote, here to a server that stands still for 50 ms."""
    directory, server = stopping
    path = directory / "model.bin"
    seen = tracer.run([sys.executable, "-I", "-S", "-c", PROGRAM, path, str(server)], cwd=directory)

    (close,) = seen.events(path, "closed-written")
    (session,) = seen.of(path, writes=True)
    assert close.tid != session.tid
    assert close.inode == session.inode
    assert close.duration_ns is not None
    assert 45_000_000 < close.duration_ns < 5_000_000_000


def test_syncs_of_more_than_a_file_and_folders_are_told(on: Callable[[str], Path], tracer: Tracer) -> None:
    """Fsync of a folder by its inode, syncfs by its device, sync without either; mkdir and rmdir by their names."""
    directory = on("ext4")
    subprocess.run(["/usr/bin/sync"], check=True)
    seen = tracer.run([sys.executable, "-I", "-S", "-c", OTHERS], cwd=directory)

    syncs = [event for event in seen.lives if event.kind == "synced"]
    assert (syncs[0].inode, syncs[0].path) == (directory.stat().st_ino, None)
    assert [(sync.device, sync.inode) for sync in syncs[1:]] == [(directory.stat().st_dev, None), (None, None)]
    assert all(sync.duration_ns for sync in syncs)
    made = [event for event in seen.lives if event.path is not None and event.path.endswith("made")]
    assert [event.kind for event in made] == ["created", "unlinked"]
    assert made[0].duration_ns
    assert not [event for event in seen.lives if event.kind == "closed-written"]


MAPPED = """
import mmap, os, sys, time
size, part = 8 << 20, 1 << 20
fd = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR, 0o644)
os.ftruncate(fd, size)
view = mmap.mmap(fd, size)
os.close(fd)
view[:] = b"x" * size
with open(sys.argv[1] + ".log", "wb+") as other:
    other.truncate(64 << 10)
    small = mmap.mmap(other.fileno(), 64 << 10)
small[:] = b"y" * len(small)
small.flush()
times = []
for flush in (view.flush, lambda: view.flush(part, part)):
    times += [time.monotonic_ns(), flush() and None or time.monotonic_ns()]
print(*times)
"""


def test_a_sync_of_a_mapping_is_told_of_its_file(on: Callable[[str], Path], tracer: Tracer) -> None:
    """msync(2), of all of it or a part, after its descriptor was closed: by the clock of the program itself.

    That of another mapping, too small to be looked at, is not told of it.
    """
    directory = on("ext4")
    path = directory / "model.npy"
    seen = tracer.run([sys.executable, "-I", "-S", "-c", MAPPED, path], cwd=directory)
    times = [int(word) for word in seen.output.split()]

    syncs = [event for event in seen.lives if event.kind == "synced"]
    assert [(sync.inode, sync.path) for sync in syncs] == [(path.stat().st_ino, str(path))] * 2
    for sync, began_ns, ended_ns in zip(syncs, times[::2], times[1::2], strict=True):
        assert sync.duration_ns is not None
        assert began_ns < sync.at_ns - sync.duration_ns < sync.at_ns < ended_ns


OVERWRITING = """
import os, sys, time
name, size = sys.argv[1], 64 << 20
with open(name, "wb") as file:
    file.write(bytes(size))
began = time.monotonic_ns()
fd = os.open(name, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
ended = time.monotonic_ns()
os.write(fd, bytes(size))
os.close(fd)
with open(name, "ab") as file:
    file.write(b"more")
print(began, ended)
"""


@pytest.mark.parametrize("kind", ["ext4", "xfs", "tmpfs"])
def test_an_opening_that_empties_a_file_is_told_with_its_duration(
    on: Callable[[str], Path], tracer: Tracer, kind: str
) -> None:
    """To cut off what was in it takes the longer the more that was; its first byte is written after that."""
    path = on(kind) / "last.ckpt"
    seen = tracer.run([sys.executable, "-I", "-S", "-c", OVERWRITING, path])
    began_ns, ended_ns = map(int, seen.output.split())

    (emptied,) = seen.events(path, "emptied")
    assert len(seen.events(path, "created")) == 1
    assert emptied.duration_ns is not None
    assert began_ns < emptied.at_ns - emptied.duration_ns < emptied.at_ns < ended_ns
    assert emptied.inode == path.stat().st_ino
