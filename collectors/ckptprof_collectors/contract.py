"""What a collector is, and what a trace is.

To add a collector: write a module with a class like `Collector` and name it in `registry.COLLECTORS`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Protocol

from ckptprof_collectors.samples import Sample, TraceHealth


class Collector(Protocol):
    """Reads one kernel interface.

    The constructor takes a `KernelFs`, keeps its descriptors open and raises `UnavailableError` with the reason when
    this host has not what it needs. It starts no thread, logs nothing, times nothing and never forks.
    """

    name: str

    def read(self) -> Sequence[Sample] | None:
        """Return the samples that changed since the previous call (all of them at the first); raises OSError.

        None: nothing was read, as it is not time yet. What it tells of has not stood still since then.
        """
        ...

    def close(self) -> None:
        """Give the descriptors back."""
        ...


class Tracer(ABC):
    """Sees every read and write of every process; after `close`, and when we end, nothing of it stays in the kernel."""

    name = "trace"
    _health: TraceHealth | None = None  # as it was told last

    @property
    @abstractmethod
    def degraded(self) -> tuple[str, ...]:
        """What cannot be seen here, each one sentence."""

    @property
    @abstractmethod
    def programs(self) -> dict[str, str]:
        """What stands at each hook."""

    @abstractmethod
    def fileno(self) -> int:
        """Return a descriptor that is readable when there is much to read."""

    @abstractmethod
    def check(self) -> None:
        """Raise OSError if it cannot be read; takes nothing that is to be told."""

    @abstractmethod
    def read(self, *, last: bool = False) -> Sequence[Sample]:
        """Return what changed since the previous call, `last` all of it; raises OSError."""

    def attend(self, processes: Mapping[int, bool], trifle_bytes: int) -> None:  # noqa: B027 - others tell of all
        """Need not tell of files of which less was read, but for those of these processes.

        Of those that train (True) the children, and theirs, are meant as well. While one does, tell also what these
        processes send and receive over TCP.
        """

    def trifles(self) -> Mapping[int, int]:
        """Return the bytes that each process, by its pid, read of files that were not told of, since the last call."""
        return {}

    @abstractmethod
    def close(self) -> None:
        """Detach everything."""

    def _news(self, health: TraceHealth) -> list[Sample]:
        if health == self._health:
            return []
        self._health = health
        return [health]
