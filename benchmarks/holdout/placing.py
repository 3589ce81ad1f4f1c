"""Saves that do something with their files before, beside or after the bytes."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from files import MB, Wait, chunks, nothing, sync, write
from state import State, named, raw


def _all(state: State, path: Path) -> None:
    write(path, *map(raw, state.values()))


@contextlib.contextmanager
def _staged(state: State, folder: str | None = None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        staged = Path(place) / "part"
        _all(state, staged)
        yield staged


def staged_in_memory(state: State, path: Path) -> Wait:
    """Write to /dev/shm, then copy."""
    with _staged(state, "/dev/shm") as staged:  # noqa: S108 - a name of its own in it
        shutil.copyfile(staged, path)
    return nothing


def staged_and_moved(state: State, path: Path) -> Wait:
    """Write to TMPDIR, then give it its name."""
    with _staged(state) as staged:
        shutil.move(staged, path)
    return nothing


def _by_call(state: State, path: Path, call: Callable[[int, int, int, int], int]) -> None:
    with _staged(state) as staged, staged.open("rb") as source, path.open("wb") as target:
        size = at = staged.stat().st_size
        while at > 0:
            at -= call(source.fileno(), target.fileno(), size - at, min(at, 16 * MB))


def sent(state: State, path: Path) -> Wait:
    """Write to TMPDIR, then copy by sendfile."""
    _by_call(state, path, lambda source, target, at, count: os.sendfile(target, source, at, count))
    return nothing


def ranged(state: State, path: Path) -> Wait:
    """Write to TMPDIR, then copy by copy_file_range."""
    _by_call(state, path, lambda source, target, _at, count: os.copy_file_range(source, target, count))
    return nothing


def careful(state: State, path: Path) -> Wait:
    """Write beside, sync, forbid to change it, rename, sync the folder."""
    part = path.with_name(path.name + ".tmp")
    _all(state, part)
    sync(part)
    part.chmod(0o444)
    part.replace(path)
    sync(path.parent)
    return nothing


def synced_chunks(state: State, path: Path) -> Wait:
    """Sync after each 16 MiB."""
    with path.open("wb", buffering=0) as stream:
        for array in state.values():
            for chunk in chunks(raw(array), 16 * MB):
                stream.write(chunk)
                os.fsync(stream.fileno())
    return nothing


def overwritten(state: State, path: Path) -> Wait:
    """Write over the bytes of the last save, without making the file anew."""
    opened = os.open(path, os.O_CREAT | os.O_WRONLY, 0o644)
    for array in state.values():
        for chunk in chunks(raw(array)):
            os.write(opened, chunk)
    os.close(opened)
    return nothing


def linked(state: State, path: Path) -> Wait:
    """Give it a second name, `latest`."""
    _all(state, path)
    latest = path.parent.parent / "latest.pt"
    latest.unlink(missing_ok=True)
    latest.hardlink_to(path)
    return nothing


def pointed(state: State, path: Path) -> Wait:
    """Let `last` point to it."""
    _all(state, path)
    last = path.parent.parent / "last"
    fresh = last.with_name("last.new")
    fresh.symlink_to(path.parent.name)
    fresh.replace(last)
    return nothing


def rotated(state: State, path: Path) -> Wait:
    """Keep one: delete the last save when this one is there."""
    _all(state, path)
    for old in path.parent.parent.iterdir():
        if old != path.parent:
            shutil.rmtree(old)
    return nothing


def doubled(state: State, path: Path) -> Wait:
    """Copy it as the best one."""
    _all(state, path)
    shutil.copyfile(path, path.with_name("best.pt"))
    return nothing


def in_files(state: State, path: Path) -> Wait:
    """Write a file for each 256 KiB, as a state of many parameters."""
    for name, array in state.items():
        for at, chunk in enumerate(chunks(raw(array), MB // 4)):
            write(path.with_name(f"{name}.{at:04d}.param"), chunk)
    return nothing


def summed_before(state: State, path: Path) -> Wait:
    """Make the checksum before the first byte."""
    digest = hashlib.sha256()
    for array in state.values():
        digest.update(raw(array))
    _all(state, path)
    path.with_suffix(".sha256").write_text(digest.hexdigest())
    return nothing


def summed_after(state: State, path: Path) -> Wait:
    """Make the checksum of what was written, from the file."""
    _all(state, path)
    with path.open("rb") as stream:
        digest = hashlib.sha256()
        while block := stream.read(MB):
            digest.update(block)
    path.with_suffix(".sha256").write_text(digest.hexdigest())
    return nothing


def read_back(state: State, path: Path) -> Wait:
    """Compare what was written with what is in memory."""
    _all(state, path)
    with path.open("rb", buffering=0) as stream:
        for array in state.values():
            for chunk in chunks(raw(array)):
                if stream.read(len(chunk)) != bytes(chunk):
                    raise RuntimeError(f"{path} is not what was written")
    return nothing


def locked(state: State, path: Path) -> Wait:
    """Wait for a lock that another holds for a second."""
    name = path.parent.parent / ".lock"
    held = threading.Event()

    def hold() -> None:
        with name.open("w") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            held.set()
            time.sleep(1.0)

    threading.Thread(target=hold).start()
    held.wait()
    with name.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        _all(state, path)
    return nothing


PLACING = named(
    staged_in_memory, staged_and_moved, sent, ranged, careful, synced_chunks, overwritten, linked, pointed, rotated,
    doubled, in_files, summed_before, summed_after, read_back, locked,
)  # fmt: skip
