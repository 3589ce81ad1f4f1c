"""The CPU budget of the agent, over any ten minutes and any minute; above it work is left out, least worth first.

What detection stands on, the counters of processes, is never left out; where the rest still costs too much, all is
sampled more rarely. The real-time class ends with the first.
"""

from __future__ import annotations

import contextlib
import resource
import time
from collections import deque
from collections.abc import Callable, Iterable

LIMITS = {  # share of the budget from which on work is left out
    "files": 0.6,  # and descriptors and threads, of processes that are no candidates
    "stacks": 0.85,
    "timelines": 0.9,  # threads, and devices five times a second
    "fast sampling": 0.95,  # than between bursts
    "folders": 1.0,  # of candidates: only the files that were observed are looked up
}
MAX_SLOWDOWN, EXCESS = 10, 0.25
CHECKPOINT_SHARE = 0.25  # of a core, in a minute with a checkpoint
PERIOD_NS = 2_000_000_000
MINUTE_NS = 60_000_000_000
WINDOW_NS = 10 * MINUTE_NS
_CPU_CLOCK_OF_PROCESS = 2  # CPUCLOCK_SCHED, include/linux/posix-timers.h


def used_by(pids: Iterable[int]) -> int:
    """CPU time of this process with children that it has waited for, and of other processes, in nanoseconds."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    used_ns = time.process_time_ns() + int((children.ru_utime + children.ru_stime) * 1e9)
    for pid in pids:
        with contextlib.suppress(OSError):  # the recorder has ended, and so do we
            used_ns += time.clock_gettime_ns((~pid << 3) | _CPU_CLOCK_OF_PROCESS)
    return used_ns


class Governor:
    """Decides which work is left out, and counts what was; all of it is done where there is no budget (None)."""

    def __init__(self, budget: float | None, used_ns: Callable[[], int]) -> None:
        """`budget`: share of one core. `used_ns`: the CPU time used so far."""
        self._budget = budget
        self._used_ns = used_ns
        self._history: deque[tuple[int, int]] = deque()  # when, and what was used until then
        self._next_ns = 0
        self.used_share = 0.0
        self.left_out: dict[str, int] = {}  # how often each kind of work was due

    def update(self, now_ns: int, *, saves: bool) -> None:
        """Compare what was used with the budget, if it is due; `saves`: a checkpoint is under way."""
        if self._budget is None or now_ns < self._next_ns:
            return
        self._next_ns = now_ns + PERIOD_NS
        used_ns, history = self._used_ns(), self._history
        if not history:
            history.extend(((now_ns, 0), (now_ns, used_ns)))  # the start counts in the first ten minutes
        while len(history) > 1 and history[1][0] <= now_ns - WINDOW_NS:
            history.popleft()
        first_ns = history[min(1, len(history) - 1)][1]
        since_minute_ns = next((used for at, used in reversed(history) if at <= now_ns - MINUTE_NS), first_ns)
        minute_share = max(self._budget, CHECKPOINT_SHARE) if saves else self._budget
        self.used_share = max(
            (used_ns - history[0][1]) / (self._budget * WINDOW_NS),
            (used_ns - since_minute_ns) / (minute_share * MINUTE_NS),
        )
        history.append((now_ns, used_ns))

    @property
    def is_within(self) -> bool:
        """Whether nothing is left out."""
        return self.used_share < min(LIMITS.values())

    @property
    def slowdown(self) -> float:
        """How many times as rarely to sample: 1 within the budget, 10 from a quarter above it on."""
        return 1 + (MAX_SLOWDOWN - 1) * min(1.0, max(0.0, self.used_share - 1) / EXCESS)

    def allows(self, work: str) -> bool:
        """Return whether to do work of `LIMITS` that is due; what is not done is counted."""
        if self.used_share < LIMITS[work]:
            return True
        self.left_out[work] = self.left_out.get(work, 0) + 1
        return False
