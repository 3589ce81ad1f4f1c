"""Saves by one thread at the speed of memory: by the library or the calls that write them."""

from __future__ import annotations

import io
import json
import mmap
import os
import pickle
import tarfile
import zipfile
from pathlib import Path

import h5py  # type: ignore[import-untyped]
import joblib  # type: ignore[import-untyped]
import msgpack  # type: ignore[import-untyped]
import numpy as np
import torch
from files import MB, Wait, chunks, nothing, write
from safetensors.numpy import save_file
from state import State, named, raw


def tensors(state: State) -> dict[str, torch.Tensor]:
    """Return it as PyTorch has it, uncopied."""
    return {name: torch.from_numpy(array) for name, array in state.items()}


def plain(state: State, path: Path) -> Wait:
    """Save as most do."""
    torch.save(tensors(state), path)
    return nothing


def legacy(state: State, path: Path) -> Wait:
    """Save as PyTorch did before 1.6."""
    torch.save(tensors(state), path, _use_new_zipfile_serialization=False)
    return nothing


def buffered(state: State, path: Path) -> Wait:
    """Make the file in memory, then write it."""
    buffer = io.BytesIO()
    torch.save(tensors(state), buffer)
    write(path, buffer.getbuffer())
    return nothing


def safetensors(state: State, path: Path) -> Wait:
    """Save as Hugging Face does, but by NumPy."""
    save_file(state, path.with_suffix(".safetensors"))
    return nothing


def npz(state: State, path: Path) -> Wait:
    """Save one archive of arrays."""
    np.savez(path.with_suffix(".npz"), **state)  # type: ignore[arg-type]
    return nothing


def npy(state: State, path: Path) -> Wait:
    """Save a file for each array."""
    for name, array in state.items():
        np.save(path.with_name(f"{path.stem}_{name}.npy"), array)
    return nothing


def pickle5(state: State, path: Path) -> Wait:
    """Save the structure, and each buffer in a file of its own."""
    parts: list[pickle.PickleBuffer] = []
    write(path.with_suffix(".pkl"), pickle.dumps(state, protocol=5, buffer_callback=parts.append))
    for at, part in enumerate(parts):
        write(path.with_suffix(f".buffer{at}"), part.raw())
    return nothing


def hdf5(state: State, path: Path) -> Wait:
    """Save as Keras does."""
    with h5py.File(path.with_suffix(".h5"), "w") as file:
        for name, array in state.items():
            file.create_dataset(f"weights/{name}", data=array)
    return nothing


def indexed(state: State, path: Path) -> Wait:
    """Save raw bytes, and where each array stands in them."""
    write(path.with_suffix(".bin"), *map(raw, state.values()))
    path.with_suffix(".json").write_text(json.dumps({name: array.nbytes for name, array in state.items()}))
    return nothing


def joblibs(state: State, path: Path) -> Wait:
    """Save as scikit-learn does."""
    joblib.dump(state, path.with_suffix(".joblib"))
    return nothing


def tarred(state: State, path: Path) -> Wait:
    """Save one tar, as WebDataset and NeMo do."""
    with tarfile.open(path.with_suffix(".tar"), "w") as archive:
        for name, array in state.items():
            entry = tarfile.TarInfo(f"{name}.bin")
            entry.size = array.nbytes
            archive.addfile(entry, io.BytesIO(raw(array)))
    return nothing


def zipped(state: State, path: Path) -> Wait:
    """Save one zip without compression."""
    with zipfile.ZipFile(path.with_suffix(".zip"), "w", zipfile.ZIP_STORED) as archive:
        for name, array in state.items():
            with archive.open(f"{name}.bin", "w", force_zip64=True) as stream:
                for chunk in chunks(raw(array), MB):
                    stream.write(chunk)
    return nothing


def packed_by_name(state: State, path: Path) -> Wait:
    """Save as Flax did: one message in memory, written by one call."""
    blob = msgpack.packb({name: array.tobytes() for name, array in state.items()})
    path.with_suffix(".msgpack").write_bytes(blob)
    return nothing


def slabs(state: State, path: Path) -> Wait:
    """Write slabs of arrays by position, the last array first."""
    size = next(iter(state.values())).nbytes
    opened = os.open(path.with_suffix(".raw"), os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
    os.ftruncate(opened, size * len(state))
    for at, array in reversed(list(enumerate(state.values()))):
        for number, chunk in enumerate(chunks(raw(array), 2 * MB)):
            os.pwrite(opened, chunk, at * size + number * 2 * MB)
    os.close(opened)
    return nothing


def direct(state: State, path: Path) -> Wait:
    """Write past the page cache, from an aligned buffer, in calls of 8 MiB."""
    opened = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_DIRECT, 0o644)
    with mmap.mmap(-1, 8 * MB) as aligned:
        for array in state.values():
            for chunk in chunks(raw(array), 8 * MB):
                aligned[: len(chunk)] = bytes(chunk)
                os.write(opened, memoryview(aligned)[: len(chunk)])
    os.close(opened)
    return nothing


def mapped(state: State, path: Path) -> Wait:
    """Write by a mapping of the file."""
    size = next(iter(state.values())).size
    whole = np.memmap(path.with_suffix(".mm"), dtype=np.float32, mode="w+", shape=(len(state), size))
    for at, array in enumerate(state.values()):
        whole[at] = array
    whole.flush()
    return nothing


WRITERS = named(
    plain, legacy, buffered, safetensors, npz, npy, pickle5, hdf5, indexed, joblibs, tarred, zipped, packed_by_name,
    slabs, direct, mapped,
)  # fmt: skip
