"""Each rank writes its shard; the first one reads all of them, writes one whole file, and deletes the shards."""

from __future__ import annotations

import torch
from fitted import Fitted
from lives import Life
from torch import distributed


def main() -> None:
    """Train, save three times."""
    life, fitted = Life(__doc__), Fitted(9)
    distributed.init_process_group("gloo")
    rank, world = distributed.get_rank(), distributed.get_world_size()
    for step in (100, 200, 300):
        for _ in range(25):
            fitted.step()
            distributed.all_reduce(torch.ones(1))
        distributed.barrier()
        whole = life.folder / f"model_step{step}.pth"
        shards = [life.folder / f"shard_{one}_of_{world}_step{step}.pth" for one in range(world)]
        if rank:
            torch.save(fitted.state(), shards[rank])
            distributed.barrier()
            distributed.barrier()
            continue
        with life.save(whole, step=step) as row:
            torch.save(fitted.state(), shards[0])
            distributed.barrier()
            row.known["bytes"] = sum(shard.stat().st_size for shard in shards)
            states = [torch.load(shard) for shard in shards]
            torch.save(states, whole)  # the other rank waits for this one: several words are right for it
            row.known["bytes"] += whole.stat().st_size
            for shard in shards:
                shard.unlink()
            distributed.barrier()
    for _ in range(10):
        fitted.step()
        distributed.all_reduce(torch.ones(1))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
