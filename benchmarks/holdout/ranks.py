"""Saves of several ranks: each its own, all into one file, or one for all."""

from __future__ import annotations

import gzip
import os
import time
from pathlib import Path

import torch
from frame import MB, chunks, write
from rounds import State, named, raw
from saves import tensors
from torch import distributed

PIECE = 64 << 10  # numbers


def _mine(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.stem}_rank_{distributed.get_rank()}{suffix}")


def _last() -> bool:
    return distributed.get_rank() == distributed.get_world_size() - 1


def gathered(state: State, path: Path) -> None:
    """Collect the state of all ranks by gloo on one, which writes it."""
    rank, whole = distributed.get_rank(), {}
    for name, tensor in tensors(state).items():
        parts = [torch.empty_like(tensor) for _ in range(distributed.get_world_size())] if rank == 0 else None
        for start in range(0, len(tensor), PIECE):  # as a loop over parameters does
            to = [part[start : start + PIECE] for part in parts] if parts is not None else None
            distributed.gather(tensor[start : start + PIECE], to)
        whole[name] = parts
    if rank == 0:
        torch.save(whole, path)
    distributed.barrier()


def gathered_objects(state: State, path: Path) -> None:
    """Collect pickled objects, a megabyte at a time."""
    rank = distributed.get_rank()
    whole: list[object] = []
    for array in state.values():
        for chunk in chunks(raw(array), MB):
            parts: list[object] | None = [None] * distributed.get_world_size() if rank == 0 else None
            distributed.gather_object(bytes(chunk), parts)
            whole += parts or []
    if rank == 0:
        write(path, *(one for one in whole if isinstance(one, bytes)))
    distributed.barrier()


def sharded(state: State, path: Path) -> None:
    """Let each rank write its own."""
    torch.save(tensors(state), _mine(path, ".pt"))
    distributed.barrier()


def overslept(state: State, path: Path) -> None:
    """Let each rank write its own; the last one begins later."""
    if _last():
        time.sleep(1.5)
    sharded(state, path)


def strided(state: State, path: Path) -> None:
    """Let all ranks write pieces of one file in turn."""
    rank, world = distributed.get_rank(), distributed.get_world_size()
    opened = os.open(path, os.O_CREAT | os.O_WRONLY, 0o644)
    pieces = (chunk for array in state.values() for chunk in chunks(raw(array), MB))
    for at, piece in enumerate(pieces):
        os.pwrite(opened, piece, (at * world + rank) * MB)
    os.close(opened)
    distributed.barrier()


def by_first(state: State, path: Path) -> None:
    """Let the first rank write what all have, and all wait."""
    if distributed.get_rank() == 0:
        torch.save(tensors(state), path)
    distributed.barrier()


def packed_by_first(state: State, path: Path) -> None:
    """Let the first rank compress what all have, and all wait."""
    if distributed.get_rank() == 0:
        _gzip(state, path.with_suffix(".gz"))
    distributed.barrier()


def packed_by_each(state: State, path: Path) -> None:
    """Let each rank compress its own."""
    _gzip(state, _mine(path, ".gz"))
    distributed.barrier()


def packed_by_part(state: State, path: Path) -> None:
    """Let each rank compress its part of what all have."""
    rank, world = distributed.get_rank(), distributed.get_world_size()
    _gzip(dict(list(state.items())[rank::world]), _mine(path, ".gz"))
    distributed.barrier()


def _gzip(state: State, path: Path) -> None:
    with gzip.open(path, "wb", compresslevel=1) as stream:
        for array in state.values():
            stream.write(raw(array))


RANKS = named(
    [
        gathered,
        gathered_objects,
        sharded,
        overslept,
        strided,
        by_first,
        packed_by_first,
        packed_by_each,
        packed_by_part,
    ]
)
