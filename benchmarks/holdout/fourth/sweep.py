"""As a sweep of Hydra: a process for each run, a folder for each; it keeps its best and its last, and ends at once.

The last run begins with the weights of the first.
"""

from __future__ import annotations

import os
import subprocess
import sys

import torch
from fitted import Fitted
from lives import Life

RUNS = ("lr=0.1", "lr=0.01", "lr=0.001", "lr=0.01,warm=true")


def run(life: Life, number: int) -> None:
    """Train once."""
    fitted = Fitted(10)
    folder = life.folder / f"multirun/2026-11-27/06-15-00/{number}_{RUNS[number]}/checkpoints"
    folder.mkdir(parents=True)
    if "warm" in RUNS[number]:
        path = life.folder / f"multirun/2026-11-27/06-15-00/0_{RUNS[0]}/checkpoints/best.ckpt"
        with life.restore(path) as row, row.part("read"):
            fitted.model.load_state_dict(torch.load(path)["model"])
    for name in ("best", "last"):
        fitted.train(4)
        path = folder / f"{name}.ckpt"
        with life.save(path) as row, row.part("write"):
            torch.save(fitted.state(overrides=RUNS[number]), path)


def main() -> None:
    """Launch the runs, one after the other, or be one."""
    life = Life(__doc__)
    if life.again:
        run(life, int(os.environ["RUN"]))
        return
    for number in range(len(RUNS)):
        command = [sys.executable, *sys.argv, "--again"]
        subprocess.run(command, check=True, env={**os.environ, "RUN": str(number)})


if __name__ == "__main__":
    main()
