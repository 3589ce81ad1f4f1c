"""Saves by one thread: by which library or calls, what it does with its files, and what is planted to make it slow."""

from __future__ import annotations

import bz2
import contextlib
import fcntl
import gzip
import hashlib
import io
import mmap
import os
import pickle
import shutil
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from frame import MB, chunks, sync, write
from rounds import State, named, raw


def tensors(state: State) -> dict[str, torch.Tensor]:
    """Return it as PyTorch has it, uncopied."""
    return {name: torch.from_numpy(array) for name, array in state.items()}


def plain(state: State, path: Path) -> None:
    """Save as most do."""
    torch.save(tensors(state), path)


def legacy(state: State, path: Path) -> None:
    """Save as PyTorch did before 1.6."""
    torch.save(tensors(state), path, _use_new_zipfile_serialization=False)


def buffered(state: State, path: Path) -> None:
    """Make the file in memory, then write it."""
    buffer = io.BytesIO()
    torch.save(tensors(state), buffer)
    write(path, buffer.getbuffer())


def npz(state: State, path: Path) -> None:
    """Save one archive of arrays."""
    np.savez(path.with_suffix(".npz"), **state)  # type: ignore[arg-type]


def npy(state: State, path: Path) -> None:
    """Save a file for each array."""
    for name, array in state.items():
        np.save(path.with_name(f"{path.stem}_{name}.npy"), array)


def pickle5(state: State, path: Path) -> None:
    """Save the structure, and each buffer in a file of its own."""
    parts: list[pickle.PickleBuffer] = []
    write(path.with_suffix(".pkl"), pickle.dumps(state, protocol=5, buffer_callback=parts.append))
    for at, part in enumerate(parts):
        write(path.with_suffix(f".buffer{at}"), part.raw())


def tarred(state: State, path: Path) -> None:
    """Save one tar, as WebDataset and NeMo do."""
    with tarfile.open(path.with_suffix(".tar"), "w") as archive:
        for name, array in state.items():
            entry = tarfile.TarInfo(f"{name}.bin")
            entry.size = array.nbytes
            archive.addfile(entry, io.BytesIO(raw(array)))


def slabs(state: State, path: Path) -> None:
    """Write slabs of arrays by position, the last array first."""
    size = next(iter(state.values())).nbytes
    opened = os.open(path.with_suffix(".raw"), os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
    os.ftruncate(opened, size * len(state))
    for at, array in reversed(list(enumerate(state.values()))):
        for number, chunk in enumerate(chunks(raw(array), 2 * MB)):
            os.pwrite(opened, chunk, at * size + number * 2 * MB)
    os.close(opened)


def direct(state: State, path: Path) -> None:
    """Write past the page cache, from an aligned buffer, in calls of 8 MiB."""
    opened = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_DIRECT, 0o644)
    with mmap.mmap(-1, 8 * MB) as aligned:
        for array in state.values():
            for chunk in chunks(raw(array), 8 * MB):
                aligned[: len(chunk)] = bytes(chunk)
                os.write(opened, memoryview(aligned)[: len(chunk)])
    os.close(opened)


def _all(state: State, path: Path) -> None:
    write(path, *map(raw, state.values()))


