"""What saves do to the memory of a job, and in how many more it is killed for lack of it.

Memory grows over saves if that of each save is higher than that of the one before (of nine saves, with one exception),
by similar amounts: memory that training frees again, or a first save that fills buffers, makes no forecast. Each save
is expected to take as much more as any before, and the limit is reached when that is no longer left.

A job was killed for lack of memory if the kernel counts such a kill when the counters of its processes change for the
last time: often before the first byte of a save, while its state is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, pairwise
from statistics import median

import msgspec

from ckptprof.bounds import Amount, Count
from ckptprof.diagnose.restarts import LivesOf
from ckptprof.measures import JobMemoryMeasure, Measures, MemoryMeasure
from ckptprof.model import Checkpoint
from ckptprof.units import NS

_FEWEST_STEPS = 4  # from save to save: of five saves that grow by chance one order in 120 rises
_MOST_STEPS = 8
_STEADY_SHARE = 0.5  # of the usual growth: a smaller one means that it ends
_FARTHEST_SAVES = 1000  # a forecast beyond says nothing
_AT_ONCE_NS = 2 * NS  # between two samples of a process on a busy host
_LATER_NS = 600 * NS  # and one interval of its saves after the last one a kill is looked for

# When the kernel killed any process for lack of memory, from `since_ns` to `until_ns`
KillsOf = Callable[[int, int], Sequence[int]]
_Save = tuple[Checkpoint, Measures, JobMemoryMeasure]


class SaveMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of a job around one save; null: not observed."""

    save: Count  # id
    start_ns: int  # epoch nanoseconds
    step: Count | None
    memory: JobMemoryMeasure
    host: MemoryMeasure | None
    stayed_bytes: int | None  # more than before it: when the next save stops training, else after it


class JobMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of a job at its saves, since its processes started."""

    job: str
    saves: tuple[SaveMemory, ...]  # in the order of their start
    growth_bytes: Amount | None  # from save to save; null: it does not grow steadily
    left_bytes: int | None  # below the limit if the last save takes as much as any before
    saves_left: Count | None  # killed at about this save from now; null: no forecast
    killed_ns: int | None  # epoch nanoseconds: the kernel killed it for lack of memory; null: not observed


def find_memory(saves: Iterable[Checkpoint], lives_of: LivesOf, kills_of: KillsOf) -> list[JobMemory]:
    """Return the memory of each job whose saves have measures, the one that is killed first before the others."""
    found = []
    for job, each in groupby(sorted(saves, key=lambda one: (one.job, one.start_ns)), key=lambda one: one.job):
        lives: list[list[_Save]] = []
        pids: set[int] = set()
        for one in each:
            if one.measures is None or one.measures.job_memory is None:
                continue
            own = {process.pid for process in one.measures.processes}
            if not own & pids:  # it was restarted
                lives.append([])
            pids = own
            lives[-1].append((one, one.measures, one.measures.job_memory))
        found += [_job_memory(job, life, _killed_ns(life, lives_of, kills_of)) for life in lives]
    return sorted(found, key=lambda one: (one.saves_left is None, one.saves_left or 0))


def _killed_ns(life: list[_Save], lives_of: LivesOf, kills_of: KillsOf) -> int | None:
    last, measures, _ = life[-1]
    longest_ns = max((later.start_ns - one.start_ns for (one, *_), (later, *_) in pairwise(life)), default=0)
    until_ns = last.end_ns + _LATER_NS + longest_ns
    later_ns = kills_of(last.start_ns, until_ns)
    pids = [process.pid for process in measures.processes] if later_ns else []
    ends_ns = [one.end_ns for pid in pids for one in lives_of(pid, last.start_ns, until_ns)]
    return next((at_ns for at_ns in later_ns if any(abs(at_ns - end_ns) <= _AT_ONCE_NS for end_ns in ends_ns)), None)


def _job_memory(job: str, life: list[_Save], killed_ns: int | None) -> JobMemory:
    later = [memory.before_bytes for _, _, memory in life[1:]] + [life[-1][2].after_bytes]
    saves = tuple(
        SaveMemory(
            save=one.id,
            start_ns=one.start_ns,
            step=one.step,
            memory=memory,
            host=measures.memory,
            stayed_bytes=None if then is None or memory.before_bytes is None else then - memory.before_bytes,
        )
        for (one, measures, memory), then in zip(life, later, strict=True)
    )
    taken = [_taken(one.memory) for one in saves]
    last = saves[-1].memory
    left = None
    if last.limit_bytes is not None and last.used_peak_bytes is not None:
        left = last.limit_bytes - last.used_peak_bytes - (max(taken) - taken[-1])
    growth = _growth(saves)
    saves_left = None if growth is None or left is None else 1 + max(0, left) // round(growth)
    if saves_left is not None and (saves_left > _FARTHEST_SAVES or killed_ns is not None):
        saves_left = None
    return JobMemory(
        job=job, saves=saves, growth_bytes=growth, left_bytes=left, saves_left=saves_left, killed_ns=killed_ns
    )


def _taken(memory: JobMemoryMeasure) -> int:
    return (memory.peak_bytes or 0) - (memory.before_bytes or 0)


def _growth(saves: Sequence[SaveMemory]) -> float | None:
    """Return by how many bytes the memory before usually grows from save to save; None: not steadily."""
    levels = [
        before + ((one.host or MemoryMeasure()).shared_before_bytes or 0)
        for one in saves[-_MOST_STEPS - 1 :]
        if (before := one.memory.before_bytes) is not None
    ]
    steps = [later - one for one, later in pairwise(levels)]
    if len(steps) < _FEWEST_STEPS:
        return None
    usual = median(steps)
    slow = sorted(steps)[len(steps) // _MOST_STEPS]  # of eight all but one
    return usual if usual >= 1 and min(slow, steps[-1]) >= _STEADY_SHARE * usual else None
