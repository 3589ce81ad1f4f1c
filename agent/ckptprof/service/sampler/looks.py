"""What is looked at only while a watched process moves bytes: stacks, threads, GPUs, limits on its devices."""

from __future__ import annotations

from collections.abc import Sequence

from ckptprof.service.sampler.stacklooks import WRITES_NS, Stacks, line_of
from ckptprof.service.sampler.threadlooks import ThreadLooks, descriptors_of, open_limit
from ckptprof.service.sampler.watching import Watching
from ckptprof_collectors.devices.throttles import Throttles
from ckptprof_collectors.gpus.gpuuse import NAME, GpuLooker
from ckptprof_collectors.holders import HOLDERS
from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.samples import Sample, ThrottleInfo, Unavailable

LIMITS_AGAIN_NS = 15_000_000_000  # within a burst that lasts: somebody may change them
GPUS_AGAIN_NS = 2_000_000_000  # the driver keeps some seconds
GPUS_AFTER_NS = 2_000_000_000  # the last writing
MAX_LIMITED = 16  # processes of which they are looked at in one tick


class Limits:
    """Looks at the limits on devices that hold a process when its burst begins."""

    def __init__(self, fs: KernelFs) -> None:
        self._throttles = Throttles(fs)
        self._looked_ns: dict[int, int] = {}

    def look(self, now_ns: int, bursting: Sequence[Watching], watched: dict[int, Watching]) -> list[ThrottleInfo]:
        """Return what is new."""
        infos: list[ThrottleInfo] = []
        if len(self._looked_ns) > len(watched):
            for pid in self._looked_ns.keys() - watched.keys():
                del self._looked_ns[pid]
                self._throttles.forget(pid)
        due = [
            pid
            for watching in bursting
            if now_ns - self._looked_ns.get(pid := watching.process.pid, -LIMITS_AGAIN_NS) >= LIMITS_AGAIN_NS
            and watching.activity.urgent(now_ns)
        ]
        for pid in due[:MAX_LIMITED]:
            HOLDERS.reading = pid
            self._looked_ns[pid] = now_ns
            infos += self._throttles.look(pid)
        return infos


class GpuLooks:
    """Asks how busy the GPUs are of those who write, and of their parents, who may train: meanwhile, and once after."""

    def __init__(self) -> None:
        self._looker = GpuLooker()
        self._wanted: dict[int, int] = {}  # pid -> start in ticks
        self._until_ns = 0
        self._next_ns = 0
        self._has_told = False

    def look(self, now_ns: int, bursting: Sequence[Watching], watched: dict[int, Watching]) -> list[Sample]:
        """Ask for what is due and return what was seen; never waits."""
        for watching in bursting:
            if now_ns - watching.wrote_ns <= WRITES_NS:
                self._wanted |= {one.process.pid: one.process.start_ticks for one in line_of(watching, watched)}
                self._until_ns = now_ns + GPUS_AFTER_NS
        if self._wanted and now_ns >= self._next_ns and self._looker.ask(self._wanted):
            self._next_ns = now_ns + GPUS_AGAIN_NS
            if now_ns >= self._until_ns:
                self._wanted = {}
        samples: list[Sample] = list(self._looker.take())
        reason = None if self._has_told else self._looker.take_reason()
        if reason is not None:
            self._has_told = True
            samples.append(Unavailable(NAME, reason))
        return samples


class Looks:
    """Takes each kind of look when it is due."""

    def __init__(self, fs: KernelFs) -> None:
        self._stacks = Stacks()
        self._threads = ThreadLooks(fs, descriptors_of(open_limit()))
        self._limits = Limits(fs)
        self._gpus = GpuLooks()

    @property
    def busy(self) -> bool:
        """Whether something is kept in view."""
        return self._threads.busy

    @property
    def missed(self) -> int:
        """How many looks at Python stacks were due, and were not taken."""
        return self._stacks.missed

    def look(
        self, now_ns: int, bursting: Sequence[Watching], watched: dict[int, Watching], *, traced: bool
    ) -> list[Sample]:
        """Return what was seen; never waits. `bursting` are those of the watched that are in a burst."""
        return [
            *self._threads.look(now_ns, bursting, watched, traced=traced),
            *self._limits.look(now_ns, bursting, watched),
            *self._stacks.look(now_ns, bursting, watched),
            *self._gpus.look(now_ns, bursting, watched),
        ]

    def last(self, now_ns: int) -> list[Sample]:
        """Look a last time at what is kept in view."""
        return list(self._threads.last(now_ns))

    def close(self) -> None:
        """End the thread that looks at stacks."""
        self._stacks.close()
