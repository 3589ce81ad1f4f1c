"""Loader workers keep each tokenised sample as `.pt`, out of a temporary folder; the trainer saves twice beside."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from fitted import Fitted
from lives import Life
from torch.utils.data import DataLoader, Dataset

SAMPLES = 400


class Cached(Dataset[torch.Tensor]):
    """Makes a sample once, and reads it from then on."""

    def __init__(self, folder: Path) -> None:
        """Keep them in this folder."""
        self.folder = folder

    def __len__(self) -> int:
        """Return how many there are."""
        return SAMPLES

    def __getitem__(self, at: int) -> torch.Tensor:
        """Return one."""
        path = self.folder / f"sample_{at:06d}.pt"
        if path.exists():
            tokens: torch.Tensor = torch.load(path)["input_ids"]
        else:
            tokens = torch.randint(50_000, (40_000,))
            with tempfile.TemporaryDirectory(dir=self.folder) as part:
                torch.save({"input_ids": tokens}, Path(part) / "sample.pt")
                (Path(part) / "sample.pt").replace(path)
        return tokens[:1024].float() / 50_000


def main() -> None:
    """Go through the samples twice: they are made in the first epoch, and read in the second."""
    life, fitted = Life(__doc__), Fitted(8)
    cache = life.folder / "cache/train"
    cache.mkdir(parents=True)
    for epoch in range(2):
        for batch in DataLoader(Cached(cache), batch_size=8, num_workers=2, shuffle=True):
            fitted.train(0.1)
            fitted.model(batch)
        path = life.folder / f"model_epoch{epoch}.pt"
        with life.save(path) as row, row.part("write"):
            torch.save(fitted.state(epoch=epoch), path)
    fitted.train(1)


if __name__ == "__main__":
    main()
