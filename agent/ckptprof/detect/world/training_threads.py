"""What the threads that train did: their time on CPU, their memory and their Python stacks, as far as looked at.

A thread of which no sample came since the last look stood still: samples come only of what changed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.detect.world.keys import ProcessKey
from ckptprof_collectors.samples import FileLifeEvent, GpuUse, ProcessStat, StackSample, ThreadTime

SPACING_NS = 80_000_000  # between looks that are kept: the shares of shorter times are noise
BASELINE_NS = 60_000_000_000  # before a save: so far back lies what is usual
_USUAL_NS = 5_000_000_000  # before that it may have done something else: imported, read, evaluated
_LEAST_SEEN_NS = 500_000_000
_MAX_LOOKS = 3000  # of one process
_MAX_PROCESSES = 1024
_MAX_STACKS = 256  # of one process
_MAX_ACTS = 512
_MAX_GPUS = 16  # of one process
_MAX_USES = 600
_NEAR_NS = 200_000_000  # acts that follow so soon are one


class Look(NamedTuple):
    """Cumulative counters at one time."""

    at_ns: int
    runnable_ns: int  # on a CPU, or waiting for one
    slices: int
    written_chars: int | None
    read_chars: int | None


class Stretch(NamedTuple):
    """What a thread did between two looks."""

    start_ns: int
    end_ns: int
    share: float  # of the time in which it ran or wanted to
    slices: int


@dataclass(frozen=True)
class Rhythm:
    """What is usual for a thread; medians over stretches without a save."""

    share: float
    slices_per_second: float
    seen_ns: int  # for how long it was looked at


@dataclass(slots=True)
class _Thread:
    first_ns: int
    ended_ns: int | None = None
    looks: deque[Look] = field(default_factory=lambda: deque(maxlen=_MAX_LOOKS))
    pending: Look | None = None  # came too soon after the last one that was kept
    memory: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=_MAX_LOOKS))
    stacks: deque[StackSample] = field(default_factory=lambda: deque(maxlen=_MAX_STACKS))
    acts: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=_MAX_ACTS))
    gpus: dict[int, deque[tuple[int, int]]] = field(
        default_factory=dict
    )  # by GPU: when, and percent of the time before
    room_bytes: int = 0  # that it was once seen to take for a copy of its state


def rhythm_of(stretches: list[Stretch]) -> Rhythm | None:
    """Return what is usual in some stretches; None if they are too short."""
    seen_ns = sum(one.end_ns - one.start_ns for one in stretches)
    if seen_ns < _LEAST_SEEN_NS:
        return None
    slices = sum(one.slices for one in stretches) * 1e9 / seen_ns
    return Rhythm(median(one.share for one in stretches), slices, seen_ns)


def _between(before: Look, after: Look, at_ns: int) -> Look:
    """Return how the counters stood between two looks."""
    part = (at_ns - before.at_ns) / max(1, after.at_ns - before.at_ns)
    return before._replace(
        at_ns=at_ns,
        runnable_ns=before.runnable_ns + int(part * (after.runnable_ns - before.runnable_ns)),
        slices=before.slices + round(part * (after.slices - before.slices)),
        written_chars=before.written_chars if part < 1 else after.written_chars,
        read_chars=before.read_chars if part < 1 else after.read_chars,
    )


class TrainingThreads:
    """The recent past of the threads that train."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._threads: dict[ProcessKey, _Thread] = {}
        self._now_ns = 0
        self._previous_ns = 0
        self._saves: deque[tuple[int, int]] = deque(maxlen=256)

    def take(self, samples: FrameSamples, at_ns: int) -> None:
        """Take what one frame tells of them."""
        self._previous_ns, self._now_ns = self._now_ns or at_ns, at_ns
        for stat in samples.stats.values():
            self._take_memory(at_ns, stat)
        for gone in samples.exits:
            self._end((gone.pid, gone.start_ticks), at_ns)
        for life in samples.lives:
            self._take_call(life)
        for time in samples.times:
            self._take_time(at_ns, time)
        for stacks in samples.stacks:
            self._take_stacks(stacks)
        for use in samples.gpus:
            self._take_gpu(use)

    def _take_time(self, at_ns: int, time: ThreadTime) -> None:
        """Take one reading of a thread's times."""
        process = (time.pid, time.start_ticks)
        known = self._threads.get(process)
        if known is None:
            while len(self._threads) >= _MAX_PROCESSES:
                del self._threads[next(iter(self._threads))]
            known = self._threads[process] = _Thread(at_ns)
        look = Look(at_ns, time.on_cpu_ns + time.waited_ns, time.slices, time.written_chars, time.read_chars)
        last = known.looks[-1] if known.looks else None
        if last is None or look.runnable_ns < last.runnable_ns:
            known.looks.append(look)
            return
        if at_ns - last.at_ns < SPACING_NS:
            known.pending = look
            return
        if known.pending is not None:
            last, known.pending = known.pending, None
        if self._previous_ns - last.at_ns >= SPACING_NS:  # until the tick before nothing had changed
            known.looks.append(last._replace(at_ns=self._previous_ns))
        known.looks.append(look)

    def _take_memory(self, at_ns: int, stat: ProcessStat) -> None:
        """Take the memory of a process that trains."""
        known = self._threads.get((stat.pid, stat.start_ticks))
        if known is not None and stat.rss_bytes is not None:
            last = known.memory[-1] if known.memory else (at_ns, stat.rss_bytes)
            if last[0] < self._previous_ns:  # until the tick before it had not changed
                known.memory.append((self._previous_ns, last[1]))
            known.memory.append((at_ns, stat.rss_bytes))

    def _take_stacks(self, stacks: StackSample) -> None:
        """Take one look at a process's stacks."""
        known = self._threads.get((stacks.pid, stacks.start_ticks))
        if known is not None:
            known.stacks.append(stacks)

    def _take_gpu(self, use: GpuUse) -> None:
        """Take what a driver kept of a GPU on which a process computes."""
        known = self._threads.get((use.pid, use.start_ticks))
        if known is not None and (use.gpu in known.gpus or len(known.gpus) < _MAX_GPUS):
            known.gpus.setdefault(use.gpu, deque(maxlen=_MAX_USES)).extend(use.points)

    def gpu_uses(self, process: ProcessKey) -> list[list[tuple[int, int]]]:
        """Return of each of its GPUs (CLOCK_MONOTONIC ns, percent of the time since the point before)."""
        known = self._threads.get(process)
        return [list(points) for points in known.gpus.values()] if known is not None else []

    def _take_call(self, event: FileLifeEvent) -> None:
        """Take what the main thread did to names: it is held by the clean-up of old checkpoints, too."""
        if event.tid != event.pid or event.kind not in ("renamed", "unlinked", "synced"):
            return
        known = self._threads.get((event.pid, event.start_ticks))
        if known is None:
            return
        start_ns = event.at_ns - (event.duration_ns or 0)
        if known.acts and start_ns - known.acts[-1][1] < _NEAR_NS:
            known.acts[-1] = (min(start_ns, known.acts[-1][0]), max(event.at_ns, known.acts[-1][1]))
        else:
            known.acts.append((start_ns, event.at_ns))

    def _end(self, process: ProcessKey, at_ns: int) -> None:
        """Take note that a process has ended: it does not stand still."""
        known = self._threads.get(process)
        if known is not None and known.ended_ns is None:
            known.ended_ns = min(at_ns, self._previous_ns)

    def note_save(self, start_ns: int, end_ns: int) -> None:
        """Take note that something was saved then: what was done meanwhile is not usual."""
        self._saves.append((start_ns, end_ns))

    def knows(self, process: ProcessKey) -> bool:
        """Return whether its main thread was looked at."""
        return process in self._threads

    def first_ns(self, process: ProcessKey) -> int | None:
        """Return when it was first looked at."""
        known = self._threads.get(process)
        return known.first_ns if known is not None else None

    def stacks(self, process: ProcessKey, start_ns: int, end_ns: int) -> list[StackSample]:
        """Return the looks at its stacks in a time."""
        known = self._threads.get(process)
        return [one for one in known.stacks if start_ns <= one.at_ns <= end_ns] if known is not None else []

    def acts(self, process: ProcessKey, start_ns: int, end_ns: int) -> list[tuple[int, int]]:
        """Return when its main thread renamed, removed or synced files, as (start, end)."""
        known = self._threads.get(process)
        return [act for act in known.acts if start_ns <= act[1] and act[0] <= end_ns] if known is not None else []

    def stretches(self, process: ProcessKey, start_ns: int, end_ns: int, least_ns: int = SPACING_NS) -> list[Stretch]:
        """Return what its main thread did in a time, in stretches that are at least so long."""
        found: list[Stretch] = []
        looks = self._looks(process, start_ns, end_ns)
        begin = looks[0] if looks else None
        for look in looks[1:]:
            if begin is None or look.at_ns - begin.at_ns < least_ns:
                continue
            span = look.at_ns - begin.at_ns
            share = max(0.0, min(1.0, (look.runnable_ns - begin.runnable_ns) / span))
            found.append(Stretch(begin.at_ns, look.at_ns, share, look.slices - begin.slices))
            begin = look
        return found

    def _looks(self, process: ProcessKey, start_ns: int, end_ns: int) -> list[Look]:
        """Return the looks that bracket a time; one that is missing at its end is as the last one was."""
        known = self._threads.get(process)
        if known is None or not known.looks:
            return []
        looks = [*known.looks, *([known.pending] if known.pending is not None else [])]
        until_ns = self._now_ns if known.ended_ns is None else known.ended_ns
        if until_ns > looks[-1].at_ns:
            looks.append(looks[-1]._replace(at_ns=until_ns))
        first = max((i for i, look in enumerate(looks) if look.at_ns <= start_ns), default=0)
        last = min((i for i, look in enumerate(looks) if look.at_ns >= end_ns), default=len(looks) - 1)
        found = looks[first : last + 1]
        if len(found) > 1:
            found[0] = _between(found[0], found[1], max(start_ns, found[0].at_ns))
            found[-1] = _between(found[-2], found[-1], max(found[-2].at_ns, min(end_ns, found[-1].at_ns)))
        return found

    def moved(self, process: ProcessKey, start_ns: int, end_ns: int) -> tuple[int, int] | None:
        """Return (written, read) by its main thread itself in a time; None if that was not looked at."""
        looks = self._looks(process, start_ns, end_ns)
        counts = [
            (look.written_chars, look.read_chars)
            for look in looks
            if look.written_chars is not None and look.read_chars is not None
        ]
        if len(counts) < 2:
            return None
        (written, read), (written_before, read_before) = counts[-1], counts[0]
        return written - written_before, read - read_before

    def rhythm(self, process: ProcessKey, before_ns: int) -> Rhythm | None:
        """Return what was usual for its main thread before a time: its last seconds without a save; None if unknown."""
        recent: list[Stretch] = []
        seen_ns = 0
        for one in reversed(self.stretches(process, before_ns - BASELINE_NS, before_ns)):
            if seen_ns >= _USUAL_NS:
                break
            if not self._in_save(one):
                recent.append(one)
                seen_ns += one.end_ns - one.start_ns
        return rhythm_of(recent)

    def in_save(self, at_ns: int) -> bool:
        """Return whether something was being saved then."""
        return any(start_ns <= at_ns <= end_ns for start_ns, end_ns in self._saves)

    def saved_within(self, start_ns: int, end_ns: int) -> bool:
        """Return whether a save began within a time."""
        return any(start_ns <= begin_ns <= end_ns for begin_ns, _ in self._saves)

    def _in_save(self, one: Stretch) -> bool:
        return any(start_ns < one.end_ns and one.start_ns < end_ns for start_ns, end_ns in self._saves)

    def growth(self, process: ProcessKey, start_ns: int, end_ns: int) -> list[tuple[int, int, int]]:
        """Return how its memory grew in a time, as (from, to, bytes)."""
        known = self._threads.get(process)
        if known is None:
            return []
        readings = list(known.memory)
        pairs = pairwise(readings)
        return [
            (before[0], after[0], after[1] - before[1])
            for before, after in pairs
            if after[0] > start_ns and before[0] < end_ns and after[1] > before[1]
        ]

    def knows_memory(self, process: ProcessKey) -> bool:
        """Return whether its memory was looked at."""
        known = self._threads.get(process)
        return known is not None and bool(known.memory)

    def note_room(self, process: ProcessKey, size: int) -> None:
        """Take note that it took memory to copy its state: it may use that again."""
        known = self._threads.get(process)
        if known is not None:
            known.room_bytes = max(known.room_bytes, size)

    def has_room(self, process: ProcessKey, size: int) -> bool:
        """Return whether it may have memory left for a copy of its state."""
        known = self._threads.get(process)
        return known is not None and known.room_bytes * 2 >= size

    def forget_before(self, at_ns: int) -> None:
        """Drop those of whom nothing newer was seen."""
        for process, known in list(self._threads.items()):
            if known.looks[-1].at_ns < at_ns - BASELINE_NS:
                del self._threads[process]
