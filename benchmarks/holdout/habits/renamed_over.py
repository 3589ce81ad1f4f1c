"""Plain Python that does it by the book: written beside, synced, renamed over the last, the folder synced."""

from __future__ import annotations

import array
import math
import os
import pickle

from lives import Life, until

MB = 1 << 20


def main() -> None:
    """Train, save four times."""
    life = Life(__doc__)
    numbers = {f"layer{at}": array.array("d", os.urandom(MB) * 16) for at in range(5)}
    weights = [0.1] * 2000
    path = life.folder / "state.pkl"

    def step() -> None:
        weights[:] = [math.tanh(weight * 1.01) for weight in weights]

    for epoch in range(4):
        until(2.5, step)
        with life.save(path) as row:
            part = path.with_name(path.name + ".new")
            with part.open("wb") as file:
                with row.part("write"):
                    pickle.dump({"epoch": epoch, "layers": numbers}, file)
                with row.part("sync"):
                    file.flush()
                    os.fsync(file.fileno())
            part.replace(path)
            opened = os.open(life.folder, os.O_RDONLY)
            os.fsync(opened)
            os.close(opened)
    until(1, step)


if __name__ == "__main__":
    main()
