"""A state in SQLite: a row for each layer, a transaction for each save, the oldest rows deleted; a restart reads it."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import numpy as np
from lives import Life, until

LAYERS, NUMBERS, KEPT = 24, 500_000, 2


class Kept:
    """The database."""

    def __init__(self, path: Path) -> None:
        """Open it, and make the table."""
        self.database = sqlite3.connect(path, isolation_level=None)
        self.database.execute("CREATE TABLE IF NOT EXISTS state (step, layer, dtype, blob, PRIMARY KEY (step, layer))")

    def save(self, step: int, layers: dict[str, np.ndarray]) -> None:
        """Add the rows, and forget those of old steps."""
        self.database.execute("BEGIN IMMEDIATE")
        for name, one in layers.items():
            row = (step, name, one.dtype.str, memoryview(one).cast("B"))
            self.database.execute("INSERT OR REPLACE INTO state VALUES (?, ?, ?, ?)", row)
        steps = [row[0] for row in self.database.execute("SELECT DISTINCT step FROM state ORDER BY step")]
        self.database.executemany("DELETE FROM state WHERE step = ?", [(old,) for old in steps[:-KEPT]])
        self.database.execute("COMMIT")

    def load(self) -> tuple[int, dict[str, np.ndarray]]:
        """Return the newest step and its layers."""
        (step,) = self.database.execute("SELECT max(step) FROM state").fetchone()
        rows = self.database.execute("SELECT layer, dtype, blob FROM state WHERE step = ?", (step,))
        return step, {name: np.frombuffer(blob, dtype) for name, dtype, blob in rows}


def main() -> None:
    """Train in two lives."""
    life, random = Life(__doc__), np.random.default_rng(1)
    path = life.folder / "checkpoints.sqlite"
    kept, step = Kept(path), 0
    layers = {f"block.{at}.weight": random.standard_normal(NUMBERS, dtype=np.float32) for at in range(LAYERS)}
    total = sum(one.nbytes for one in layers.values())
    if life.again:
        with life.restore(path, bytes=total) as row, row.part("read"):
            step, layers = kept.load()
        layers = {name: one.copy() for name, one in layers.items()}

    def fit() -> None:
        for one in layers.values():
            np.multiply(one, np.float32(0.999), out=one)
        time.sleep(0.01)

    for _ in range(2 if life.again else 4):
        until(3.5, fit)
        step += 500
        with life.save(path, step=step, bytes=total) as row, row.part("write"):
            kept.save(step, layers)
    until(1.5, fit)
    if not life.again:
        kept.database.close()
        life.start_again()


if __name__ == "__main__":
    main()
