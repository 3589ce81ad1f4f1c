"""As timm's CheckpointSaver, beside two workers that augment: `last` is replaced, and links keep the best.

A recovery point is written within an epoch, and the one before it is deleted. The average of the weights is saved, too.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fitted import Fitted
from lives import Life, until
from torch.utils.data import DataLoader, IterableDataset

KEPT = 2


class Augmented(IterableDataset[torch.Tensor]):
    """Pictures that cost a CPU."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Yield batches without end."""
        random = np.random.default_rng()
        while True:
            pictures = random.standard_normal((64, 64, 64))
            spectrum = np.fft.ifft2(np.fft.fft2(pictures) * np.hanning(64)).real
            yield torch.from_numpy(spectrum.reshape(256, 1024)[:8].astype(np.float32))


def _linked(life: Life, last: Path, kept: list[Path], epoch: int) -> None:
    """Give it the name of its epoch, and that of the best; forget the worst."""
    path = life.folder / f"checkpoint-{epoch}.pth.tar"
    path.hardlink_to(last)
    kept.append(path)
    for worse in kept[:-KEPT]:
        worse.unlink()
    del kept[:-KEPT]
    best = life.folder / "model_best.pth.tar"
    best.unlink(missing_ok=True)
    best.hardlink_to(path)


def main() -> None:
    """Train four epochs with a recovery point in the midst of each."""
    life, fitted = Life(__doc__), Fitted(6)
    average = copy.deepcopy(fitted.model)
    batches = iter(DataLoader(Augmented(), batch_size=None, num_workers=2))
    kept: list[Path] = []
    recovery: Path | None = None

    def step() -> None:
        fitted.step(next(batches))
        with torch.no_grad():
            for mean, now in zip(average.parameters(), fitted.model.parameters(), strict=True):
                mean.lerp_(now, 0.01)

    def state(epoch: int) -> dict[str, Any]:
        return fitted.state(epoch=epoch, arch="vit", state_dict_ema=average.state_dict(), version=2)

    for epoch in range(4):
        until(3, step)
        path = life.folder / f"recovery-{epoch}-40.pth.tar"
        with life.save(path) as row:
            with row.part("write"):
                torch.save(state(epoch), path)
            if recovery is not None:
                recovery.unlink()
            recovery = path
        until(3, step)
        part, last = life.folder / "tmp.pth.tar", life.folder / "last.pth.tar"
        with life.save(last) as row:
            with row.part("write"):
                torch.save(state(epoch), part)
            part.replace(last)
            _linked(life, last, kept, epoch)
    until(1.5, step)


if __name__ == "__main__":
    main()
