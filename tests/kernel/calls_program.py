r"""Moves bytes by every kind of call, and prints what it did: the truth of test_calls.py.

`calls_program.py SCENARIO DIRECTORY` prints a JSON list of [name, writes, thread, offset, length], one per operation
that moved bytes (or tried to, with length 0), in order; names relative to DIRECTORY, bytes as `\xNN` escapes.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

KIB = 1 << 10
CHUNK = bytes(range(256)) * 256  # 64 KiB
LOG: list[tuple[str, bool, int, int, int]] = []


def note(name: str, offset: int, length: int, *, writes: bool) -> int:
    """Log one operation of this thread."""
    LOG.append((name, writes, threading.get_native_id(), offset, length))
    return length


def make(name: str, flags: int = 0) -> int:
    """Open a new file to write and read."""
    return os.open(name, os.O_CREAT | os.O_RDWR | flags, 0o600)


def fill(name: str, chunks: int = 8) -> None:
    """Make a file of so many chunks."""
    fd = make(name)
    for number in range(chunks):
        note(name, number * len(CHUNK), os.write(fd, CHUNK), writes=True)
    os.close(fd)


def vectored() -> None:
    """Use writev, readv, pwritev, preadv (the last two are pwritev2 and preadv2 with flags)."""
    fd = make("vectored")
    note("vectored", 0, os.writev(fd, [CHUNK, CHUNK[:100]]), writes=True)
    note("vectored", len(CHUNK) + 100, os.writev(fd, [CHUNK[:1], b"", CHUNK]), writes=True)
    note("vectored", 500_000, os.pwritev(fd, [CHUNK, CHUNK], 500_000), writes=True)
    note("vectored", 10, os.pwritev(fd, [CHUNK[:10]], 10, os.RWF_DSYNC), writes=True)
    os.lseek(fd, 0, os.SEEK_SET)
    room = [bytearray(1000), bytearray(5000)]
    note("vectored", 0, os.readv(fd, room), writes=False)
    note("vectored", 6000, os.preadv(fd, room, 6000), writes=False)
    note("vectored", 3, os.preadv(fd, room[:1], 3, os.RWF_HIPRI), writes=False)
    os.close(fd)


def sendfile() -> None:
    """Send a file to a file, and to a socket from an offset."""
    fill("source")
    source, target = os.open("source", os.O_RDONLY), make("target")
    moved = os.sendfile(target, source, None, 3 * len(CHUNK))
    note("source", 0, moved, writes=False)
    note("target", 0, moved, writes=True)
    here, there = socket.socketpair()
    moved = os.sendfile(here.fileno(), source, 4 * len(CHUNK), 10 * KIB)
    note("source", 4 * len(CHUNK), moved, writes=False)
    assert len(there.recv(moved, socket.MSG_WAITALL)) == moved
    for fd in (source, target):
        os.close(fd)


def splice() -> None:
    """Splice a file into a pipe and the pipe into another file, with and without offsets."""
    fill("source")
    source, target = os.open("source", os.O_RDONLY), make("target")
    out, into = os.pipe()
    at = 0
    for _ in range(8):
        moved = os.splice(source, into, 32 * KIB)
        note("source", at, moved, writes=False)
        note("target", at, os.splice(out, target, moved), writes=True)
        at += moved
    moved = os.splice(source, into, 4 * KIB, offset_src=100)
    note("source", 100, moved, writes=False)
    note("target", 900_000, os.splice(out, target, moved, offset_dst=900_000), writes=True)
    for fd in (source, target, out, into):
        os.close(fd)


def copy_file_range() -> None:
    """Copy a file within the kernel, by positions and by offsets."""
    fill("source")
    source, target = os.open("source", os.O_RDONLY), make("target")
    moved = os.copy_file_range(source, target, 256 * KIB)
    note("source", 0, moved, writes=False)
    note("target", 0, moved, writes=True)
    moved = os.copy_file_range(source, target, 8 * KIB, offset_src=4 * KIB, offset_dst=1024 * KIB)
    note("source", 4 * KIB, moved, writes=False)
    note("target", 1024 * KIB, moved, writes=True)
    for fd in (source, target):
        os.close(fd)


def append() -> None:
    """Append through two descriptors in turn: the kernel moves each to the end."""
    fill("appended", 1)
    first, second = (os.open("appended", os.O_WRONLY | os.O_APPEND) for _ in range(2))
    at = len(CHUNK)
    for number in range(6):
        at += note("appended", at, os.write((first, second)[number % 2], CHUNK[: 1000 + number]), writes=True)
    os.close(first)
    os.close(second)


def sparse() -> None:
    """Write with holes, forward and back, and read across a hole."""
    fd = make("sparse")
    for offset in (0, 1 << 20, 5 << 30, 4096, 1 << 40):
        os.lseek(fd, offset, os.SEEK_SET)
        note("sparse", offset, os.write(fd, CHUNK[:4096]), writes=True)
    os.lseek(fd, 0, os.SEEK_SET)
    note("sparse", 0, len(os.read(fd, 64 * KIB)), writes=False)
    os.close(fd)


def short() -> None:
    """Read past the end: what was there counts, not what was asked for."""
    fill("short", 1)
    fd = os.open("short", os.O_RDONLY)
    note("short", 0, len(os.read(fd, 40 * KIB)), writes=False)
    note("short", 40 * KIB, len(os.read(fd, 40 * KIB)), writes=False)
    note("short", 60 * KIB, len(os.pread(fd, 40 * KIB, 60 * KIB)), writes=False)
    os.close(fd)


def full() -> None:
    """Fill the file system: the last write is short, further ones fail."""
    fd = make("full")
    at = 0
    block = CHUNK * 4 + CHUNK[:1000]
    while True:
        try:
            at += note("full", at, os.write(fd, block), writes=True)
        except OSError as error:  # noqa: PERF203 - the end of the loop
            if error.errno != errno.ENOSPC:
                raise
            break
    os.close(fd)


def refused() -> None:
    """Fail in several ways: nothing moves, nothing counts but what follows."""
    fd = make("refused")
    note("refused", 0, os.write(fd, CHUNK[:100]), writes=True)
    reader = os.open("refused", os.O_RDONLY)
    for attempt in (
        lambda: os.write(reader, b"x"),
        lambda: os.pread(fd, 10, -5),
        lambda: os.write(1000, b"x"),
        lambda: os.read(os.open("..", os.O_RDONLY), 10),
    ):
        try:
            attempt()
        except OSError:
            continue
        raise AssertionError
    note("refused", 100, os.write(fd, CHUNK[:100]), writes=True)
    os.close(fd)
    os.close(reader)


def duplicated() -> None:
    """Write through a descriptor and its copies, by dup, dup2 and fcntl: one position, one file."""
    fd = make("duplicated")
    copies = [fd, os.dup(fd), os.dup2(fd, 200)]
    at = 0
    for number in range(12):
        at += note("duplicated", at, os.write(copies[number % 3], CHUNK[:3000]), writes=True)
    for copy in copies:
        os.close(copy)


def forked() -> None:
    """Share a descriptor with a child: both write at the one position."""
    fd = make("forked")
    at = 0
    for _ in range(4):
        out, into = os.pipe()
        at += note("forked", at, os.write(fd, CHUNK), writes=True)
        child = os.fork()
        if child == 0:
            LOG.clear()
            note("forked", at, os.write(fd, CHUNK[:5000]), writes=True)
            os.write(into, json.dumps(LOG).encode())
            os._exit(0)
        os.waitpid(child, 0)
        LOG.extend(json.loads(os.read(out, 4096)))
        at += 5000
        os.close(out)
        os.close(into)
    os.close(fd)


def threads() -> None:
    """Write one file with four threads, each its own part from its begin to its end."""
    fd = make("threads")

    def part(number: int) -> None:
        for step in range(32):
            offset = (number * 32 + step) * len(CHUNK)
            note("threads", offset, os.pwrite(fd, CHUNK, offset), writes=True)

    workers = [threading.Thread(target=part, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    os.close(fd)


def brief() -> None:
    """Make a hundred files that live for far less than a tick, each read once before it goes."""
    for number in range(100):
        name = f"brief-{number}"
        fd = make(name)
        note(name, 0, os.write(fd, CHUNK[: 100 + number]), writes=True)
        note(name, 0, len(os.pread(fd, 64 * KIB, 0)), writes=False)
        os.close(fd)
        Path(name).unlink()


def recycled() -> None:
    """Write a file, remove it, and write the next, which ext4 gives the same inode; a different amount each."""
    for number in range(8):
        name = f"recycled-{number}"
        fd = make(name)
        for step in range(number + 1):
            note(name, step * 1000, os.write(fd, CHUNK[:1000]), writes=True)
        os.close(fd)
        Path(name).unlink()


def renamed() -> None:
    """Commit as frameworks do: write under a temporary name, rename it while it is open, write on, close."""
    fd = make("model.tmp")
    note("model.bin", 0, os.write(fd, CHUNK), writes=True)
    Path("model.tmp").rename("model.bin")
    note("model.bin", len(CHUNK), os.write(fd, CHUNK), writes=True)
    os.fsync(fd)
    os.close(fd)


def unlinked() -> None:
    """Write a file that has no name any more."""
    fd = make("unlinked")
    note("unlinked", 0, os.write(fd, CHUNK), writes=True)
    Path("unlinked").unlink()
    note("unlinked", len(CHUNK), os.write(fd, CHUNK), writes=True)
    os.close(fd)


def left_open() -> None:
    """End without closing anything."""
    fd = make("left-open")
    note("left-open", 0, os.write(fd, CHUNK), writes=True)
    note("left-open", len(CHUNK), os.write(fd, CHUNK), writes=True)


def replaced() -> None:
    """Close without close(2): dup2 onto the descriptor, and close_range."""
    fd = make("replaced")
    note("replaced", 0, os.write(fd, CHUNK), writes=True)
    os.dup2(0, fd)
    os.close(fd)
    fd = make("ranged")
    note("ranged", 0, os.write(fd, CHUNK), writes=True)
    os.closerange(fd, fd + 1)


def large() -> None:
    """Move more at once than 32 bits of a record would hold of it together, in sizes around the buckets' edges."""
    fd = make("large")
    at = 0
    for length in (1, 2, 3, 4, 4095, 4096, 4097, 65535, 65536, 65537, (1 << 20) - 1, 1 << 20, 64 << 20):
        at += note("large", at, os.write(fd, bytes(length)), writes=True)
    os.close(fd)


