"""What a collector is.

To add a collector: write a module with a class like `Collector` and name it in `registry.COLLECTORS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ckptprof_collectors.samples import Sample


class Collector(Protocol):
    """Reads one kernel interface.

    The constructor takes a `KernelFs`, keeps its descriptors open and raises `UnavailableError` with the reason when
    this host has not what it needs. It starts no thread, logs nothing, times nothing and never forks.
    """

    name: str

    def read(self) -> Sequence[Sample] | None:
        """Read the samples that changed since the previous call (all of them at the first); raises OSError.

        None: not due yet, so nothing was read. Its counters may have changed.
        """
        ...

    def close(self) -> None:
        """Close the descriptors."""
        ...
