"""Megatron-Core's dist_checkpointing in the folders of Megatron-LM, with its tracker written last."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from life import Logbook, options
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.dist_checkpointing import ShardedTensor
from torch_loop import Loop

TRACKER = "latest_checkpointed_iteration.txt"


def sharded(loop: Loop, rank: int, ranks: int) -> dict[str, Any]:
    """Return the state with each rank's rows of it."""
    tensors = dict(loop.model.state_dict())
    for name, parameter in loop.model.named_parameters():
        tensors |= {
            f"optimizer.{name}.{key}": loop.optimizer.state[parameter][key] for key in ("exp_avg", "exp_avg_sq")
        }
    state: dict[str, Any] = {"iteration": loop.step, "args": {"lr": 1e-4}}
    for name, tensor in tensors.items():
        rows = tensor.shape[0] // ranks
        mine = tensor[rank * rows : (rank + 1) * rows].clone()
        state[name] = ShardedTensor.from_rank_offsets(name, mine, (0, rank, ranks))
    return state


def main() -> None:
    """Save three times, or restore once and go on."""
    warnings.filterwarnings("ignore")
    told = options("sync")
    torch.cuda.synchronize = lambda *_: None  # Megatron-Core asks for the device, which is the CPU here
    torch.cuda.current_device = lambda: "cpu"
    dist.init_process_group("gloo")
    parallel_state.initialize_model_parallel()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    book = Logbook(told, "megatron", ranks, silent=rank != 0)
    loop = Loop(told.size_mb)
    loop.learn()
    if told.resume:
        loop.step = int((told.dir / TRACKER).read_text())
        path = told.dir / f"iter_{loop.step:07d}"
        into = sharded(loop, rank, ranks)
        dist.barrier()
        start_ns = time.time_ns()
        dist_checkpointing.load(into, str(path))
        dist.barrier()
        book.add("restore", loop.step, path, start_ns, time.time_ns())
    for _ in range(told.saves):
        end = time.monotonic() + told.interval
        while agreed(time.monotonic() < end):
            loop.learn()
        save(loop, told.dir / f"iter_{loop.step:07d}", rank, ranks, book)
    dist.destroy_process_group()


def save(loop: Loop, path: Path, rank: int, ranks: int, book: Logbook) -> None:
    """Save as Megatron-LM's training loop does: the folder, then the tracker."""
    state = sharded(loop, rank, ranks)
    dist.barrier()
    start_ns = time.time_ns()
    path.mkdir(exist_ok=True)
    dist_checkpointing.save(state, str(path))
    dist.barrier()
    if rank == 0:
        (path.parent / TRACKER).write_text(str(loop.step))
    book.add("save", loop.step, path, start_ns, time.time_ns())


def agreed(yes: bool) -> bool:  # noqa: FBT001 - the answer of this rank
    """Tell whether all ranks say so."""
    votes = torch.tensor([int(yes)])
    dist.all_reduce(votes, op=dist.ReduceOp.MIN)
    return bool(votes[0])


if __name__ == "__main__":
    main()
