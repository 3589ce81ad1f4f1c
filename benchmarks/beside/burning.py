"""A job that keeps every CPU busy and does nothing else: how long the same work takes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

_BURN = """
import sys, time
for line in sys.stdin:
    began = time.perf_counter()
    sum(range(int(line)))
    print(time.perf_counter() - began, flush=True)
"""


@contextlib.contextmanager
def burners() -> Iterator[Callable[[int], float]]:
    """Have a process for each CPU; yields what lets all count so far and returns the seconds of the slowest."""
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(os.cpu_count() or 1):
            one = subprocess.Popen([sys.executable, "-c", _BURN], stdin=-1, stdout=-1, text=True)
            stack.callback(one.wait)
            stack.callback(one.kill)
            found.append(one)

        def burn(count: int) -> float:
            for one in found:
                assert one.stdin is not None
                print(count, file=one.stdin, flush=True)
            return max(float(one.stdout.readline()) for one in found if one.stdout is not None)

        yield burn
