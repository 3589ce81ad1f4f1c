"""A trainer in plain Python, as the tutorial's: it has no library of machine learning, its one thread writes pickles.

Of each save it logs for how long it was held and, from its own schedstat, for how long it ran and waited for a CPU.
With `--short-of-cpu` it is numpy that compresses what it writes, on a CPU that another program wants as well.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import random
import subprocess
import sys
import time
from pathlib import Path

_STATE = [random.random() for _ in range(1_000_000)]  # noqa: S311 - weights, no secret


def schedule() -> tuple[int, int]:
    """Return for how many nanoseconds this thread has run, and has waited for a CPU."""
    on_cpu_ns, waited_ns, _ = Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()
    return int(on_cpu_ns), int(waited_ns)


def save(path: Path, *, compresses: bool) -> None:
    """Write the state and see it to the disk."""
    with path.open("wb") as file:
        if compresses:
            import numpy as np  # noqa: PLC0415 # the other trainer has no library

            np.savez_compressed(file, state=np.array(4 * _STATE))
        else:
            pickle.dump(_STATE, file)
        file.flush()
        os.fsync(file.fileno())


def share_a_cpu() -> subprocess.Popen[bytes]:
    """Stay on one CPU, beside a program that always wants it."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    return subprocess.Popen([sys.executable, "-c", "while True: pass"])


def main() -> None:
    """Sleep as training does, and save; log each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--truth", type=Path, required=True)
    parser.add_argument("--saves", type=int, default=3)
    parser.add_argument("--short-of-cpu", action="store_true")
    told = parser.parse_args()
    suffix = ".npz" if told.short_of_cpu else ".pkl"
    beside = share_a_cpu() if told.short_of_cpu else None
    told.dir.mkdir(parents=True, exist_ok=True)
    for step in range(20, 20 * told.saves + 1, 20):
        for _ in range(20):
            time.sleep(0.1)
        path = told.dir / f"step_{step:04d}{suffix}"
        before, start_ns = schedule(), time.time_ns()
        save(path, compresses=told.short_of_cpu)
        end_ns, after = time.time_ns(), schedule()
        event = {"kind": "save", "step": step, "path": str(path), "bytes": path.stat().st_size}
        event |= {"start_ns": start_ns, "end_ns": end_ns, "held": (end_ns - start_ns) / 1e9}
        event |= {"on_cpu_ns": after[0] - before[0], "waited_ns": after[1] - before[1]}
        with told.truth.open("a", encoding="utf-8") as log:
            log.write(json.dumps(event) + "\n")
    time.sleep(1)
    if beside is not None:
        beside.kill()
        beside.wait()


if __name__ == "__main__":
    main()
