"""Weights and both moments have a mapped file each, of which a save overwrites all, and flushes it; a restart maps."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from lives import Life, until

NUMBERS = 6_000_000
NAMES = ("params", "exp_avg", "exp_avg_sq")


def main() -> None:
    """Train in two lives."""
    life, random = Life(__doc__), np.random.default_rng(1)
    paths = [life.folder / f"state/{name}.dat" for name in NAMES]
    paths[0].parent.mkdir(exist_ok=True)
    if life.again:
        with life.restore(*paths) as row, row.part("read"):
            maps = [np.memmap(path, np.float32, "r+") for path in paths]
            arrays = [np.array(one) for one in maps]
    else:
        maps = [np.memmap(path, np.float32, "w+", shape=NUMBERS) for path in paths]
        arrays = [random.standard_normal(NUMBERS, dtype=np.float32) for _ in paths]

    def fit() -> None:
        gradient = random.standard_normal(200_000, dtype=np.float32)
        for one in arrays:
            one[: len(gradient)] = 0.9 * one[: len(gradient)] + 0.1 * gradient

    marker = Path(life.folder / "state/meta.json")
    for step in (200, 300) if life.again else (50, 100, 150):
        until(4, fit)
        with life.save(*paths) as row:
            for target, one in zip(maps, arrays, strict=True):
                with row.part("write"):
                    target[:] = one
                with row.part("sync"):
                    target.flush()
            marker.write_text(json.dumps({"step": step}))
    until(1.5, fit)
    if not life.again:
        life.start_again()


if __name__ == "__main__":
    main()
