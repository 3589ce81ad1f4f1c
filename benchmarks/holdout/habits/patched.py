"""One file that is never truncated: each save writes all of it over, from its begin; the restart reads it."""

from __future__ import annotations

import os

import numpy as np
from lives import Life, until

MB = 1 << 20


def main() -> None:
    """Train in two lives."""
    life = Life(__doc__)
    path = life.folder / "params.dat"
    weights = np.random.default_rng(1).standard_normal((20, 1024, 1024), dtype=np.float32)
    blob = weights.data.cast("B")

    def step() -> None:
        np.tanh(weights[0] @ weights[1])

    if life.again:
        with life.restore(path) as row, row.part("read"):
            weights = np.fromfile(path, dtype=np.float32).reshape(weights.shape)
    for _ in range(2 if life.again else 4):
        until(2.5, step)
        with life.save(path) as row:
            opened = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            with row.part("write"):
                for at in range(0, len(blob), MB):
                    os.pwrite(opened, blob[at : at + MB], at)
            with row.part("sync"):
                os.fdatasync(opened)
            os.close(opened)
    until(1, step)
    if not life.again:
        life.start_again()


if __name__ == "__main__":
    main()
