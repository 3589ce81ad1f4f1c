"""A fast copy in memory, over itself in place, from which the restart goes on."""

from __future__ import annotations

import torch
from fitted import Fitted
from lives import Life


def main() -> None:
    """Train in two lives."""
    life, fitted = Life(__doc__), Fitted(12)
    path = life.folder / "last.ckpt"
    if life.again:
        with life.restore(path) as row, row.part("read"):
            fitted.load(torch.load(path))
    for step in range(3):
        fitted.train(2.5)
        with life.save(path) as row, row.part("write"):
            torch.save(fitted.state(step=step), path)
    fitted.train(1)
    if not life.again:
        life.start_again()


if __name__ == "__main__":
    main()
