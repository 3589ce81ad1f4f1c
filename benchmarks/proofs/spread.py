"""A job of torchrun over several nodes: trains in step, and saves a state that is spread over its ranks.

Each rank logs when it began a save and when its own part of it was written: the collectives of a save wait for the
slowest, so that the end of the call is the same on all ranks.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

TENSORS = 8
STEPS = 100  # that one save is after the other, as it calls them
_written: list[int] = []


def noting(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return the call such that it notes when it has ended."""

    def noted(*arguments: Any, **named: Any) -> Any:
        told = call(*arguments, **named)
        _written.append(time.time_ns())
        return told

    return noted


def learn(seconds: float) -> None:
    """Take steps for so long, the same number on all ranks."""
    weight, until = torch.rand(256, 256), time.monotonic() + seconds
    going = True
    while going:
        weight = torch.tanh(weight @ weight)
        mean = weight.mean().reshape(1)
        dist.all_reduce(mean)
        left = torch.tensor([int(time.monotonic() < until)])
        dist.all_reduce(left, op=dist.ReduceOp.MIN)
        going = bool(left)
        time.sleep(0.02)


def main() -> None:
    """Train and save."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--truth", type=Path, required=True)
    parser.add_argument("--way", choices=("dcp", "torch-save"), required=True)
    parser.add_argument("--saves", type=int, required=True)
    parser.add_argument("--interval", type=float, required=True)
    parser.add_argument("--rank-mb", type=int, required=True)
    told = parser.parse_args()
    torch.set_num_threads(1)
    FileSystemWriter.write_data = noting(FileSystemWriter.write_data)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    mesh, rows = init_device_mesh("cpu", (ranks,)), told.rank_mb * 1000 // TENSORS
    state = {f"layer{n}": DTensor.from_local(torch.rand(rows, 250), mesh, [Shard(0)]) for n in range(TENSORS)}
    for number in range(1, told.saves + 1):
        learn(told.interval)
        folder = told.dir / f"step-{number * STEPS:06d}"
        folder.mkdir(parents=True, exist_ok=True)
        dist.barrier()
        start_ns = time.time_ns()
        if told.way == "dcp":
            dcp.save(state, checkpoint_id=folder)
        else:
            torch.save({name: one.to_local() for name, one in state.items()}, folder / f"rank_{rank}.pt")
            _written.append(time.time_ns())
        with (told.truth / f"rank_{rank}").open("a") as truth:
            one = {"step": number * STEPS, "start_ns": start_ns, "written_ns": _written[-1], "end_ns": time.time_ns()}
            print(json.dumps(one), file=truth)
        dist.barrier()
    learn(1.0)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
