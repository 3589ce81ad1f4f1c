"""DeepSpeed's own checkpoints: ZeRO stage 1 or 3 on two ranks, `latest` written last."""

from __future__ import annotations

import os
import sys
import time
import warnings
from pathlib import Path

import torch
from life import Logbook, asked_bytes, options

os.environ["DS_ACCELERATOR"] = "cpu"
import deepspeed
import torch.distributed as dist
from torch_loop import torch_model


def main() -> None:
    """Save three times, or restore once and go on."""
    warnings.filterwarnings("ignore")
    told = options("zero1", "zero3")
    torch.set_num_threads(1)
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: (
        None
    )  # it would compile for minutes what a job on one host does not need
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    book = Logbook(told, "deepspeed", ranks, silent=rank != 0)
    model = torch_model(told.size_mb)
    inputs = torch.randn(4, model[0].in_features)
    settings = {
        "train_micro_batch_size_per_gpu": 4,
        "zero_optimization": {"stage": int(told.variant[-1])},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)

    def learn() -> None:
        engine.backward(engine(inputs).square().mean())
        engine.step()

    learn()
    if told.resume:
        dist.barrier()
        start_ns, before = time.time_ns(), asked_bytes()
        path, _ = engine.load_checkpoint(str(told.dir))
        asked = torch.tensor([asked_bytes() - before])  # DeepSpeed reads some files twice, and on each rank
        dist.barrier()
        end_ns = time.time_ns()
        dist.all_reduce(asked)
        folder = Path(path).parent
        book.add("restore", number(folder), folder, start_ns, end_ns, size=lambda: int(asked))
    for _ in range(told.saves):
        end = time.monotonic() + told.interval
        while agreed(time.monotonic() < end):
            learn()
        folder = told.dir / f"global_step{engine.global_steps}"
        dist.barrier()
        start_ns = time.time_ns()
        engine.save_checkpoint(str(told.dir))
        dist.barrier()
        book.add("save", number(folder), folder, start_ns, time.time_ns())
    dist.destroy_process_group()


def number(folder: Path) -> int:
    """Return the step in a folder's name."""
    return int(folder.name.removeprefix("global_step"))


def agreed(yes: bool) -> bool:  # noqa: FBT001 - the answer of this rank
    """Tell whether all ranks say so."""
    votes = torch.tensor([int(yes)])
    dist.all_reduce(votes, op=dist.ReduceOp.MIN)
    return bool(votes[0])


if __name__ == "__main__":
    main()
