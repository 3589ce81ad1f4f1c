"""A replay buffer grows for ever in one `.bin`, some megabytes at a time, beside checkpoints of the agent."""

from __future__ import annotations

import pickle

import numpy as np
from lives import Life, until


def main() -> None:
    """Play, keep what was seen, save three times."""
    life = Life(__doc__)
    weights = np.random.default_rng(1).standard_normal((16, 1024, 1024), dtype=np.float32)
    seen = np.random.default_rng(2).integers(0, 255, 3 << 20, dtype=np.uint8)

    def step() -> None:
        np.tanh(weights[0] @ weights[1])

    with (life.folder / "replay_buffer.bin").open("ab") as buffer:
        for number in range(3):
            for _ in range(10):
                until(0.3, step)
                buffer.write(seen)
                buffer.flush()
            path = life.folder / f"agent_{number}.pkl"
            with life.save(path) as row, row.part("write"), path.open("wb") as file:
                pickle.dump({"weights": weights, "episode": number}, file, protocol=4)
        until(2, step)


if __name__ == "__main__":
    main()
