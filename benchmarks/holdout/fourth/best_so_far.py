"""As nanoGPT: batches from a mapped file, an evaluation, `ckpt.pt` over the last one if the loss is less; resumed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from fitted import Fitted
from lives import Life, until

BLOCK, BATCH, WIDTH = 128, 8, 1024
SETS = {"train": 48 << 20, "val": 8 << 20}  # bytes


class Tokens:
    """The data set, mapped anew for each batch, as nanoGPT does against a leak."""

    def __init__(self, folder: Path) -> None:
        """Make the files, if this is the first life."""
        self.folder = folder
        self.random = np.random.default_rng(1)
        if not folder.exists():
            folder.mkdir()
            for name, length in SETS.items():
                (folder / f"{name}.bin").write_bytes(self.random.integers(0, 50257, length // 2, dtype=np.uint16).data)

    def batch(self, name: str) -> torch.Tensor:
        """Return blocks from anywhere."""
        data = np.memmap(self.folder / f"{name}.bin", np.uint16, "r")
        starts = self.random.integers(len(data) - WIDTH, size=BATCH)
        return torch.from_numpy(np.stack([data[at : at + WIDTH].astype(np.float32) for at in starts])) / 50257


def main() -> None:
    """Train for five evaluations, of which four improve; resume, and train for two more."""
    life, fitted = Life(__doc__), Fitted(7)
    tokens = Tokens(life.folder.parent / "data")
    path, first, losses = life.folder / "ckpt.pt", 0, (0.9, 0.7, 0.75, 0.6, 0.5)
    if life.again:
        with life.restore(path) as row, row.part("read"):
            kept = torch.load(path, map_location="cpu")
            fitted.load(kept)
        first, losses = kept["iter_num"], (0.45, 0.4)
    best = 1.0
    for number, loss in enumerate(losses, first // 250 + 1):
        until(2.5, lambda: fitted.step(tokens.batch("train")))
        with torch.no_grad():
            for name in SETS:
                until(0.7, lambda name=name: fitted.model(tokens.batch(name)))
        if loss > best:
            continue
        best = loss
        state = fitted.state(iter_num=250 * number, best_val_loss=loss, model_args={"n_layer": 7, "block_size": BLOCK})
        with life.save(path) as row, row.part("write"):
            torch.save(state, path)
    until(1.5, lambda: fitted.step(tokens.batch("train")))
    if not life.again:
        life.start_again()


if __name__ == "__main__":
    main()
