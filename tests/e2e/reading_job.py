"""A job that saves with PyTorch and reads back cold and warm, by read and by mmap, alone and with two ranks at once.

`reading_job.py FOLDER`: the truth, a line of JSON for each restore, goes to standard output.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import torch

TENSOR_BYTES = 16 << 20
TENSORS = 6
SAVES_PAUSE_SECONDS = 0.5
PAUSE_SECONDS = 2.5


def forget(path: Path) -> None:
    """Drop a file from the page cache."""
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def restore(path: Path, *, mapped: bool) -> None:
    """Read every byte of it."""
    state = torch.load(path, mmap=mapped, weights_only=True)
    assert all(float(tensor[-1]) >= 0 for tensor in state.values())
    for tensor in state.values():
        tensor.view(-1)[::512].sum()  # a value of each half page


def tell(**truth: object) -> None:
    """Write a line of the truth."""
    sys.stdout.write(json.dumps(truth) + "\n")
    sys.stdout.flush()


def main(folder: Path) -> None:
    """Save, then restore in each way."""
    torch.set_num_threads(1)
    state = {f"weight.{n}": torch.rand(TENSOR_BYTES // 4) for n in range(TENSORS)}
    for step in range(4):
        torch.save(state, folder / f"step_{step}.pt")
        time.sleep(SAVES_PAUSE_SECONDS)
    time.sleep(PAUSE_SECONDS)
    restore(folder / "step_0.pt", mapped=True)  # whatever code it takes is in memory from here on
    time.sleep(PAUSE_SECONDS)
    ways = ((False, "cold"), (False, "warm"), (True, "cold"))  # a warm mapping is over before anybody looks
    for step, (mapped, cache) in enumerate(ways, start=1):
        path = folder / f"step_{step}.pt"
        if cache == "cold":
            forget(path)
        start = time.time()
        restore(path, mapped=mapped)
        tell(start=start, cache=cache, mapped=mapped, ranks=1)
        time.sleep(PAUSE_SECONDS)
    path = folder / "step_0.pt"
    environment = {**os.environ, "WORLD_SIZE": "2", "SLURM_JOB_ID": "77"}
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, str(folder), "rank"],
            env={**environment, "RANK": str(rank)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for rank in range(2)
    ]
    for rank in ranks:
        assert rank.stdout.readline() == b"has PyTorch\n"
    time.sleep(PAUSE_SECONDS)
    forget(path)
    go = time.time() + 1
    for rank in ranks:
        rank.stdin.write(f"{go}\n".encode())
        rank.stdin.flush()
    for rank in ranks:
        assert rank.wait() == 0
    tell(start=go, cache="cold", mapped=False, ranks=2)


def one_rank(folder: Path) -> None:
    """Restore when the other does: at the time that is told when both are ready."""
    torch.set_num_threads(1)
    sys.stdout.write("has PyTorch\n")
    sys.stdout.flush()
    time.sleep(max(0.0, float(sys.stdin.readline()) - time.time()))
    restore(folder / "step_0.pt", mapped=False)
    time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        one_rank(Path(sys.argv[1]))
    else:
        main(Path(sys.argv[1]))
