"""Two actors play and keep their games in files; the learner reads those of the last iterations.

Older ones are deleted. Nothing is saved: it is measured how fast it learns.
"""

from __future__ import annotations

import multiprocessing
import shutil
from pathlib import Path

import numpy as np
import torch
from fitted import Fitted
from lives import Life, until

ITERATIONS, WINDOW, GAMES = 8, 2, 3000


def played(folder: Path, actor: int) -> None:
    """Play, and keep the games."""
    random = np.random.default_rng(actor)
    board = random.standard_normal((300, 300))
    until(2, lambda: np.tanh(board @ board))
    np.savez(
        folder / f"actor_{actor}.npz",
        states=random.standard_normal((GAMES, 1024), dtype=np.float32),
        policies=random.random((GAMES, 362), dtype=np.float32),
        values=random.random(GAMES, dtype=np.float32),
    )


def main() -> None:
    """Play and learn."""
    life, fitted = Life(__doc__), Fitted(6)
    folders: list[Path] = []
    for iteration in range(ITERATIONS):
        folder = life.folder / f"self_play/iter_{iteration:04d}"
        folder.mkdir(parents=True)
        actors = [multiprocessing.get_context("fork").Process(target=played, args=(folder, at)) for at in range(2)]
        for actor in actors:
            actor.start()
        for actor in actors:
            actor.join()
        folders.append(folder)
        for old in folders[:-WINDOW]:
            shutil.rmtree(old)
        del folders[:-WINDOW]
        games = [np.load(path)["states"] for one in folders for path in sorted(one.glob("*.npz"))]
        newest = torch.from_numpy(games[-1])
        until(2, lambda newest=newest: fitted.step(newest[torch.randint(GAMES, (8,))]))
        with (life.folder / "elo.csv").open("a") as elo:
            print(iteration, 1000 + iteration, sep=",", file=elo)


if __name__ == "__main__":
    main()
