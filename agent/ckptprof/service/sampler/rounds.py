"""Which watched processes are read at a tick: all active ones; idle ones in turn, as their cost allows.

A few idle ones are all read at each tick, or each second beside a trace, of a thousand each every few seconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from ckptprof.service.sampler.shares import CpuAllowance, UserTurns
from ckptprof.service.sampler.watched_process import WatchedProcess
from ckptprof_collectors.samples import Sample

QUIET_SHARE = 0.004  # of a core, for all idle processes
SAVED_NS = 1_500_000  # of CPU time: enough for about a hundred in one tick
DESCRIBING_SHARE = 0.03  # of a core: about 0.4 ms for each process, more for one with many mappings
DESCRIBING_SAVED_NS = 20_000_000


class SamplingRounds:
    """Reads processes in turn, fairly among users."""

    def __init__(self) -> None:
        self.awake: dict[int, WatchedProcess] = {}  # active when last read; only these can be in a burst
        self._woken: list[WatchedProcess] = []  # since then
        self._turns, self._next_idle_ns = UserTurns(), 0
        self._allowance = CpuAllowance(QUIET_SHARE, SAVED_NS)
        self._describing = CpuAllowance(DESCRIBING_SHARE, DESCRIBING_SAVED_NS)

    def add(self, watching: WatchedProcess) -> None:
        """Include a process."""
        self._turns.add(watching.process.pid, watching.process.uid)
        watching.woken = self._woken
        if watching.is_awake:
            self._woken.append(watching)

    def remove(self, pid: int) -> None:
        """Exclude a process; an unknown pid is ignored."""
        self._turns.remove(pid)
        self.awake.pop(pid, None)

    def due(self, now_ns: int, watched: Mapping[int, WatchedProcess], pause_ns: int = 0) -> Iterator[WatchedProcess]:
        """Yield the processes to read now, idle ones after a pause; the CPU time until the next request is its cost."""
        start_ns = time.thread_time_ns()
        candidates = (*self.awake.values(), *self._woken)
        self._woken.clear()
        self.awake = {
            one.process.pid: one for one in candidates if one.is_awake and watched.get(one.process.pid) is one
        }
        awake = dict(self.awake)
        for watching in awake.values():
            if watching.allowance.left_ns(now_ns) <= 0:
                continue
            yield watching
            ended = time.thread_time_ns()
            watching.allowance.spend(ended - start_ns)
            watching.update_awake(now_ns)
            start_ns = ended
        if now_ns < self._next_idle_ns:
            return
        self._next_idle_ns, turns = now_ns + pause_ns, self._turns.in_turn()
        while self._allowance.left_ns(now_ns) > 0 and (pid := next(turns, None)) is not None:
            if pid not in awake and pid in watched:
                watching = watched[pid]
                yield watching
                watching.update_awake(now_ns)
                if watching.is_awake and pid in watched:
                    self.awake[pid] = watching
            ended = time.thread_time_ns()
            self._allowance.spend(ended - start_ns)
            start_ns = ended

    def describe(self, watching: WatchedProcess, now_ns: int, samples: list[Sample]) -> None:
        """Describe a process if it is due: one that transfers bytes at once, others as their share of CPU allows."""
        moves = watching.activity.is_in_burst() or watching.traced.transferred_bytes > 0
        if watching.describe_due(now_ns) and (moves or self._describing.left_ns(now_ns) > 0):
            start_ns = time.thread_time_ns()
            watching.describe(now_ns, samples)
            self._describing.spend(time.thread_time_ns() - start_ns)
