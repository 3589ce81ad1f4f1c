"""Layers are compressed by a pool of processes, which the trainer waits for before it writes one file.

The control has the same pool, which only packs the bytes.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import zlib
from multiprocessing.pool import Pool

import numpy as np
from lives import Life, until

LAYERS, NUMBERS = 16, 500_000


def packed(name: str, blob: bytes, level: int) -> bytes:
    """Return what stands in the file of one layer."""
    body = zlib.compress(blob, level) if level else blob
    return pickle.dumps({"name": name, "codec": f"zlib-{level}", "body": body})


def _trained(life: Life, pool: Pool, level: int) -> None:
    random = np.random.default_rng(1)
    layers = {f"layers.{at}": random.standard_normal(NUMBERS, dtype=np.float32) for at in range(LAYERS)}

    def fit() -> None:
        for one in layers.values():
            np.multiply(one, np.float32(0.999), out=one)

    for step in (250, 500, 750, 1000):
        until(4, fit)
        path = life.folder / f"model-{step:06d}.bin"
        with life.save(path, step=step) as row:
            work = [(name, one.tobytes(), level) for name, one in layers.items()]
            with row.part("serialize") if level else contextlib.nullcontext():
                blobs = pool.starmap(packed, work, chunksize=1)
            with path.open("wb") as file:
                for blob in blobs:
                    file.write(len(blob).to_bytes(8, "little"))
                    file.write(blob)
    until(1.5, fit)


def life_of(*, level: int) -> None:
    """Train, save four times."""
    life = Life(__doc__)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        _trained(life, pool, level)


if __name__ == "__main__":
    life_of(level=6)
