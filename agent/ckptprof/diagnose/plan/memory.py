"""What saves do to the memory of a job, and in how many more it is killed for lack of it.

Memory grows over saves if that of each save is higher than that of the one before (of nine saves, with one exception),
by similar amounts. Each save is expected to take as much more as any of the last eight, until that is no longer left.

A job was killed for lack of memory if the kernel counts such a kill when the counters of its processes change for the
last time: often before the first byte of a save, while its state is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
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
_FARTHEST_SAVES = 1000  # growth that fills the limit later is none
_AT_ONCE_NS = 2 * NS  # between two samples of a process
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
    taken_bytes: int | None  # peak over the memory before it
    stayed_bytes: int | None  # more than before it: when the next save stops training, else after it


class JobMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of a job at its saves, since its processes started."""

    job: str
    saves: tuple[SaveMemory, ...]  # in the order of their start
    growth_bytes: Amount | None  # from save to save; null: not steadily, or too slowly to matter
    left_bytes: int | None  # below the limit if the last save takes as much as any of the last eight
    saves_left: Count | None  # killed at about this save from now; null: no forecast
    killed_ns: int | None  # epoch nanoseconds: the kernel killed it for lack of memory; null: not observed


def find_memory(saves: Iterable[Checkpoint], lives_of: LivesOf, kills_of: KillsOf) -> list[JobMemory]:
    """Return the memory of each job whose saves have measures, the one that is killed first before the others."""
    lives: list[list[_Save]] = []
    pids: set[int] = set()
    for one in sorted(saves, key=lambda one: (one.job, one.start_ns)):
        if one.measures is None or one.measures.job_memory is None:
            continue
        own = {process.pid for process in one.measures.processes}
        if not own & pids or lives[-1][-1][0].job != one.job:
            lives.append([])  # it was restarted, or is another job
        pids = own
        lives[-1].append((one, one.measures, one.measures.job_memory))
    found = [_job_memory(life, _killed_ns(life, lives_of, kills_of)) for life in lives]
    return sorted(found, key=lambda one: (one.saves_left is None, one.saves_left or 0))


def _killed_ns(life: list[_Save], lives_of: LivesOf, kills_of: KillsOf) -> int | None:
    last, measures, _ = life[-1]
    until_ns = last.end_ns + (last.start_ns - life[-2:][0][0].start_ns) + _LATER_NS
    for at_ns in kills_of(last.start_ns, until_ns):
        lives = [one for by in measures.processes for one in lives_of(by.pid, last.start_ns, until_ns)]
        if any(abs(at_ns - one.end_ns) <= _AT_ONCE_NS for one in lives):
            return at_ns
    return None


def _job_memory(life: list[_Save], killed_ns: int | None) -> JobMemory:
    later = [memory.before_bytes for _, _, memory in life[1:]] + [life[-1][2].after_bytes]
    saves = tuple(
        SaveMemory(
            save=one.id, start_ns=one.start_ns, step=one.step, memory=memory, host=measures.memory,
            taken_bytes=_more(memory.before_bytes, memory.peak_bytes), stayed_bytes=_more(memory.before_bytes, then),
        )
        for (one, measures, memory), then in zip(life, later, strict=True)
    )  # fmt: skip
    left, growth = _left(saves), _growth(saves)
    saves_left = None if growth is None or left is None else 1 + max(0, left) // round(growth)
    if saves_left is not None and saves_left > _FARTHEST_SAVES:
        growth = saves_left = None
    return JobMemory(
        job=life[0][0].job, saves=saves, growth_bytes=growth, left_bytes=left, saves_left=saves_left,
        killed_ns=killed_ns,
    )  # fmt: skip


def _more(before: int | None, then: int | None) -> int | None:
    return None if before is None or then is None else then - before


def _level(one: SaveMemory) -> int | None:
    before, host = one.memory.before_bytes, one.host or MemoryMeasure()
    return None if before is None else before + (host.shared_before_bytes or 0)


def _left(saves: Sequence[SaveMemory]) -> int | None:
    """Return the bytes that are left of the limit; what the first save takes, start-up included, counts only alone."""
    room = [
        free + level
        for one in (saves[1:] or saves)[-_MOST_STEPS:]
        if (free := _more(one.memory.used_peak_bytes, one.memory.limit_bytes)) is not None
        and (level := _level(one)) is not None
    ]
    return _more(_level(saves[-1]), min(room, default=None))


def _growth(saves: Sequence[SaveMemory]) -> float | None:
    """Return by how many bytes the memory before usually grows from save to save; None: not steadily."""
    levels = [level for one in saves[-_MOST_STEPS - 1 :] if (level := _level(one)) is not None]
    steps = [later - one for one, later in pairwise(levels)]
    if len(steps) < _FEWEST_STEPS:
        return None
    usual = median(steps)
    slow = sorted(steps)[len(steps) // _MOST_STEPS]  # of eight all but one
    return usual if usual >= 1 and min(slow, steps[-1]) >= _STEADY_SHARE * usual else None
