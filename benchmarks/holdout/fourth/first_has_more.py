"""Three ranks save their shards; the first one pickles the state of its sampler, too, number by number.

All wait for it. In the control it has as much to do as the others.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path

import torch
from fitted import Fitted
from lives import Life
from torch import distributed

SEEN = 1_500_000  # samples


def life_of(*, uneven: bool) -> None:
    """Train, save four times."""
    life, fitted = Life(__doc__), Fitted(3)
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()

    def train(steps: int) -> None:
        for _ in range(steps):
            fitted.step()
            distributed.all_reduce(torch.ones(1))
        distributed.barrier()

    def saved(folder: Path) -> None:
        torch.save(fitted.state(), folder / f"rank_{rank}.pt")
        if uneven and rank == 0:
            buffer = io.BytesIO()
            pickle._Pickler(buffer, protocol=4).dump({at: at / SEEN for at in range(SEEN)})  # noqa: SLF001 - slow
            (folder / "sampler.pkl").write_bytes(buffer.getbuffer())
        distributed.barrier()

    for step in (10, 20, 30, 40):
        train(40)
        folder = life.folder / f"step-{step}"
        if rank == 0:
            folder.mkdir()
        distributed.barrier()

        if rank:
            saved(folder)
            continue
        with life.save(folder, step=step):
            saved(folder)
    train(20)
    distributed.destroy_process_group()


if __name__ == "__main__":
    life_of(uneven=True)
