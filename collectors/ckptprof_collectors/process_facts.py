"""psutil with a configurable /proc: for values that are read once, or rarely.

Loops read raw files from open descriptors instead (docs/benchmarks.md has the difference).
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator
from pathlib import Path

import psutil

MAX_ARGUMENT_BYTES = 256 << 10  # of a command line or an environment; larger ones are not read
_READ_ERRORS = (psutil.Error, OSError, ValueError, IndexError)  # psutil does not validate files of /proc
_ARGUMENTS, _ENVIRONMENT = (45, 46), (47, 48)  # arg_start and arg_end, env_start and env_end, counted from `state`


@contextlib.contextmanager
def psutil_root(proc: Path | bytes) -> Iterator[None]:
    """Set the /proc of psutil, a variable of its module, for the duration."""
    before, psutil.PROCFS_PATH = psutil.PROCFS_PATH, os.fsdecode(proc)
    try:
        yield
    finally:
        psutil.PROCFS_PATH = before


@functools.cache
def own_process() -> psutil.Process:
    """Open this process once; raises psutil.Error, OSError."""
    return psutil.Process()


def own_memory_bytes() -> int | None:
    """Resident memory of this process; None if the kernel does not show it."""
    with contextlib.suppress(OSError, IndexError, ValueError), open("/proc/self/statm", "rb", buffering=0) as file:
        return int(file.read(128).split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return None


class ProcessFacts:
    """Facts of a new process by psutil; empty values if not permitted or gone."""

    def __init__(self, folder: bytes) -> None:
        proc, pid = os.path.split(folder)
        self.pid = int(pid)
        self.stat: list[bytes] = []  # the fields of its `stat`, from the state on
        self._process: psutil.Process | None = None
        with contextlib.suppress(*_READ_ERRORS), psutil_root(proc):
            with open(folder + b"/stat", "rb") as file:
                self.stat = file.read().rpartition(b")")[2].split()
            self._process = psutil.Process(self.pid)

    def arguments(self) -> list[bytes]:
        if self._process is None or self._bytes(_ARGUMENTS) > MAX_ARGUMENT_BYTES:
            return []
        try:
            return [os.fsencode(word) for word in self._process.cmdline()]
        except _READ_ERRORS:
            return []

    def environment(self) -> dict[str, str]:
        """Environment at the start of the process; names and values may contain surrogates."""
        with contextlib.suppress(*_READ_ERRORS):
            if self._process is not None and self._bytes(_ENVIRONMENT) <= MAX_ARGUMENT_BYTES:
                return self._process.environ()
        return {}

    def uid(self) -> int | None:
        try:
            return None if self._process is None else int(self._process.uids().effective)
        except _READ_ERRORS:
            return None

    def _bytes(self, edges: tuple[int, int]) -> int:
        """Length according to the kernel; 0 where it is not shown: then it may not be read either."""
        start, end = edges
        try:
            return int(self.stat[end]) - int(self.stat[start])
        except (IndexError, ValueError):
            return 0
