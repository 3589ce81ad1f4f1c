"""A job that copies its state to save it, and frees the copy, or not, until the kernel kills it."""

from __future__ import annotations

import json
import pickle
import sys
import time
from pathlib import Path

import numpy as np

STATE_BYTES, LEAK_BYTES = 40_000_000, 16_000_000
SAVE_SECONDS = 1.5


def main(folder: Path, truth: Path, saves: int, *, leaks: bool) -> None:
    """Save now and then; write down when each save begins and ends."""
    state, kept = np.random.default_rng(1).random(STATE_BYTES // 8), []
    with truth.open("a") as written:
        for number in range(1, saves + 1):
            until = time.monotonic() + SAVE_SECONDS
            while time.monotonic() < until:
                state += 1e-9
            written.write(json.dumps({"save": number, "begun_ns": time.time_ns()}) + "\n")
            written.flush()
            copy = pickle.dumps({"state": state, "step": number * 10}, protocol=4)
            kept += [np.full(LEAK_BYTES // 8, number, dtype=np.float64)] if leaks else []
            part = folder / "part"
            part.write_bytes(copy)
            part.rename(folder / f"step_{number * 10:04d}.pkl")
            del copy


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), leaks=sys.argv[4] == "leaks")
