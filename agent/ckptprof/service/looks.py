"""What is looked at only while a watched process moves bytes: stacks, threads, limits on its devices."""

from __future__ import annotations

from collections.abc import Container

from ckptprof.service.stacklooks import Stacks
from ckptprof.service.threadlooks import MANY, ThreadLooks, descriptors_of
from ckptprof.service.watching import Watching
from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.samples import Sample


class Looks:
    """Takes each kind of look when it is due."""

    def __init__(self, fs: KernelFs, kinds: Container[str]) -> None:
        """Take looks of these kinds: threads, stacks, limits."""
        self._stacks = Stacks() if "stacks" in kinds else None
        self._threads = ThreadLooks(fs, _descriptors()) if "threads" in kinds else None

    @property
    def busy(self) -> bool:
        """Whether something is kept in view."""
        return self._threads is not None and self._threads.busy

    def look(self, now_ns: int, watched: dict[int, Watching], *, traced: bool) -> list[Sample]:
        """Return what was seen; never waits."""
        samples: list[Sample] = []
        if self._threads is not None:
            samples.extend(self._threads.look(now_ns, watched, traced=traced))
        if self._stacks is not None:
            samples.extend(self._stacks.look(now_ns, watched))
        return samples

    def last(self, now_ns: int) -> list[Sample]:
        """Look a last time at what is kept in view."""
        return [] if self._threads is None else list(self._threads.last(now_ns))

    def close(self) -> None:
        """End the thread that looks at stacks."""
        if self._stacks is not None:
            self._stacks.close()


def _descriptors() -> int:
    import resource  # noqa: PLC0415 - once, at the start

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return descriptors_of(limit if limit != resource.RLIM_INFINITY else MANY)
