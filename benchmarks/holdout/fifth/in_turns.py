"""Two models that are trained against each other are saved in turns: in memory first, then in pieces of 64 KB.

Each is synced and takes the place of its last one. A restart loads both.
"""

from __future__ import annotations

import io
import os
from pathlib import Path

import torch
from fitted import Fitted
from lives import Life, Row

PIECE = 64 << 10


def replaced(path: Path, state: dict[str, object], row: Row) -> None:
    """Write it beside, sync, and put it in its place."""
    part, buffer = path.with_suffix(".pth.new"), io.BytesIO()
    with row.part("write"):
        torch.save(state, buffer)
        blob = buffer.getbuffer()
        with part.open("wb", buffering=0) as file:
            for at in range(0, len(blob), PIECE):
                file.write(blob[at : at + PIECE])
    with row.part("sync"):
        opened = os.open(part, os.O_RDONLY)
        os.fsync(opened)
        os.close(opened)
        part.replace(path)


def main() -> None:
    """Train in two lives."""
    life = Life(__doc__)
    models = {"generator": Fitted(8), "discriminator": Fitted(4)}
    paths = {name: life.folder / f"{name}.pth" for name in models}
    if life.again:
        with life.restore(*paths.values()) as row, row.part("read"):
            for name, one in models.items():
                one.load(torch.load(paths[name]))
    for _ in range(1 if life.again else 3):
        for name, one in models.items():
            for _ in range(6):
                for each in models.values():
                    each.train(0.25)
            with life.save(paths[name]) as row:
                replaced(paths[name], one.state(), row)
    models["generator"].train(1.5)
    if not life.again:
        life.start_again()


if __name__ == "__main__":
    main()
