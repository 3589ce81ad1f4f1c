"""What every way of the hold-out takes and gives: named arrays, a path, and what to wait for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from files import MB, Wait
from numpy.typing import NDArray

State = dict[str, NDArray[np.float32]]
Way = Callable[[State, Path], Wait]


def made(size_mb: int) -> State:
    """Return a state of four layers, which nothing compresses well."""
    numbers = np.random.default_rng()
    return {f"layer{at}": numbers.standard_normal(size_mb * MB // 16, dtype=np.float32) for at in range(4)}


def raw(array: NDArray[np.float32]) -> memoryview:
    """Return its bytes, uncopied."""
    return array.data.cast("B")


def named(*ways: Way) -> dict[str, Way]:
    """Return each by its name on the command line."""
    return {way.__name__.replace("_", "-"): way for way in ways}


def joined(waits: Iterable[Wait]) -> Wait:
    """Return what waits for all of them."""
    kept = list(waits)
    return lambda: [wait() for wait in kept]
