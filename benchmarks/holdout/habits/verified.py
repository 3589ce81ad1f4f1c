"""Each checkpoint is synced, read back and hashed before it gets its name; the hash is kept beside it."""

from __future__ import annotations

import hashlib
import os

import numpy as np
from lives import Life, until


def main() -> None:
    """Train, save four times."""
    life = Life(__doc__)
    weights = np.random.default_rng(1).standard_normal((24, 1024, 1024), dtype=np.float32)

    def step() -> None:
        np.tanh(weights[0] @ weights[1])

    for number in range(1, 5):
        until(2.5, step)
        path = life.folder / f"ckpt-{number:03d}.npy"
        part = path.with_suffix(".npy.part")
        with life.save(path) as row:
            with row.part("write"), part.open("wb") as file:
                np.save(file, weights)
            with row.part("sync"):
                opened = os.open(part, os.O_RDONLY)
                os.fsync(opened)
                os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_DONTNEED)  # so that it is read from where it was put
                os.close(opened)
            with row.part("serialize"), part.open("rb") as file:
                found = hashlib.sha512()
                while piece := file.read(1 << 20):
                    found.update(piece)
            path.with_suffix(".sha512").write_text(found.hexdigest())
            part.replace(path)
    until(1, step)


if __name__ == "__main__":
    main()
