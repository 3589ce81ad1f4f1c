"""Trials of a search: SQLite keeps what each one reports, some of it large, beside the checkpoints of the trials."""

from __future__ import annotations

import sqlite3

import numpy as np
import torch
from fitted import Fitted
from lives import Life


def main() -> None:
    """Try four times; each trial reports eight times, and saves once."""
    life, fitted = Life(__doc__), Fitted(9)
    study = sqlite3.connect(life.folder / "study.db")
    study.execute("CREATE TABLE reports (trial INTEGER, step INTEGER, value REAL, predictions BLOB)")
    predictions = np.random.default_rng(1)
    for trial in range(4):
        for step in range(8):
            fitted.train(0.4)
            blob = predictions.standard_normal(400_000, dtype=np.float32).tobytes()
            with study:
                study.execute("INSERT INTO reports VALUES (?, ?, ?, ?)", (trial, step, 1 / (step + 1), blob))
        path = life.folder / f"trial_{trial}/model.pt"
        path.parent.mkdir()
        with life.save(path) as row, row.part("write"):
            torch.save(fitted.state(lr=10.0**-trial), path)
        if trial == 2:
            fitted.train(1)
            with study:  # what lost is forgotten
                study.execute("DELETE FROM reports WHERE trial < 2")
            study.execute("VACUUM")
    fitted.train(1)
    study.close()


if __name__ == "__main__":
    main()