HOSTILE = (
    b"new\nline",
    b"\x1b[31mred\x1b[0m",
    b"not-utf-8-\xff\xfe\x80",
    b"<img src=x onerror=alert(1)>",
    b"quote\"'`$(true)\\",
    "\u202egnp.exe".encode(),  # reads as exe.png
    b" ",
    b"x" * 255,
    b"(deleted)",
)


def hostile() -> None:
    """Write files with names that nobody should give."""
    for number, name in enumerate(HOSTILE):
        fd = os.open(name, os.O_CREAT | os.O_WRONLY, 0o600)
        note(name.decode("utf-8", "backslashreplace"), 0, os.write(fd, CHUNK[: number + 1]), writes=True)
        os.close(fd)


def deep() -> None:
    """Write in a folder 100 levels down, in one of a path near PATH_MAX, and in one that no path reaches."""
    for depth, name in ((100, "d"), (14, "e" * 250), (22, "f" * 250)):
        before = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
        for _ in range(depth):
            Path(name).mkdir()
            os.chdir(name)
        fd = make("file")
        note("/".join([*[name] * depth, "file"]), 0, os.write(fd, CHUNK[:depth]), writes=True)
        os.close(fd)
        os.chdir(before)
        os.close(before)


SCENARIOS: dict[str, Callable[[], None]] = {
    scenario.__name__: scenario
    for scenario in (
        vectored, sendfile, splice, copy_file_range, append, sparse, short, full, refused, duplicated, forked, threads,
        brief, recycled, renamed, unlinked, left_open, replaced, large, hostile, deep,
    )
}  # fmt: skip


def main() -> None:
    """Run one scenario in its directory."""
    os.chdir(sys.argv[2])
    SCENARIOS[sys.argv[1]]()
    json.dump(LOG, sys.stdout)


if __name__ == "__main__":
    main()
