"""Restores, and what makes the checkpoints for them: the way of reading differs."""

from __future__ import annotations

import gzip
import mmap
import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from frame import MB, write
from numpy.typing import NDArray
from rounds import State, Way, raw
from saves import in_files, npy, npz, plain
from torch import distributed

SMALL = 32 << 10


PAGE = 4 << 10


def _bare(state: State, path: Path) -> None:
    write(path, *map(raw, state.values()))


def _gzip(state: State, path: Path) -> None:
    with gzip.open(path, "wb", compresslevel=1) as stream:
        for array in state.values():
            stream.write(raw(array))


def _two(state: State, path: Path) -> None:
    for rank in (0, 1):
        plain(state, path.with_name(f"{path.stem}_rank_{rank}.pt"))


def load(state: State, path: Path) -> None:
    """Load as most do."""
    state.update({name: tensor.numpy() for name, tensor in torch.load(path).items()})


def load_mapped(state: State, path: Path) -> None:
    """Load by a mapping, and copy out of it."""
    found = torch.load(path, mmap=True)
    state.update({name: tensor.clone().numpy() for name, tensor in found.items()})


def load_npz(state: State, path: Path) -> None:
    """Load an archive of arrays."""
    with np.load(path.with_suffix(".npz")) as found:
        state.update({name: found[name] for name in found.files})


def load_in_threads(state: State, path: Path) -> None:
    """Load each array by a thread of its own."""

    def one(name: str) -> NDArray[np.float32]:
        array: NDArray[np.float32] = np.load(path.with_name(f"{path.stem}_{name}.npy"))
        return array

    with ThreadPoolExecutor(4) as pool:
        state.update(zip(state, pool.map(one, state), strict=True))


def load_files(state: State, path: Path) -> None:
    """Load a state that is a file for each parameter."""
    for name in state:
        parts = sorted(path.parent.glob(f"{name}.*.param"))
        state[name] = np.concatenate([np.frombuffer(part.read_bytes(), np.float32) for part in parts])


def load_packed(state: State, path: Path) -> None:
    """Load what was compressed."""
    with gzip.open(path, "rb") as stream:
        for name, array in state.items():
            state[name] = np.frombuffer(stream.read(array.nbytes), np.float32)


def _pieces(state: State, path: Path, size: int, flags: int, order: random.Random | None) -> None:
    opened, whole = os.open(path, os.O_RDONLY | flags), path.stat().st_size
    offsets = list(range(0, whole, size))
    if order is not None:
        os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_RANDOM)
        order.shuffle(offsets)
    buffer = mmap.mmap(-1, size)
    found = np.empty(whole, np.uint8)
    for offset in offsets:
        count = os.preadv(opened, [buffer], offset)
        found[offset : offset + count] = np.frombuffer(buffer, np.uint8, count)
    os.close(opened)
    for name, array in zip(state, np.split(found.view(np.float32), len(state)), strict=True):
        state[name] = array


def load_large(state: State, path: Path) -> None:
    """Read in order, in pieces of 4 MiB."""
    _pieces(state, path, 4 * MB, 0, None)


def load_small_direct(state: State, path: Path) -> None:
    """Read small pieces past the page cache."""
    _pieces(state, path, SMALL // 2, os.O_DIRECT, random.Random(1))


def load_large_direct(state: State, path: Path) -> None:
    """Read large pieces past the page cache."""
    _pieces(state, path, 4 * MB, os.O_DIRECT, None)


def load_by_faults(state: State, path: Path) -> None:
    """Touch the pages of a mapping in any order, without reading ahead."""
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        mapped.madvise(mmap.MADV_RANDOM)
        found = bytearray(len(mapped))
        offsets = list(range(0, len(mapped), PAGE))
        random.Random(1).shuffle(offsets)
        for offset in offsets:
            found[offset : offset + PAGE] = mapped[offset : offset + PAGE]
    for name, array in zip(state, np.split(np.frombuffer(found, np.float32), len(state)), strict=True):
        state[name] = array


def load_own(state: State, path: Path) -> None:
    """Let each rank load its own file."""
    load(state, path.with_name(f"{path.stem}_rank_{distributed.get_rank()}.pt"))
    distributed.barrier()


def load_and_send(state: State, path: Path) -> None:
    """Let the first rank load, and send it to the others."""
    if distributed.get_rank() == 0:
        load(state, path)
    for array in state.values():
        distributed.broadcast(torch.from_numpy(array), 0)


_MAKERS: dict[Way, Way] = {
    load: plain, load_mapped: plain, load_npz: npz, load_in_threads: npy, load_files: in_files, load_packed: _gzip,
    load_large: _bare, load_small_direct: _bare, load_large_direct: _bare,
    load_by_faults: _bare, load_own: _two, load_and_send: plain,
}  # fmt: skip
RESTORES = {way.__name__.replace("_", "-"): (maker, way) for way, maker in _MAKERS.items()}
