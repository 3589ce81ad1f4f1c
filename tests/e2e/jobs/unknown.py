"""Series of files under names that no framework has, by a program that computes between them.

`epochs`: plain Python counts its epochs and keeps all states. `beside`: it writes each state beside the last one, then
renames it over that. `rotated`: it counts its files and keeps the last two. `activations`: numpy keeps what each
evaluation yields; so does a trainer that never cleans up.
"""

from __future__ import annotations

import argparse
import array
import json
import math
import time
from collections.abc import Callable
from pathlib import Path

ROUNDS = 5
SECONDS = 2.5  # of computing between two files
STATE = array.array("d", [0.5]) * 1_500_000


def computing(seconds: float) -> None:
    """Fit a line to some points again and again."""
    until, weight = time.monotonic() + seconds, 0.0
    while time.monotonic() < until:
        for point in range(2000):
            weight -= 1e-6 * (math.tanh(weight * point) - point)


def epochs(folder: Path, number: int) -> Path:
    """Write the state of each epoch into a file of its own."""
    path = folder / f"epoch{number}.bin"
    with path.open("wb") as stream:
        STATE.tofile(stream)
    return path


def beside(folder: Path, _: int) -> Path:
    """Replace the only state by the next one, which is whole by then."""
    path = folder / "fit.blob"
    with path.with_suffix(".tmp").open("wb") as stream:
        STATE.tofile(stream)
    return path.with_suffix(".tmp").rename(path)


def rotated(folder: Path, number: int) -> Path:
    """Write the next state, and delete the one before the last."""
    path = folder / f"{number:03d}.blob"
    with path.open("wb") as stream:
        STATE.tofile(stream)
    (folder / f"{number - 2:03d}.blob").unlink(missing_ok=True)
    return path


def activations(folder: Path, number: int) -> Path:
    """Write what a layer yields at an evaluation."""
    import numpy as np  # noqa: PLC0415 # the other programs have no library

    path = folder / f"activations_{number:04d}.npy"
    np.save(path, np.array(STATE))
    return path


WAYS: dict[str, Callable[[Path, int], Path]] = {way.__name__: way for way in (epochs, beside, rotated, activations)}


def main() -> None:
    """Compute and write by turns, and log each file; of activations both is right, that they are saves and that not."""
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("dir", type=Path)
    parser.add_argument("truth", type=Path)
    told = parser.parse_args()
    told.dir.mkdir(parents=True, exist_ok=True)
    if told.way == "activations":
        import numpy as np  # noqa: F401, PLC0415 # before anybody looks
    computing(2 * SECONDS)
    with told.truth.open("w", encoding="utf-8") as log:
        for number in range(ROUNDS):
            start_ns = time.time_ns()
            path = WAYS[told.way](told.dir, number)
            event = {"kind": "save", "step": number if told.way == "epochs" else None, "path": str(path)}
            event |= {"bytes": path.stat().st_size, "start_ns": start_ns, "end_ns": time.time_ns()}
            event |= {"optional": True} if told.way == "activations" else {}
            log.write(json.dumps(event) + "\n")
            computing(SECONDS)


if __name__ == "__main__":
    main()
