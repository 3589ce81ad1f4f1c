"""Two ranks by `mp.spawn`, with an optimizer in two halves: rank 0 asks for the other half, and saves.

A barrier ends it. After a phase both load the best, as the tutorial of DDP does.
"""

from __future__ import annotations

import os
import socket

import torch
from fitted import Fitted
from lives import Life
from torch import distributed, multiprocessing

RANKS = 2


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def consolidated(fitted: Fitted, rank: int) -> None:
    """Send the tensors of the upper half to rank 0."""
    state = fitted.optimizer.state_dict()["state"]
    for name in list(state)[len(state) // 2 :]:
        for moment in ("exp_avg", "exp_avg_sq"):
            if rank:
                distributed.send(state[name][moment], 0)
            else:
                distributed.recv(state[name][moment], 1)


def trained(rank: int, port: int) -> None:
    """Be one rank."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    distributed.init_process_group("gloo", rank=rank, world_size=RANKS)
    life, fitted = Life(__doc__), Fitted(8)

    def train(steps: int) -> None:
        for _ in range(steps):
            fitted.step()
            distributed.all_reduce(torch.ones(1 << 18))
        distributed.barrier()

    def saved(epoch: int) -> None:
        path = life.folder / f"epoch_{epoch}.pth"
        if rank:
            consolidated(fitted, rank)
            distributed.barrier()
            return
        with life.save(path) as row:
            consolidated(fitted, rank)
            with row.part("write"):
                torch.save(fitted.state(epoch=epoch), path)
            distributed.barrier()

    def restored(epoch: int) -> None:
        path = life.folder / f"epoch_{epoch}.pth"
        if rank:
            fitted.load(torch.load(path, map_location="cpu"))
            distributed.barrier()
            return
        with life.restore(path) as row, row.part("read"):
            fitted.load(torch.load(path, map_location="cpu"))
            distributed.barrier()

    for epoch in range(1, 5):
        train(24)
        saved(epoch)
        if epoch == 2:
            train(15)
            restored(1)
    train(15)
    distributed.destroy_process_group()


def main() -> None:
    """Start the ranks."""
    multiprocessing.spawn(trained, args=(_free_port(),), nprocs=RANKS)


if __name__ == "__main__":
    main()
