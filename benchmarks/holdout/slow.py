"""Saves by one thread with something planted in them that makes them slow."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import mmap
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
from files import MB, Wait, chunks, nothing, sync, write
from processes import FORK, write_slowly
from state import State, named, raw

_OLD_FILES = 15_000


def pickled(state: State, path: Path) -> Wait:
    """Make everything in memory, number by number, then write it at once."""
    table = {name: array[: len(array) // 16].tolist() for name, array in state.items()}
    buffer = io.BytesIO()
    pickle._Pickler(buffer, protocol=4).dump(table)  # noqa: SLF001 - the slow one
    write(path, buffer.getbuffer())
    return nothing


def packed(state: State, path: Path) -> Wait:
    """Compress on the way."""
    with bz2.open(path, "wb", compresslevel=1) as stream:
        for array in state.values():
            stream.write(raw(array)[: 2 * MB])
    return nothing


def gzipped(state: State, path: Path) -> Wait:
    """Compress in memory, then write."""
    blobs = [gzip.compress(raw(array), compresslevel=1) for array in state.values()]
    write(path.with_suffix(".pt.gz"), *blobs)
    return nothing


def squeezed(state: State, path: Path) -> Wait:
    """Save one archive of compressed arrays."""
    np.savez_compressed(path.with_suffix(".npz"), **state)  # type: ignore[arg-type]
    return nothing


def xz(state: State, path: Path) -> Wait:
    """Compress a part of it well."""
    with lzma.open(path.with_suffix(".xz"), "wb", preset=1) as stream:
        for array in state.values():
            stream.write(raw(array)[:MB])
    return nothing


def as_json(state: State, path: Path) -> Wait:
    """Save a part of it as numbers in text, which is made in memory."""
    text = json.dumps({name: array[: len(array) // 16].tolist() for name, array in state.items()})
    path.with_suffix(".json").write_text(text)
    return nothing


def as_rows(state: State, path: Path) -> Wait:
    """Save a part of it as a table of text, row by row."""
    for name, array in state.items():
        np.savetxt(path.with_name(f"{name}.csv"), array[: len(array) // 32].reshape(-1, 32))
    return nothing


def journaled(state: State, path: Path) -> Wait:
    """Sync after each row."""
    with path.open("wb", buffering=0) as stream:
        for array in state.values():
            for row in chunks(raw(array)[: 50 * (32 << 10)], 32 << 10):
                stream.write(row)
                os.fdatasync(stream.fileno())
    return nothing


def synced(state: State, path: Path) -> Wait:
    """Sync once."""
    write(path, *map(raw, state.values()))
    sync(path)
    return nothing


def synced_files(state: State, path: Path) -> Wait:
    """Write a file for each 64 KiB, and sync each."""
    for name, array in state.items():
        for at, chunk in enumerate(chunks(raw(array), 64 << 10)):
            one = path.with_name(f"{name}.{at:04d}")
            write(one, chunk)
            sync(one)
    return nothing


def in_small_direct(state: State, path: Path) -> Wait:
    """Write past the page cache in calls of 16 KiB."""
    opened = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_DIRECT, 0o644)
    with mmap.mmap(-1, 16 << 10) as aligned:
        for array in state.values():
            for chunk in chunks(raw(array), 16 << 10):
                aligned[:] = bytes(chunk)
                os.write(opened, aligned)
    os.close(opened)
    return nothing


def scattered(state: State, path: Path) -> Wait:
    """Write each 4 KiB to a file of its own, beside, and rename it."""
    for name, array in state.items():
        for at, chunk in enumerate(chunks(raw(array), 4 << 10)):
            part = path.with_name(f"{name}.{at:05d}.tmp")
            part.write_bytes(chunk)
            part.rename(part.with_suffix(".bin"))
    return nothing


def deleting(state: State, path: Path) -> Wait:
    """Delete an older checkpoint of many small files after the save."""
    write(path, *map(raw, state.values()))
    old = next(path.parent.parent.glob("checkpoint-old*"))
    shutil.rmtree(old)
    return nothing


def old_folders(folder: Path) -> None:
    """Leave three checkpoints of many files, as an earlier run does."""
    for number in range(3):
        old = folder / f"checkpoint-old{number}"
        old.mkdir(parents=True)
        for at in range(_OLD_FILES):
            (old / f"param.{at:06d}").write_bytes(b"0")


_BEFORE: list[Wait] = []


def waits_for_previous(state: State, path: Path) -> Wait:
    """Wait for the previous save, then hand a copy to a process, which takes longer than training does."""
    for wait in _BEFORE:
        wait()
    blobs = [array.tobytes() for array in state.values()]
    writer = FORK.Process(target=write_slowly, args=(path, *blobs), kwargs={"pause": 0.2})
    writer.start()
    _BEFORE[:] = [writer.join]
    return lambda: sum(map(len, blobs))  # it is not written yet


SLOW = named(
    pickled, packed, gzipped, squeezed, xz, as_json, as_rows, journaled, synced, synced_files, in_small_direct,
    scattered, deleting, waits_for_previous,
)  # fmt: skip
BEFORE = {"deleting": old_folders}
