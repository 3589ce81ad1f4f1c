"""Keras' ModelCheckpoint of the best: `model.weights.h5` over itself; a restart goes on from it."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
from lives import Life, until

LAYERS, WIDTH = 12, 1400


def written(path: Path, weights: list[np.ndarray], moments: list[np.ndarray]) -> None:
    """Write it as Keras does: a group for each layer."""
    with h5py.File(path, "w") as file:
        for at, (weight, moment) in enumerate(zip(weights, moments, strict=True)):
            file.create_dataset(f"layers/dense_{at}/vars/0", data=weight)
            file.create_dataset(f"optimizer/vars/{at}", data=moment)


def main() -> None:
    """Fit six epochs in two lives."""
    life = Life(__doc__)
    path, random = life.folder / "model.weights.h5", np.random.default_rng(1)
    weights = [random.standard_normal((WIDTH, WIDTH), dtype=np.float32) for _ in range(LAYERS)]
    moments = [np.zeros_like(weight) for weight in weights]

    def step() -> None:
        values = random.standard_normal((16, WIDTH), dtype=np.float32)
        for weight in weights:
            values = np.tanh(values @ weight * 0.02)

    if life.again:
        with life.restore(path) as row, row.part("read"), h5py.File(path, "r") as file:
            for at in range(LAYERS):
                weights[at] = file[f"layers/dense_{at}/vars/0"][...]
                moments[at] = file[f"optimizer/vars/{at}"][...]
    for improved in (True, False, True, True):
        until(2.5, step)
        if improved:
            with life.save(path) as row, row.part("write"):
                written(path, weights, moments)
    until(1, step)
    if not life.again:
        life.start_again()


if __name__ == "__main__":
    main()
