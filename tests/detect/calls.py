"""How many calls of functions something takes: what is in proportion is told by counts, on any machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

LINEAR = 1.5  # times as many calls for each process or file, at most


def calls_of(does: Callable[[], object]) -> int:
    """Return how many calls of functions, Python's and C's, something takes."""
    calls = 0

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        does()
    finally:
        sys.setprofile(None)
    return calls
