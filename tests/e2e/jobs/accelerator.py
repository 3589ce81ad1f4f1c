"""Accelerate: save_state and load_state with automatic names, plain on two ranks or with FSDP's folders."""

from __future__ import annotations

import time
import warnings
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin, ProjectConfiguration
from life import Logbook, options, size_of
from torch_loop import torch_model


def main() -> None:
    """Save three times, or restore once and go on."""
    warnings.filterwarnings("ignore")
    told = options("plain", "fsdp")
    torch.set_num_threads(1)
    plugin = None
    if told.variant == "fsdp":
        plugin = FullyShardedDataParallelPlugin(fsdp_version=2, state_dict_type="SHARDED_STATE_DICT")
    naming = ProjectConfiguration(project_dir=str(told.dir), automatic_checkpoint_naming=True, total_limit=2)
    accelerator = Accelerator(cpu=True, project_config=naming, fsdp_plugin=plugin)
    shard(accelerator, plugin)
    model = torch_model(told.size_mb)
    inputs = torch.randn(4, model[0].in_features)
    model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=1e-4))
    shard(accelerator, plugin)
    book = Logbook(told, "accelerate", accelerator.num_processes, silent=not accelerator.is_main_process)

    def learn() -> None:
        loss = model(inputs).square().mean()
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()

    learn()
    folder = told.dir / "checkpoints"
    if told.resume:
        path = max(folder.iterdir(), key=number)
        accelerator.wait_for_everyone()
        start_ns = time.time_ns()
        accelerator.load_state(str(path))
        accelerator.wait_for_everyone()
        size = size_of(path) * (1 if plugin else accelerator.num_processes)  # without FSDP every rank reads it all
        book.add("restore", number(path), path, start_ns, time.time_ns(), size=lambda: size)
    for _ in range(told.saves):
        end = time.monotonic() + told.interval
        while accelerator.reduce(torch.tensor(time.monotonic() < end, dtype=torch.float), "mean") == 1.0:
            learn()
        path = folder / f"checkpoint_{accelerator.save_iteration}"
        accelerator.wait_for_everyone()
        start_ns = time.time_ns()
        accelerator.save_state()  # it deletes the oldest before it begins, which is not of this save
        accelerator.wait_for_everyone()
        book.add("save", number(path), path, start_ns, time.time_ns())
    accelerator.end_training()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def shard(accelerator: Accelerator, plugin: FullyShardedDataParallelPlugin | None) -> None:
    """Insist on FSDP, which Accelerate offers to GPUs only and forgets when it prepares; its files are the same."""
    if plugin is not None:
        accelerator.state.distributed_type = DistributedType.FSDP
        accelerator.state.fsdp_plugin = plugin


def number(path: Path) -> int:
    """Return the number in the name of a checkpoint."""
    return int(path.name.split("_")[1])


if __name__ == "__main__":
    main()
