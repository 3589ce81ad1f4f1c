"""PyTorch's distributed checkpoint under torchrun: synchronous, and asynchronous by a thread or by a process.

Before the first file is made the ranks agree on who writes what: a save begins with the first `write_data` of a rank,
a restore with the first `read_metadata`. The child of async-process keeps that to itself: there it is the call.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from life import Logbook, options
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch_loop import Loop

KINDS = {"async-thread": AsyncCheckpointerType.THREAD, "async-process": AsyncCheckpointerType.PROCESS}

begun: list[int] = []  # when this rank began to write or to read


def noting(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return the call such that it notes when it is made."""

    def noted(*arguments: Any, **named: Any) -> Any:
        begun.append(time.time_ns())
        return call(*arguments, **named)

    return noted


def first_ns(otherwise_ns: int) -> int:
    """Return when the first of all ranks began, and forget it."""
    first = torch.tensor(begun[0] if begun else otherwise_ns)
    dist.all_reduce(first, op=dist.ReduceOp.MIN)
    begun.clear()
    return int(first)


class Shared(Loop):
    """The loop with its parameters spread over the ranks."""

    def __init__(self, size_mb: float) -> None:
        """Shard the model of one rank."""
        super().__init__(size_mb)
        fully_shard(self.model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4)

    def state(self) -> dict[str, Any]:
        """Return what is saved."""
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}


def save_async(loop: Shared, path: Path, group: dist.ProcessGroup, book: Logbook) -> None:
    """Save in the background while training goes on; log when the last rank's writing ended."""
    state, step = loop.state(), loop.step
    dist.barrier()
    kind = KINDS[book.told.variant]
    ended: list[int] = []
    start_ns = time.time_ns()
    response: Any = dcp.async_save(state, checkpoint_id=path, async_checkpointer_type=kind, process_group=group)
    stall_ns = time.time_ns() - start_ns
    future: Future[Any] = response if isinstance(response, Future) else response.upload_completion
    future.add_done_callback(lambda _: ended.append(time.time_ns()))
    while not agreed(bool(ended)):
        loop.learn()
    future.result()
    end = torch.tensor(ended[0])
    dist.all_reduce(end, op=dist.ReduceOp.MAX)
    book.add("save", step, path, first_ns(start_ns), int(end), stall_ns=stall_ns)


def agreed(over: bool) -> bool:  # noqa: FBT001 - the answer of this rank
    """Tell whether all ranks say so: they must take the same number of steps."""
    votes = torch.tensor([int(over)])
    dist.all_reduce(votes, op=dist.ReduceOp.MIN)
    return bool(votes[0])


def restore(loop: Shared, path: Path, book: Logbook) -> None:
    """Load the newest checkpoint into all ranks."""
    state = loop.state()
    dist.barrier()
    start_ns = time.time_ns()
    dcp.load(state, checkpoint_id=path)
    dist.barrier()
    end_ns = time.time_ns()
    book.add("restore", loop.step, path, first_ns(start_ns), end_ns)
    set_state_dict(loop.model, loop.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])


def main() -> None:
    """Save three times, or restore once and go on."""
    warnings.filterwarnings("ignore")
    told = options("sync", *KINDS)
    FileSystemWriter.write_data = noting(FileSystemWriter.write_data)
    FileSystemReader.read_metadata = noting(FileSystemReader.read_metadata)
    dist.init_process_group("cpu:gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    book = Logbook(told, "torch-dcp", ranks, told.variant.split("-")[0], silent=rank != 0)
    loop = Shared(told.size_mb)
    group = dist.new_group(backend="gloo")  # the background's own, beside that of the training
    loop.learn()
    if told.resume:
        path = max(told.dir.glob("step-*"))
        loop.step = int(path.name.split("-")[1])
        restore(loop, path, book)
    for _ in range(told.saves):
        start = time.monotonic()
        while not agreed(time.monotonic() > start + told.interval):
            loop.learn()
        path = told.dir / f"step-{loop.step:06d}"
        if told.variant == "sync":
            state = loop.state()
            dist.barrier()
            start_ns = time.time_ns()
            dcp.save(state, checkpoint_id=path)
            dist.barrier()
            end_ns = time.time_ns()
            book.add("save", loop.step, path, first_ns(start_ns), end_ns, stall_ns=end_ns - start_ns)
        else:
            save_async(loop, path, group, book)
    dist.barrier()
    os._exit(0) if told.variant == "async-process" else dist.destroy_process_group()


if __name__ == "__main__":
    main()
