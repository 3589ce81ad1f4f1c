"""What is sampled only during bursts: Python stacks, threads, GPUs, limits of cgroups on I/O and memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from ckptprof.service.sampler.governor import Governor
from ckptprof.service.sampler.stack_sampling import WRITES_NS, StackSampling, training_ancestors
from ckptprof.service.sampler.thread_sampling import ThreadSampling, descriptor_budget, open_limit
from ckptprof.service.sampler.watched_process import WatchedProcess
from ckptprof_collectors.blocking_processes import BLOCKING_PROCESSES
from ckptprof_collectors.devices.throttles import LimitedCgroup, ThrottleReader, find_nearest
from ckptprof_collectors.gpus.gpu_sampler import NAME, GpuSampler
from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.samples import CgroupMemory, Sample, ThrottleInfo, Unavailable

LIMITS_INTERVAL_NS = 15_000_000_000  # within a long burst: the limits may change
MEMORY_INTERVAL_NS = 250_000_000  # reading the memory of one cgroup takes 0.1 ms
GPUS_INTERVAL_NS = 2_000_000_000  # the driver keeps some seconds
GPUS_AFTER_NS = 2_000_000_000  # the last writing
MAX_LIMITED = 16  # processes whose limits are read in one tick


class ThrottleSampling:
    """Reads the limits of a process's cgroups when its burst starts, and during it how near its memory is to them."""

    def __init__(self, fs: KernelFs) -> None:
        self._fs = fs
        self._throttles = ThrottleReader(fs)
        self._sampled_ns: dict[int, int] = {}
        self._limited: dict[int, LimitedCgroup | None] = {}
        self._next_memory_ns = 0

    def sample(
        self, now_ns: int, bursting: Sequence[WatchedProcess], watched: dict[int, WatchedProcess]
    ) -> list[ThrottleInfo]:
        """Return the limits that changed."""
        infos: list[ThrottleInfo] = []
        if len(self._sampled_ns) > len(watched):
            for pid in self._sampled_ns.keys() - watched.keys():
                del self._sampled_ns[pid]
                self._throttles.forget(pid)
                self._limited.pop(pid, None)
        due = [
            pid
            for watching in bursting
            if now_ns - self._sampled_ns.get(pid := watching.process.pid, -LIMITS_INTERVAL_NS) >= LIMITS_INTERVAL_NS
            and watching.activity.is_urgent(now_ns)
        ]
        for pid in due[:MAX_LIMITED]:
            BLOCKING_PROCESSES.reading = pid
            self._sampled_ns[pid] = now_ns
            infos += self._throttles.read_changes(pid)
            self._limited[pid] = find_nearest(self._fs, pid)
        return infos

    def sample_memory(self, now_ns: int, bursting: Sequence[WatchedProcess]) -> list[CgroupMemory]:
        """Return the memory of cgroups with a limit, at intervals."""
        if now_ns < self._next_memory_ns:
            return []
        self._next_memory_ns = now_ns + MEMORY_INTERVAL_NS
        read_used = cache(LimitedCgroup.read_used)  # once for all ranks
        return [
            CgroupMemory(one.pid, one.start_ticks, cgroup.limit_bytes, used_bytes)
            for one in (each.process for each in bursting if each.activity.is_urgent(now_ns))
            if (cgroup := self._limited.get(one.pid)) is not None and (used_bytes := read_used(cgroup)) is not None
        ]


class GpuSampling:
    """Samples the GPUs of writers and of their training ancestors: while they write, and once afterwards."""

    def __init__(self) -> None:
        self._reader = GpuSampler()
        self._wanted: dict[int, int] = {}  # pid -> start in ticks
        self._until_ns = 0
        self._next_ns = 0
        self._has_reported = False

    def sample(
        self, now_ns: int, bursting: Sequence[WatchedProcess], watched: dict[int, WatchedProcess]
    ) -> list[Sample]:
        """Request the sample that is due, and return those that arrived; never waits."""
        for watching in bursting:
            if now_ns - watching.last_write_ns <= WRITES_NS:
                self._wanted |= {
                    one.process.pid: one.process.start_ticks for one in training_ancestors(watching, watched)
                }
                self._until_ns = now_ns + GPUS_AFTER_NS
        if self._wanted and now_ns >= self._next_ns and self._reader.request(self._wanted):
            self._next_ns = now_ns + GPUS_INTERVAL_NS
            if now_ns >= self._until_ns:
                self._wanted = {}
        samples: list[Sample] = list(self._reader.consume())
        reason = None if self._has_reported else self._reader.failure_reason()
        if reason is not None:
            self._has_reported = True
            samples.append(Unavailable(NAME, reason))
        return samples


class BurstSampling:
    """Takes each kind of sample when it is due."""

    def __init__(self, fs: KernelFs, governor: Governor) -> None:
        self._governor = governor
        self._stacks = StackSampling(governor)
        self._threads = ThreadSampling(fs, descriptor_budget(open_limit()))
        self._limits = ThrottleSampling(fs)
        self._gpus = GpuSampling()

    @property
    def is_busy(self) -> bool:
        """Threads are being sampled."""
        return self._threads.is_busy

    @property
    def missed(self) -> int:
        """Samples of Python stacks that were due and were not taken."""
        return self._stacks.missed

    def sample(
        self, now_ns: int, bursting: Sequence[WatchedProcess], watched: dict[int, WatchedProcess], *, traced: bool
    ) -> list[Sample]:
        """Return new samples; never waits. `bursting`: the watched processes that are in a burst."""
        followed = bursting if bursting and self._governor.allows("timelines") else ()
        return [
            *self._threads.sample(now_ns, followed, watched, traced=traced),
            *self._limits.sample(now_ns, bursting, watched),
            *self._limits.sample_memory(now_ns, bursting),
            *self._stacks.sample(now_ns, bursting, watched),
            *self._gpus.sample(now_ns, bursting, watched),
        ]

    def sample_last(self, now_ns: int) -> list[Sample]:
        """Sample the followed threads a last time."""
        return list(self._threads.sample_last(now_ns))

    def close(self) -> None:
        """End the thread that samples stacks."""
        self._stacks.close()
