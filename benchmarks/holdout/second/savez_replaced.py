"""`np.savez` to a file of `tempfile`, synced, renamed over the last one; then the folder is synced."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
from lives import Life, until


def main() -> None:
    """Train, save five times."""
    life = Life(__doc__)
    path = life.folder / "params.npz"
    random = np.random.default_rng(1)
    weights = {f"w{at}": random.standard_normal((1024, 1024), dtype=np.float32) for at in range(15)}

    def step() -> None:
        np.tanh(weights["w0"] @ weights["w1"])

    for epoch in range(5):
        until(2.5, step)
        with life.save(path) as row:
            with tempfile.NamedTemporaryFile(dir=life.folder, delete=False) as part:
                with row.part("write"):
                    np.savez(part, epoch=np.array(epoch), **weights)
                with row.part("sync"):
                    part.flush()
                    os.fsync(part.fileno())
            Path(part.name).replace(path)
            with row.part("sync"):
                opened = os.open(life.folder, os.O_RDONLY)
                os.fsync(opened)
                os.close(opened)
    until(1, step)


if __name__ == "__main__":
    main()
