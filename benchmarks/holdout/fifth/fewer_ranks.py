"""Two ranks save a folder of shards; a restart with one rank reads all of them, and saves its own folder.

The shards have their last names below a folder with a name for the time, which is renamed.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from fitted import Fitted
from lives import Life
from torch import distributed


def alone(life: Life, fitted: Fitted) -> None:
    """Read both shards, and go on."""
    folder = max(life.folder.glob("global_step*"), key=lambda one: int(one.name[11:]))
    with life.restore(folder, step=int(folder.name[11:])) as row, row.part("read"):
        meta = json.loads((folder / "meta.json").read_text())
        shards = [torch.load(folder / f"shard_{rank:02d}.pt") for rank in range(meta["world_size"])]
        fitted.load(shards[0])
    for step in (70, 80):
        fitted.train(3)
        folder = life.folder / f"global_step{step}"
        with life.save(folder, step=step):
            saved(folder.with_suffix(".tmp"), fitted, 0, 1)
            folder.with_suffix(".tmp").rename(folder)


def saved(folder: Path, fitted: Fitted, rank: int, world: int) -> None:
    """Write a shard, and the first rank what is known of all."""
    folder.mkdir(exist_ok=True)
    torch.save(fitted.state(rank=rank), folder / f"shard_{rank:02d}.pt")
    if rank == 0:
        (folder / "meta.json").write_text(json.dumps({"world_size": world}))


def main() -> None:
    """Train by two ranks, then by one."""
    life, fitted = Life(__doc__), Fitted(5)
    if life.again:
        alone(life, fitted)
        return
    distributed.init_process_group("gloo")
    rank, world = distributed.get_rank(), distributed.get_world_size()

    def train(steps: int) -> None:
        for _ in range(steps):
            fitted.step()
            distributed.all_reduce(torch.ones(1))
        distributed.barrier()

    for step in (20, 40, 60):
        train(40)
        folder = life.folder / f"global_step{step}"
        part = folder.with_suffix(".tmp")
        if rank:
            saved(part, fitted, rank, world)
            distributed.barrier()
            distributed.barrier()
            continue
        with life.save(folder, step=step):
            saved(part, fitted, rank, world)
            distributed.barrier()
            part.rename(folder)
            distributed.barrier()
    train(10)
    distributed.destroy_process_group()
    if rank == 0:
        life.start_again()


if __name__ == "__main__":
    main()
