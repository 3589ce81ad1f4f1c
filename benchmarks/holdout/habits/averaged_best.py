"""The best three of all epochs are averaged at the end, as speech recognition does, and two in the midst."""

from __future__ import annotations

from pathlib import Path

import torch
from fitted import Fitted
from lives import Life, Row


def averaged(paths: list[Path], target: Path, row: Row) -> None:
    """Read them, keep their mean."""
    with row.part("read"):
        states = [torch.load(path)["model"] for path in paths]
    mean = {name: sum(state[name] for state in states) / len(states) for name in states[0]}
    with row.part("write"):
        torch.save({"model": mean}, target)


def main() -> None:
    """Train five epochs."""
    life, fitted = Life(__doc__), Fitted(10)
    for epoch in range(1, 6):
        fitted.train(2)
        path = life.folder / f"checkpoint_epoch_{epoch}.pt"
        with life.save(path) as row, row.part("write"):
            torch.save(fitted.state(epoch=epoch), path)
        if epoch == 4:
            fitted.train(2)
            with life.save(life.folder / "checkpoint.avg2.pt") as row:
                averaged(
                    [life.folder / f"checkpoint_epoch_{one}.pt" for one in (3, 4)],
                    life.folder / "checkpoint.avg2.pt",
                    row,
                )
    fitted.train(2)
    with life.save(life.folder / "checkpoint.avg3.pt") as row:
        averaged(
            [life.folder / f"checkpoint_epoch_{one}.pt" for one in (1, 3, 5)], life.folder / "checkpoint.avg3.pt", row
        )
    fitted.train(1)


if __name__ == "__main__":
    main()
