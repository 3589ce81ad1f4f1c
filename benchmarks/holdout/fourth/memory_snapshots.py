"""As torchtitan with its profilers: each rank pickles a snapshot of its memory, writes a trace, and saves nothing."""

from __future__ import annotations

import json
import pickle

import torch
from fitted import Fitted
from lives import Life
from torch import distributed

BLOCKS, EVENTS = 60_000, 40_000


def _snapshot() -> dict[str, object]:
    frames = [{"filename": "torch/nn/modules/linear.py", "name": "forward", "line": line} for line in range(40)]
    blocks = [{"address": at << 9, "size": at, "state": "active", "frames": frames[at % 40 :]} for at in range(BLOCKS)]
    history = [{"action": "alloc", "addr": at << 9, "time_us": at, "stream": 0} for at in range(3 * BLOCKS)]
    return {"segments": [{"device": 0, "blocks": blocks}], "device_traces": [history]}


def main() -> None:
    """Train, with a snapshot after every 20 steps and a trace after every 40."""
    life, fitted = Life(__doc__), Fitted(6)
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    for step in range(1, 101):
        fitted.step()
        distributed.all_reduce(torch.ones(1))
        if step % 20:
            continue
        folder = life.folder / f"memory_snapshot/iteration_{step}"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"rank{rank}_memory_snapshot.pickle").open("wb") as file:
            pickle.dump(_snapshot(), file)
        distributed.barrier()
        if step % 40:
            continue
        folder = life.folder / f"profile_traces/iteration_{step}"
        folder.mkdir(parents=True, exist_ok=True)
        events = [{"ph": "X", "cat": "cpu_op", "name": f"aten::{at}", "ts": at, "dur": 3} for at in range(EVENTS)]
        (folder / f"rank{rank}_trace.json").write_text(json.dumps({"traceEvents": events}))
        distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
