"""Saves that are written over earlier ones: twice over the same numbered names, or over one name each time.

`at-once`: each save begins as the one before ends, so that nobody can ask for the size of the file in between.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from pathlib import Path

import numpy as np


def save(path: Path, state: np.ndarray, *, synced: bool) -> None:
    """Write the state over what is there."""
    with path.open("wb") as stream:
        np.save(stream, state)
        if synced:
            stream.flush()
            os.fsync(stream.fileno())


def save_by_pieces(path: Path, state: np.ndarray) -> None:
    """Write the state over what is there, each layer with its digest."""
    with path.open("wb", buffering=0) as stream:
        np.lib.format.write_array_header_1_0(stream, np.lib.format.header_data_from_array_1_0(state))
        for layer in np.array_split(state, 24):
            hashlib.sha256(layer).digest()
            stream.write(layer)


def main() -> None:
    """Save eight times, and log each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("how", choices=("names", "last", "at-once"))
    parser.add_argument("dir", type=Path)
    parser.add_argument("truth", type=Path)
    told = parser.parse_args()
    told.dir.mkdir(parents=True, exist_ok=True)
    state = np.random.default_rng(7).random(8_000_000 if told.how == "at-once" else 2_000_000)
    time.sleep(1.5)
    for number in range(8):
        due = time.monotonic() + (0.0 if told.how == "at-once" else 0.5)
        step = number % 4 if told.how == "names" else None
        path = told.dir / ("last.npy" if step is None else f"step_{step}.npy")
        start_ns = time.time_ns()
        if told.how == "at-once":
            save_by_pieces(path, state)
        else:
            save(path, state, synced=told.how == "names")
        end_ns = time.time_ns()
        event = {"kind": "save", "step": step, "path": str(path), "bytes": path.stat().st_size}
        with told.truth.open("a", encoding="utf-8") as log:
            log.write(json.dumps({**event, "start_ns": start_ns, "end_ns": end_ns}) + "\n")
        while time.monotonic() < due:  # it trains
            state += 1e-9
            time.sleep(0.01)


if __name__ == "__main__":
    main()
