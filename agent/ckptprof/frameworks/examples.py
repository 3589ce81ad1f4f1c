"""How an entry shows what its framework does to files: one save, file by file, as its source writes them.

Tests play these to the detector at both levels, as two saves and a restore. `{step}` stands for the step, `{rank}` for
the rank (`{rank1}`: counted from one), each with a width if need be (`{step:07}`); `filled` puts the numbers in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from posixpath import commonpath

SMALL = 0.01  # MiB: a note beside the weights

# first bytes
TORCH_ZIP = b"PK\x03\x04" + bytes(12)
SAFETENSORS = (4096).to_bytes(8, "little") + b'{"a":{"d'
PICKLE = b"\x80\x04\x95" + bytes(13)
HDF5 = b"\x89HDF\r\n\x1a\n" + bytes(8)
NPZ = b"PK\x03\x04" + bytes(12)
GZIP = b"\x1f\x8b\x08" + bytes(13)
GGUF = b"GGUF" + bytes(12)

_HOLE = re.compile(r"\{(\w+)(?::0?(\d+))?\}")


@dataclass(frozen=True)
class Write:
    """One file of a save."""

    path: str  # below the root
    mib: float
    rank: int = 0
    temporary: str | None = None  # the path that it is written under
    magic: bytes | None = None
    held_s: float = 0.0  # in fsync


@dataclass(frozen=True)
class Save:
    """One save: its files in the order in which they are written, and what is to be told of it."""

    files: tuple[Write, ...]
    path: str | None = None  # below the root; None: its one file, or the folder of all, but for markers
    program: str = "train.py"
    runtimes: tuple[str, ...] = ("torch", "numpy")
    mapped: bool = False  # restored by mmap
    variant: str = ""

    @property
    def name(self) -> str:
        """What a report calls it, below the root."""
        if self.path is not None:
            return self.path
        return commonpath([file.path for file in self.files if file.mib != SMALL])

    @property
    def ranks(self) -> int:
        """The number of ranks that write it."""
        return max(file.rank for file in self.files) + 1


def filled(text: str, **numbers: int) -> str:
    """Return a name with its numbers in place; those that are not given stay open."""

    def number(hole: re.Match[str]) -> str:
        return f"{numbers[hole[1]]:0{hole[2] or 0}}" if hole[1] in numbers else hole[0]

    return _HOLE.sub(number, text)


def each(file: Write, ranks: int = 2) -> tuple[Write, ...]:
    """Return the same file of every rank."""

    def of(rank: int) -> Write:
        def name(text: str) -> str:
            return filled(text, rank=rank, rank1=rank + 1)

        temporary = name(file.temporary) if file.temporary is not None else None
        return replace(file, path=name(file.path), temporary=temporary, rank=rank)

    return tuple(of(rank) for rank in range(ranks))


def tensor(path: str, mib: float = 40, temporary: str | None = None) -> Write:
    """Return a file of torch.save."""
    return Write(path, mib, temporary=temporary, magic=TORCH_ZIP)


def safetensors(path: str, mib: float = 40) -> Write:
    """Return a file of safetensors, written under a name of its own and renamed."""
    return Write(path, mib, temporary=path.rpartition("/")[0] + "/.tmpAb3X9k", magic=SAFETENSORS)


def dcp(folder: str, mib: float = 40) -> tuple[Write, ...]:
    """Return the files of PyTorch DCP: each is synced, .metadata is renamed into place last."""
    metadata = Write(f"{folder}/.metadata", SMALL, temporary=f"{folder}/.metadata.tmp", held_s=0.01)
    return (*each(Write(f"{folder}/__{{rank}}_0.distcp", mib, held_s=0.05)), metadata)
