"""How many calls of functions something takes: what is in proportion is told by counts, on any machine."""

from __future__ import annotations

from collections.abc import Callable
from cProfile import Profile

LINEAR = 1.5  # times as many calls for each process or file, at most


def calls_of(does: Callable[[], object]) -> int:
    """Return how many calls of functions, Python's and C's, something takes; each step of a generator is one."""
    profile = Profile()
    profile.runcall(does)
    return sum(entry.callcount for entry in profile.getstats())
