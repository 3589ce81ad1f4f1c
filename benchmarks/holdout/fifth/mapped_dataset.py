"""As a map of `datasets`: two workers write Arrow-like caches under a name for the time, and rename them.

Training reads them by a mapping, then an epoch with other lengths makes new ones. Nothing is saved.
"""

from __future__ import annotations

import hashlib
import multiprocessing
from pathlib import Path

import numpy as np
import torch
from fitted import Fitted
from lives import Life, until

ROWS, WIDTH = 12_000, 1024


def mapped(folder: Path, worker: int, epoch: int) -> None:
    """Tokenise a part, and keep it."""
    random = np.random.default_rng(worker)
    name = hashlib.md5(f"{worker}{epoch}".encode(), usedforsecurity=False).hexdigest()[:16]
    part = folder / f"tmp{name[:8]}"
    with part.open("wb") as file:
        for _ in range(ROWS // 500):
            rows = random.integers(0, 50_000, (500, WIDTH), dtype=np.int32)
            rows.sort(axis=1)
            file.write(rows.tobytes())
    part.rename(folder / f"cache-{name}_{worker:05d}_of_00002.arrow")


def main() -> None:
    """Train three epochs, each of them on caches of its own."""
    life, fitted = Life(__doc__), Fitted(6)
    folder = life.folder / "wikitext/train"
    folder.mkdir(parents=True)
    for epoch in range(3):
        workers = [
            multiprocessing.get_context("fork").Process(target=mapped, args=(folder, at, epoch)) for at in range(2)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        caches = sorted(folder.glob("cache-*.arrow"), key=lambda one: one.stat().st_mtime)[-2:]
        rows = [np.memmap(cache, np.int32, "r").reshape(-1, WIDTH) for cache in caches]
        random = np.random.default_rng(epoch)

        def step(rows: list[np.ndarray] = rows, random: np.random.Generator = random) -> None:
            batch = rows[random.integers(2)][random.integers(ROWS - 500, size=8)]
            fitted.step(torch.from_numpy(batch.astype(np.float32) / 50_000))

        until(6, step)
    fitted.train(1.5)


if __name__ == "__main__":
    main()
