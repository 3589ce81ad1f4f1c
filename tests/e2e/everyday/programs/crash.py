"""Grows to so many megabytes with numpy loaded and dies of SIGSEGV, so that its core is dumped."""

from __future__ import annotations

import ctypes
import os
import resource
import sys

import numpy as np


def main(megabytes: int) -> None:
    """Let a child crash; a core of a parent that waits for it is not wanted."""
    child = os.fork()
    if child == 0:
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY if os.geteuid() == 0 else hard,) * 2)
        ballast = np.random.default_rng(1).integers(0, 1 << 62, megabytes << 17)
        ctypes.string_at(ballast.nbytes * 0)  # address 0
    os.waitpid(child, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
