"""Time in which the critical thread waited while other threads of its process computed: for Python's lock, or a pool.

Python runs one thread at a time (docs.python.org, "thread state and the global interpreter lock"): all threads of a
process together then use one core, and each of them waits for the lock in futex(2).
"""

from __future__ import annotations

from ckptprof.diagnose.accounts.path import CriticalPath, had_cpu
from ckptprof.diagnose.causes import Cause, Spent
from ckptprof.diagnose.sight import NS, SLIGHT, Sight, some
from ckptprof.measures import ProcessMeasure, ThreadMeasure
from ckptprof.model import Mode
from ckptprof.verdicts import Limit

_WORKED = 0.6  # of the time that was waited, others were on a CPU
_LEAST_SECONDS = 0.1  # of their work: ten ticks of the clock by which processes are charged
_ONE_CORE = (0.7, 1.3)  # cores of a process whose threads run one at a time, those in calls to the kernel beside it


def locked(sight: Sight, path: CriticalPath, seconds: float) -> Spent | None:
    """Return the account of seconds asleep in futex(2) and the like, if other threads of the process explain them."""
    process = sight.process(path.pid) if path.pid is not None else None
    if path.thread is None or process is None or seconds < SLIGHT * sight.span or not seconds:
        return None
    busy, own = process.busy, _on_cpu(path.thread)
    if busy is None or own is None:
        return None
    beside = busy * sight.span - own
    held = sight.checkpoint.mode is Mode.SYNC
    one_core = _ONE_CORE[0] <= busy <= _ONE_CORE[1] and _runs_python(process, unseen=held)
    worked = beside >= max(_LEAST_SECONDS, max(SLIGHT, _WORKED * had_cpu(path.thread)) * seconds)
    if not worked or not (one_core or held):
        return None  # where training goes on, the others need not work for the one that waits
    how = "ran (all threads together used one core)" if one_core else f"used {beside / sight.span:.1f} cores"
    text = f"waiting for other threads of its process, which {how}"
    return Spent(Cause.LOCK if one_core else Cause.THREADS, Limit.SERIALIZE, seconds, text)


def _on_cpu(thread: ThreadMeasure) -> float | None:
    """Return the seconds that a thread was on a CPU, None if nothing tells."""
    exact = thread.on_cpu_ns
    if exact is None and thread.user_ns is None and thread.system_ns is None:
        return None
    return (exact if exact is not None else some(thread.user_ns) + some(thread.system_ns)) / NS


def _runs_python(process: ProcessMeasure, *, unseen: bool) -> bool:
    """Return whether most looks at Python's stacks met threads at work, and waiting for nothing that others bring."""
    stacks = process.stacks or {}
    waits = stacks.get("wait", 0) + stacks.get("gather", 0)
    return 2 * waits <= sum(stacks.values()) if stacks else unseen
