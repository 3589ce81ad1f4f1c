"""As a directory store of Zarr: a folder for each array, a file for each chunk, each written beside and renamed.

The control has the same chunks in one zip.
"""

from __future__ import annotations

import json
import os
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from lives import Life, until

ARRAYS, CHUNKS, CHUNK_BYTES = 48, 160, 4096
_MOST = 0.6  # of its time is what limited it
Store = Callable[[str, bytes], None]


def items(arrays: dict[str, np.ndarray]) -> Iterator[tuple[str, bytes]]:
    """Yield what stands where."""
    for name, array in arrays.items():
        described = {"zarr_format": 2, "shape": list(array.shape), "chunks": [CHUNK_BYTES // 4], "dtype": "<f4"}
        yield f"{name}/.zarray", json.dumps(described).encode()
        blob = array.tobytes()
        for at in range(CHUNKS):
            yield f"{name}/{at}", blob[at * CHUNK_BYTES : (at + 1) * CHUNK_BYTES]


class Folder:
    """Files below a folder, and how long their names took."""

    def __init__(self, path: Path) -> None:
        """Make it."""
        self.path, self.seconds = path, 0.0
        path.mkdir()

    def __call__(self, name: str, blob: bytes) -> None:
        """Write one."""
        path = self.path / name
        start = time.monotonic()
        path.parent.mkdir(exist_ok=True)
        part = path.with_name(f"{path.name}.{os.getpid():08x}.partial")
        opened = os.open(part, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o644)
        self.seconds += time.monotonic() - start
        os.write(opened, blob)
        start = time.monotonic()
        os.close(opened)
        part.replace(path)
        self.seconds += time.monotonic() - start


def life_of(*, scattered: bool) -> None:
    """Train, save four times."""
    life, random = Life(__doc__), np.random.default_rng(1)
    length = CHUNKS * CHUNK_BYTES // 4
    arrays = {f"layer{at:02d}.weight": random.standard_normal(length, dtype=np.float32) for at in range(ARRAYS)}
    weights = random.standard_normal((400, 400))
    for step in (1000, 2000, 3000, 4000):
        until(4, lambda: np.tanh(weights @ weights))
        path = life.folder / f"step_{step}.zarr{'' if scattered else '.zip'}"
        with life.save(path, step=step) as row:
            start = time.monotonic()
            if scattered:
                store = Folder(path)
                for name, blob in items(arrays):
                    store(name, blob)
                most = store.seconds >= _MOST * (time.monotonic() - start)
                row.known["limits"] = ("metadata",) if most else ("metadata", "serialize")
            else:
                with zipfile.ZipFile(path, "w") as archive:
                    for name, blob in items(arrays):
                        archive.writestr(name, blob)
    until(1.5, lambda: np.tanh(weights @ weights))


if __name__ == "__main__":
    life_of(scattered=True)
