"""A small job that saves: `python saver.py DIR SIZE_MB SAVES WAY`.

WAY is `raw`, a state that lies ready, or `packed`, which is compressed while it is written.
"""

from __future__ import annotations

import sys
import time
import zlib
from pathlib import Path

import numpy as np

PIECE = 4 << 20
TRAINING_SECONDS = 0.8


def train() -> None:
    """Compute for a while."""
    weights = np.random.default_rng(7).random((192, 192))
    until = time.monotonic() + TRAINING_SECONDS
    while time.monotonic() < until:
        weights = np.tanh(weights @ weights.T)


def main() -> None:
    """Train and save in turns."""
    place, size, saves, way = Path(sys.argv[1]), int(sys.argv[2]) << 20, int(sys.argv[3]), sys.argv[4]
    state = memoryview(np.random.default_rng(1).bytes(size))
    for step in range(saves):
        train()
        with (place / f"checkpoint_step_{step:06d}.npy").open("wb", buffering=0) as file:
            for begin in range(0, size, PIECE):
                piece = state[begin : begin + PIECE]
                file.write(zlib.compress(piece, 6) if way == "packed" else piece)
    train()


if __name__ == "__main__":
    main()
