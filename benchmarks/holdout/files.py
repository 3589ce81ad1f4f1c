"""How files are written, by jobs of the hold-out with and without NumPy."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

MB = 1 << 20
Wait = Callable[[], object]  # ends when all is written; returns how much, if the files do not tell


def chunks(blob: bytes | memoryview, size: int = 4 * MB) -> Iterator[memoryview]:
    """Yield pieces of one size."""
    view = memoryview(blob)
    for start in range(0, len(view), size):
        yield view[start : start + size]


def write(path: Path, *blobs: bytes | memoryview) -> None:
    """Write them by large calls."""
    with path.open("wb", buffering=0) as stream:
        for blob in blobs:
            for chunk in chunks(blob):
                stream.write(chunk)


def sync(path: Path) -> None:
    """Put a file, or the names in a folder, on stable storage."""
    opened = os.open(path, os.O_RDONLY)
    os.fsync(opened)
    os.close(opened)


def nothing() -> None:
    """Wait for nobody."""
