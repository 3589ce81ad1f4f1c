"""Two ranks save their shards as npz, compressed; the last one has a quota of a quarter of a CPU while it does.

In the control it has no quota. Needs root, for the cgroup.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from fitted import Fitted
from lives import Life
from torch import distributed

GROUPS = Path("/sys/fs/cgroup/cpu")
PERIOD_US, QUOTA_US = 100_000, 25_000


def _own_group() -> Path:
    """Return where this process is."""
    lines = (line.split(":") for line in Path("/proc/self/cgroup").read_text().splitlines())
    return next(GROUPS / path.lstrip("/") for _, controllers, path in lines if "cpu" in controllers.split(","))


def _limited(work: Callable[[], None]) -> None:
    """Do it with a quota."""
    own = _own_group()
    group = own / f"ckptprof-holdout-{os.getpid()}"
    group.mkdir()
    (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
    (group / "cpu.cfs_quota_us").write_text(str(QUOTA_US))
    (group / "cgroup.procs").write_text(str(os.getpid()))
    try:
        work()
    finally:
        (own / "cgroup.procs").write_text(str(os.getpid()))
        group.rmdir()


def life_of(*, limited: bool) -> None:
    """Train, save four times."""
    life, fitted = Life(__doc__), Fitted(4)
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()

    def train(steps: int) -> None:
        for _ in range(steps):
            fitted.step()
            distributed.all_reduce(torch.ones(1))
        distributed.barrier()

    def saved(folder: Path) -> None:
        def write() -> None:
            arrays = {name: one.numpy() for name, one in fitted.model.state_dict().items()}
            np.savez_compressed(folder / f"rank{rank}.npz", **arrays)  # type: ignore[arg-type]

        if limited and rank:
            _limited(write)
        else:
            write()
        distributed.barrier()

    for step in (10, 20, 30):
        train(50)
        folder = life.folder / f"step{step}"
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
    life_of(limited=True)