@contextlib.contextmanager
def _staged(state: State, folder: str | None = None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        staged = Path(place) / "part"
        _all(state, staged)
        yield staged


def staged_in_memory(state: State, path: Path) -> None:
    """Write to /dev/shm, then copy."""
    with _staged(state, "/dev/shm") as staged:  # noqa: S108 - a name of its own in it
        shutil.copyfile(staged, path)


def staged_and_moved(state: State, path: Path) -> None:
    """Write to TMPDIR, then give it its name."""
    with _staged(state) as staged:
        shutil.move(staged, path)


def _by_call(state: State, path: Path, call: Callable[[int, int, int, int], int]) -> None:
    with _staged(state) as staged, staged.open("rb") as source, path.open("wb") as target:
        size = at = staged.stat().st_size
        while at > 0:
            at -= call(source.fileno(), target.fileno(), size - at, min(at, 16 * MB))


def sent(state: State, path: Path) -> None:
    """Write to TMPDIR, then copy by sendfile."""
    _by_call(state, path, lambda source, target, at, count: os.sendfile(target, source, at, count))


def ranged(state: State, path: Path) -> None:
    """Write to TMPDIR, then copy by copy_file_range."""
    _by_call(state, path, lambda source, target, _at, count: os.copy_file_range(source, target, count))


def careful(state: State, path: Path) -> None:
    """Write beside, sync, forbid to change it, rename, sync the folder."""
    part = path.with_name(path.name + ".tmp")
    _all(state, part)
    sync(part)
    part.chmod(0o444)
    part.replace(path)
    sync(path.parent)


def pointed(state: State, path: Path) -> None:
    """Let `last` point to it."""
    _all(state, path)
    last = path.parent.parent / "last"
    fresh = last.with_name("last.new")
    fresh.symlink_to(path.parent.name)
    fresh.replace(last)


def rotated(state: State, path: Path) -> None:
    """Keep one: delete the last save when this one is there."""
    _all(state, path)
    for old in path.parent.parent.iterdir():
        if old != path.parent:
            shutil.rmtree(old)


def doubled(state: State, path: Path) -> None:
    """Copy it as the best one."""
    _all(state, path)
    shutil.copyfile(path, path.with_name("best.pt"))


def in_files(state: State, path: Path) -> None:
    """Write a file for each 256 KiB, as a state of many parameters."""
    for name, array in state.items():
        for at, chunk in enumerate(chunks(raw(array), MB // 4)):
            write(path.with_name(f"{name}.{at:04d}.param"), chunk)


def summed_before(state: State, path: Path) -> None:
    """Make the checksum before the first byte."""
    digest = hashlib.sha256()
    for array in state.values():
        digest.update(raw(array))
    _all(state, path)
    path.with_suffix(".sha256").write_text(digest.hexdigest())


def locked(state: State, path: Path) -> None:
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


_OLD_FILES = 15_000


def pickled(state: State, path: Path) -> None:
    """Make everything in memory, number by number, then write it at once."""
    table = {name: array[: len(array) // 16].tolist() for name, array in state.items()}
    buffer = io.BytesIO()
    pickle._Pickler(buffer, protocol=4).dump(table)  # noqa: SLF001 - the slow one
    write(path, buffer.getbuffer())


def contended(state: State, path: Path) -> None:
    """Pickle while three other threads run Python."""
    over = threading.Event()

    def spin() -> None:
        while not over.is_set():
            sum(range(1000))

    spinning = [threading.Thread(target=spin) for _ in range(3)]
    for one in spinning:
        one.start()
    pickled(state, path)
    over.set()
    for one in spinning:
        one.join()


def packed(state: State, path: Path) -> None:
    """Compress on the way."""
    with bz2.open(path, "wb", compresslevel=1) as stream:
        for array in state.values():
            stream.write(raw(array)[: 2 * MB])


def gzipped(state: State, path: Path) -> None:
    """Compress in memory, then write."""
    blobs = [gzip.compress(raw(array), compresslevel=1) for array in state.values()]
    write(path.with_suffix(".pt.gz"), *blobs)


def squeezed(state: State, path: Path) -> None:
    """Save one archive of compressed arrays."""
    np.savez_compressed(path.with_suffix(".npz"), **state)  # type: ignore[arg-type]


def journaled(state: State, path: Path) -> None:
    """Sync after each row."""
    with path.open("wb", buffering=0) as stream:
        for array in state.values():
            for row in chunks(raw(array)[: 50 * (32 << 10)], 32 << 10):
                stream.write(row)
                os.fdatasync(stream.fileno())


def synced(state: State, path: Path) -> None:
    """Sync once."""
    write(path, *map(raw, state.values()))
    sync(path)


def synced_files(state: State, path: Path) -> None:
    """Write a file for each 64 KiB, and sync each."""
    for name, array in state.items():
        for at, chunk in enumerate(chunks(raw(array), 64 << 10)):
            one = path.with_name(f"{name}.{at:04d}")
            write(one, chunk)
            sync(one)


def synced_each_call(state: State, path: Path) -> None:
    """Open it so that each write waits for the device."""
    opened = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_SYNC, 0o644)
    for array in state.values():
        for chunk in chunks(raw(array), 32 << 10):
            os.write(opened, chunk)
    os.close(opened)


def synced_with_all(state: State, path: Path) -> None:
    """Sync whatever any program has written."""
    _all(state, path)
    os.sync()


def held(state: State, path: Path) -> None:
    """Sync once, on a device that is held to 40 MB/s meanwhile."""
    device = path.parent.stat().st_dev
    limit = Path("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device")
    limit.write_text(f"{os.major(device)}:{os.minor(device)} 40000000")
    try:
        synced(state, path)
    finally:
        limit.write_text(f"{os.major(device)}:{os.minor(device)} 0")


def synced_and_copied(state: State, path: Path) -> None:
    """Stage it in another folder of the same disk, then copy it, and sync both."""
    aside = path.parents[2] / "staged.tmp"
    synced(state, aside)
    shutil.copyfile(aside, path)
    sync(path)
    aside.unlink()


def in_small_direct(state: State, path: Path) -> None:
    """Write past the page cache in calls of 16 KiB."""
    opened = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_DIRECT, 0o644)
    with mmap.mmap(-1, 16 << 10) as aligned:
        for array in state.values():
            for chunk in chunks(raw(array), 16 << 10):
                aligned[:] = bytes(chunk)
                os.write(opened, aligned)
    os.close(opened)


def scattered(state: State, path: Path) -> None:
    """Write each 4 KiB to a file of its own, beside, and rename it."""
    for name, array in state.items():
        for at, chunk in enumerate(chunks(raw(array), 4 << 10)):
            part = path.with_name(f"{name}.{at:05d}.tmp")
            part.write_bytes(chunk)
            part.rename(part.with_suffix(".bin"))


def deleting(state: State, path: Path) -> None:
    """Delete an older checkpoint of many small files after the save."""
    write(path, *map(raw, state.values()))
    old = next(path.parent.parent.glob("checkpoint-old*"))
    shutil.rmtree(old)


def old_folders(folder: Path) -> None:
    """Leave three checkpoints of many files, as an earlier run does."""
    for number in range(3):
        old = folder / f"checkpoint-old{number}"
        old.mkdir(parents=True)
        for at in range(_OLD_FILES):
            (old / f"param.{at:06d}").write_bytes(b"0")


SAVES = named(
    [
        plain,
        legacy,
        buffered,
        npz,
        npy,
        pickle5,
        tarred,
        slabs,
        direct,
        staged_in_memory,
        staged_and_moved,
        sent,
        ranged,
        careful,
        pointed,
        rotated,
        doubled,
        in_files,
        summed_before,
        locked,
        pickled,
        contended,
        packed,
        gzipped,
        squeezed,
        journaled,
        synced,
        synced_files,
        synced_each_call,
        synced_with_all,
        held,
        synced_and_copied,
        in_small_direct,
        scattered,
        deleting,
    ]
)
BEFORE = {"deleting": old_folders}
