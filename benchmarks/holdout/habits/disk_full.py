"""The disk is full in the midst of the fourth save; the job says so, deletes older ones, and the fifth succeeds."""

from __future__ import annotations

import os
import pickle

import numpy as np
from lives import Life, until

MB = 1 << 20


def main() -> None:
    """Train, try to save five times."""
    life = Life(__doc__)
    if life.prepare:  # 220 MB are left, and a save has 67
        with (life.folder / "others").open("wb") as file:
            found = os.statvfs(life.folder)
            os.posix_fallocate(file.fileno(), 0, found.f_bfree * found.f_bsize - 220 * MB)
        return
    weights = np.random.default_rng(1).standard_normal((16, 1024, 1024), dtype=np.float32)
    written = []

    def step() -> None:
        np.tanh(weights[0] @ weights[1])

    for number in range(1, 6):
        until(2.5, step)
        path = life.folder / f"step_{number}00.pkl"
        with life.save(path, step=100 * number) as row, row.part("write"):
            try:
                with path.open("wb") as file:
                    pickle.dump({f"layer{at}": weights[at] for at in range(len(weights))}, file, protocol=4)
                written.append(path)
            except OSError as error:
                print(f"cannot save {path}: {error}")
                row.known |= {"status": "incomplete", "risks": ["the disk was full"]}
        if row.known:
            for old in written[:2]:
                old.unlink()
    until(1, step)


if __name__ == "__main__":
    main()
