"""Workers keep features of samples as `.npy` and `.safetensors` before training starts."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import numpy as np
from lives import Life, until
from safetensors.numpy import save_file

SAMPLES, WIDTH = 360, 400


def featured(task: tuple[Path, int]) -> None:
    """Compute and keep the features of one sample."""
    folder, at = task
    random = np.random.default_rng(at)
    values = random.standard_normal((WIDTH, WIDTH), dtype=np.float32)
    for _ in range(6):
        values = np.tanh(values @ values * 0.05)
    if at % 2:
        part = folder / "tmp" / f"{at:05d}.npy"
        np.save(part, values)
        part.replace(folder / "latents" / part.name)
    else:
        save_file({"latent": values, "mask": values > 0}, folder / "latents" / f"{at:05d}.safetensors")


def main() -> None:
    """Make the features, train on them, save three times."""
    life = Life(__doc__)
    (life.folder / "data/tmp").mkdir(parents=True)
    (life.folder / "data/latents").mkdir()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for _ in pool.imap_unordered(featured, [(life.folder / "data", at) for at in range(SAMPLES)]):
            pass
    weights = np.random.default_rng(1).standard_normal((2500, 2500), dtype=np.float32)
    paths = sorted((life.folder / "data/latents").glob("*.npy"))
    position = [0]

    def step() -> None:
        np.load(paths[position[0] % len(paths)])
        position[0] += 1
        np.tanh(weights[:200] @ weights)

    for number in range(3):
        until(2.5, step)
        path = life.folder / f"weights_{number:02d}.npz"
        with life.save(path) as row, row.part("write"):
            np.savez(path, weights=weights, moments=weights)
    until(1, step)


if __name__ == "__main__":
    main()
