"""Time in which the critical thread waited for a lock while other threads of its process computed: Python's, or a pool.

Python runs one thread at a time (docs.python.org, "thread state and the global interpreter lock"): all threads of a
process together then use one core, and each of them waits for the lock in futex(2).
"""

from __future__ import annotations

from ckptprof.diagnose.path import CriticalPath
from ckptprof.diagnose.sight import NS, Sight, number, some
from ckptprof.measures import ProcessMeasure
from ckptprof.model import Mode
from ckptprof.verdicts import Account, Limit

ONE_AT_A_TIME = "all threads together used one core"
_LEAST = 0.1  # of the path
_WORKED = 0.6  # of the time that was waited, others were on a CPU
_ONE_CORE = (0.7, 1.3)  # cores of a process whose threads run one at a time, those in calls to the kernel beside it


def locked(sight: Sight, path: CriticalPath, seconds: float) -> Account | None:
    """Return the account of the seconds that were waited for a lock, if other threads of the process explain them."""
    process = sight.process(path.pid) if path.pid is not None else None
    if path.thread is None or process is None or seconds < _LEAST * sight.span or not seconds:
        return None
    busy = number(process.busy)
    beside = max(0.0, busy * sight.span - some(path.thread.on_cpu_ns) / NS) if busy is not None else 0.0
    one_core = busy is not None and _ONE_CORE[0] <= busy <= _ONE_CORE[1] and not _waits_for_work(process)
    if beside < _WORKED * seconds or not (one_core or sight.checkpoint.mode is Mode.SYNC):
        return None  # where training goes on, the others need not work for the one that waits
    how = f"ran ({ONE_AT_A_TIME})" if one_core else f"used {beside / sight.span:.1f} cores"
    text = f"waiting for a lock, while other threads of its process {how}"
    return Account(limit=Limit.SERIALIZE, seconds=seconds, text=text)


def _waits_for_work(process: ProcessMeasure) -> bool:
    """Return whether Python's stacks show threads that wait for what others bring, and for no lock of Python's."""
    stacks = process.stacks or {}
    return 2 * stacks.get("wait", 0) > sum(stacks.values())
