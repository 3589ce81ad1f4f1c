"""Examples: one save of each framework, file by file, as its source code writes them.

Tests replay them through the detector at both levels, as two saves and a restore. `{step}` stands for the step,
`{rank}` for the rank (`{rank1}`: counted from one), each with an optional width (`{step:07}`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from posixpath import commonpath
from typing import Any

SMALL = 0.01  # MiB: metadata next to the weights

# first bytes
TORCH_ZIP = b"PK\x03\x04" + bytes(12)
SAFETENSORS = (4096).to_bytes(8, "little") + b'{"a":{"d'
PICKLE = b"\x80\x04\x95" + bytes(13)
HDF5 = b"\x89HDF\r\n\x1a\n" + bytes(8)
NPZ = b"PK\x03\x04" + bytes(12)
GZIP = b"\x1f\x8b\x08" + bytes(13)
GGUF = b"GGUF" + bytes(12)
TENSORIZER = b"|TZR|\x01" + bytes(10)

_HOLE = re.compile(r"\{(\w+)(?::0?(\d+))?\}")


@dataclass(frozen=True)
class ExampleFile:
    """One file of a save."""

    path: str  # below the root
    mib: float
    rank: int = 0
    temporary: str | None = None  # path during the write
    magic: bytes | None = None
    sync_seconds: float = 0.0  # seconds in fsync


@dataclass(frozen=True)
class ExampleSave:
    """One save: its files in the order of writing, and the report expected of the detector."""

    files: tuple[ExampleFile, ...]
    path: str | None = None  # below the root; None: its only file, or the folder of all except markers
    program: str = "train.py"
    runtimes: tuple[str, ...] = ("torch", "numpy")
    mapped: bool = False  # restored by mmap
    variant: str = ""

    @property
    def name(self) -> str:
        """Path in reports, below the root."""
        if self.path is not None:
            return self.path
        return commonpath([file.path for file in self.files if file.mib != SMALL])

    @property
    def ranks(self) -> int:
        """Number of ranks that write it."""
        return max(file.rank for file in self.files) + 1


def example_save(*files: ExampleFile, **options: Any) -> ExampleSave:
    """Make a save of these files."""
    return ExampleSave(files, **options)


def fill_numbers(text: str, **numbers: int) -> str:
    """Fill the numbers into a name; those that are not given stay open."""

    def number(hole: re.Match[str]) -> str:
        return f"{numbers[hole[1]]:0{hole[2] or 0}}" if hole[1] in numbers else hole[0]

    return _HOLE.sub(number, text)


def files_of_ranks(file: ExampleFile, ranks: int = 2) -> tuple[ExampleFile, ...]:
    """Repeat a file for every rank."""

    def of(rank: int) -> ExampleFile:
        def name(text: str) -> str:
            return fill_numbers(text, rank=rank, rank1=rank + 1)

        temporary = name(file.temporary) if file.temporary is not None else None
        return replace(file, path=name(file.path), temporary=temporary, rank=rank)

    return tuple(of(rank) for rank in range(ranks))


def torch_file(path: str, mib: float = 40, temporary: str | None = None) -> ExampleFile:
    """Make a file of torch.save."""
    return ExampleFile(path, mib, temporary=temporary, magic=TORCH_ZIP)


def safetensors_file(path: str, mib: float = 40) -> ExampleFile:
    """Make a file of safetensors, written under a temporary name and renamed."""
    return ExampleFile(path, mib, temporary=path.rpartition("/")[0] + "/.tmpAb3X9k", magic=SAFETENSORS)


def dcp_files(folder: str, mib: float = 40) -> tuple[ExampleFile, ...]:
    """Make the files of PyTorch DCP: each is synced, .metadata is renamed into place last."""
    metadata = ExampleFile(f"{folder}/.metadata", SMALL, temporary=f"{folder}/.metadata.tmp", sync_seconds=0.01)
    return (*files_of_ranks(ExampleFile(f"{folder}/__{{rank}}_0.distcp", mib, sync_seconds=0.05)), metadata)
