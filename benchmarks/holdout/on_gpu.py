"""A job of the hold-out that trains on a GPU: `python on_gpu.py --way WAY --dir DIR --truth FILE`; its log: frame.py.

Its GPU is busy but for what a save takes of it, so that its own clock and the GPU's tell the same. Needs CUDA.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
from frame import Life, options, size
from torch import distributed

LAYERS = 12
STATES = 3  # of the size of the model: its parameters and two of the optimizer
BATCH = 4096
ROUNDS = 3


class Trainer:
    """Trains a model of some size, one step after the other."""

    def __init__(self, size_mb: int) -> None:
        """Make it on the GPU."""
        width = int((size_mb * 1e6 / STATES / 4 / LAYERS) ** 0.5) // 64 * 64
        layers = (torch.nn.Linear(width, width, bias=False) for _ in range(LAYERS))
        self.model = torch.nn.Sequential(*layers).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.data = torch.randn(BATCH, width, device="cuda")
        self.pinned: list[torch.Tensor] = []

    def train(self, seconds: float) -> None:
        """Go on for so long; ranks stop together."""
        until, going = time.monotonic() + seconds, torch.ones(1, device="cuda")
        while going.item():
            self.optimizer.zero_grad(set_to_none=True)
            self.model(self.data).square().mean().backward()
            self.optimizer.step()
            going.fill_(float(time.monotonic() < until))
            if distributed.is_initialized():
                distributed.all_reduce(going, distributed.ReduceOp.MIN)

    def state(self) -> dict[str, torch.Tensor]:
        """Return all that is saved, on the GPU."""
        moments = {
            f"{name}.{at}": one[name]
            for at, one in enumerate(self.optimizer.state.values())
            for name in ("exp_avg", "exp_avg_sq")
        }
        return {**self.model.state_dict(), **moments}

    def copied(self) -> list[torch.Tensor]:
        """Return it in pinned memory, which the first call takes."""
        tensors = list(self.state().values())
        if not self.pinned:
            self.pinned = [torch.empty(one.shape, pin_memory=True) for one in tensors]
        for kept, one in zip(self.pinned, tensors, strict=True):
            kept.copy_(one, non_blocking=True)
        torch.cuda.synchronize()
        return self.pinned


class Saves:
    """The ways to save, and the log of them."""

    def __init__(self, trainer: Trainer, life: Life) -> None:
        self.trainer, self.life = trainer, life
        self.pending: list[threading.Thread | Future[Any]] = []

    def wait(self) -> None:
        """Wait for what is still being written."""
        for one in self.pending:
            one.join() if isinstance(one, threading.Thread) else one.result()
        self.pending = []

    def direct(self, path: Path) -> None:
        """Save tensors of the GPU: each is copied when it is written."""
        torch.save(self.trainer.state(), path)

    def synced(self, path: Path) -> None:
        """Save, and put it on stable storage."""
        self.direct(path)
        with path.open("rb+") as stream:
            os.fsync(stream.fileno())

    def copied_first(self, path: Path) -> None:
        """Copy all of it, then save."""
        torch.save({name: one.cpu() for name, one in self.trainer.state().items()}, path)

    def by_rank_0(self, path: Path) -> None:
        """Let the first rank save, and wait for it."""
        if distributed.get_rank() == 0:
            self.direct(path)
        distributed.barrier()

    def by_thread(self, path: Path) -> Callable[[], None]:
        """Copy to pinned memory; a thread writes that."""
        self.wait()
        kept = self.trainer.copied()
        return lambda: torch.save(kept, path)

    def log(self, path: Path, start_ns: int, blocked_ns: int, mode: str) -> None:
        """Log a save that is over."""
        if self.life.rank:
            return
        line = {"kind": "save", "step": None, "path": str(path), "bytes": size(path), "start_ns": start_ns}
        line |= {"end_ns": time.time_ns(), "blocked_seconds": blocked_ns / 1e9, "mode": mode, "status": "complete"}
        self.life.write({**line, "optional": False})

    def save(self, way: str, path: Path) -> None:
        """Save in one way."""
        path.parent.mkdir(parents=True, exist_ok=True)
        start_ns = time.time_ns()
        if way.startswith("dcp"):
            self._by_dcp(way, path.parent, start_ns)
            return
        later = SYNC[way](self, path) if way in SYNC else self.by_thread(path)
        blocked_ns = time.time_ns() - start_ns
        if later is None:
            self.log(path, start_ns, blocked_ns, "sync")
            return

        def write() -> None:
            later()
            self.log(path, start_ns, blocked_ns, "async")

        writer = threading.Thread(target=write)
        writer.start()
        self.pending = [writer]

    def _by_dcp(self, way: str, folder: Path, start_ns: int) -> None:
        from torch.distributed import checkpoint
        from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

        self.wait()
        if way == "dcp":
            checkpoint.save(self.trainer.state(), checkpoint_id=str(folder))
            self.log(folder, start_ns, time.time_ns() - start_ns, "sync")
            return
        kind = AsyncCheckpointerType.PROCESS if way == "dcp-process" else AsyncCheckpointerType.THREAD
        done = checkpoint.async_save(self.trainer.state(), checkpoint_id=str(folder), async_checkpointer_type=kind)
        blocked_ns = time.time_ns() - start_ns
        done.add_done_callback(lambda _: self.log(folder, start_ns, blocked_ns, "async"))
        self.pending = [done]


SYNC: dict[str, Callable[[Saves, Path], None]] = {
    "direct": Saves.direct,
    "synced": Saves.synced,
    "copied-first": Saves.copied_first,
    "by-rank-0": Saves.by_rank_0,
}


def main() -> None:
    """Train, and save three times."""
    life = Life(options(size_mb=1500, seconds=4.0))
    way, seconds = life.options.way, life.options.seconds
    if way.startswith("dcp") or "RANK" in os.environ:
        for name, value in {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511", "RANK": "0", "WORLD_SIZE": "1"}.items():
            os.environ.setdefault(name, value)
        distributed.init_process_group("gloo")
    trainer = Trainer(life.options.size_mb)
    saves = Saves(trainer, life)
    trainer.train(2)
    for at in range(1, ROUNDS + 1):
        trainer.train(seconds)
        saves.save(way, life.folder / f"checkpoint-{at * 100}" / "model.pt")
    trainer.train(seconds)
    saves.wait()
    time.sleep(0.2)  # until it is logged
    if distributed.is_initialized():
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
