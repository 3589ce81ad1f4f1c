"""A writer that begins again: after half of the file it is truncated, and all is written anew."""

from __future__ import annotations

import numpy as np
from lives import Life, until

MB = 1 << 20


def main() -> None:
    """Train, save four times, the second and the third at the second try."""
    life = Life(__doc__)
    weights = np.random.default_rng(1).standard_normal(30 * MB, dtype=np.float32)
    blob = weights.data.cast("B")

    def step() -> None:
        np.tanh(weights[: MB // 4].reshape(512, 512) @ weights[MB : MB + MB // 4].reshape(512, 512))

    for number in range(4):
        until(2.5, step)
        path = life.folder / f"ckpt_{number}.bin"
        with life.save(path) as row, row.part("write"), path.open("wb", buffering=0) as file:
            if number in {1, 2}:
                for at in range(0, len(blob) // 2, 4 * MB):
                    file.write(blob[at : at + 4 * MB])
                file.seek(0)
                file.truncate()
            for at in range(0, len(blob), 4 * MB):
                file.write(blob[at : at + 4 * MB])
    until(1, step)


if __name__ == "__main__":
    main()
