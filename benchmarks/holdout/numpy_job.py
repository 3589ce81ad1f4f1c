"""A job of the hold-out that trains by NumPy, and has no framework: `python numpy_job.py --way WAY --dir DIR ...`."""

from __future__ import annotations

import argparse
import pickle
import time
from pathlib import Path

import numpy as np
from files import Wait, chunks, nothing, write
from rounds import PACES, Ways, live, options_of
from state import State, made, named, raw


def npz(state: State, path: Path) -> Wait:
    """Save one archive of arrays."""
    np.savez(path.with_suffix(".npz"), **state)  # type: ignore[arg-type]
    return nothing


def whole_pickle(state: State, path: Path) -> Wait:
    """Pickle everything into the file."""
    with path.with_suffix(".pkl").open("wb") as stream:
        pickle.dump(state, stream, protocol=5)
    return nothing


def bare(state: State, path: Path) -> Wait:
    """Write the bytes of all arrays, one after the other, and rename."""
    part = path.with_name("." + path.name)
    write(part, *map(raw, state.values()))
    part.replace(path)
    return nothing


def appended(state: State, path: Path) -> Wait:
    """Write arrays in small pieces, through the buffer of Python."""
    with path.open("wb") as stream:
        for array in state.values():
            for chunk in chunks(raw(array), 6000):
                stream.write(chunk)
    return nothing


WAYS = Ways(named(npz, whole_pickle, bare, appended))


class Trainer:
    """Fits a layer."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.pace = PACES[options.pace]
        self.weights = np.random.default_rng(1).standard_normal((160, 160))

    def __call__(self, seconds: float) -> None:
        """Go on for so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for _ in range(20):
                self.weights = np.tanh(self.weights @ self.weights)
            self.pace()


def main() -> None:
    """Train, and save three times."""
    options = options_of(__doc__, WAYS)
    live(options, WAYS, made(options.size_mb), Trainer(options))


if __name__ == "__main__":
    main()
