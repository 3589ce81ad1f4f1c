"""What the threads that train did: their time on CPU, their memory and their Python stacks, as far as looked at.

A thread of which no sample came since the last look stood still: samples come only of what changed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from ckptprof.detect.world.bounded import Bounded
from ckptprof.detect.world.counter_history import SECOND_NS, UNSEEN, CounterHistory, Kept, Timed, interpolated
from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.spans import Span
from ckptprof_collectors.samples import FileLifeEvent, GpuUse, ProcessStat, StackSample, ThreadTime

SPACING_NS = 80_000_000  # between looks that are kept: the shares of shorter times are noise
BASELINE_NS = 60_000_000_000  # before a save: so far back lies what is usual
_USUAL_NS = 5_000_000_000  # before that it may have done something else: imported, read, evaluated
_LEAST_SEEN_NS = 500_000_000
_KEPT = Kept(fast_looks=1500, slow_looks=600, slow_ns=2 * SECOND_NS)  # two minutes in full, 20 more: 0.2 MB a process
_RUNNABLE, _SLICES, _WRITTEN, _READ, _WIDTH = range(5)  # runnable: ns on a CPU, or waiting for one
_MAX_PROCESSES = 1024
_MAX_SAVES = 256  # of all processes
_MAX_STACKS = 256  # of one process
_MAX_ACTS = 512  # of one process
_MAX_GPUS = 16  # of one process
_MAX_USES = 600  # of one GPU
_NEAR_NS = 200_000_000  # acts that follow so soon are one


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
    times: CounterHistory = field(default_factory=lambda: CounterHistory(_WIDTH, _KEPT))  # by _RUNNABLE to _READ
    ended_ns: int | None = None
    pending: Timed | None = None  # a look that came too soon after the last one that was kept
    memory: CounterHistory = field(default_factory=lambda: CounterHistory(1, _KEPT))  # resident bytes
    stacks: deque[StackSample] = field(default_factory=lambda: deque(maxlen=_MAX_STACKS))
    acts: deque[Span] = field(default_factory=lambda: deque(maxlen=_MAX_ACTS))
    # by GPU: when, and percent of the time before
    gpus: dict[int, deque[tuple[int, int]]] = field(default_factory=dict)
    room_bytes: int = 0  # that it was once seen to take for a copy of its state


def rhythm_of(stretches: list[Stretch]) -> Rhythm | None:
    """Return what is usual in some stretches; None if they are too short."""
    seen_ns = sum(one.end_ns - one.start_ns for one in stretches)
    if seen_ns < _LEAST_SEEN_NS:
        return None
    slices = sum(one.slices for one in stretches) * 1e9 / seen_ns
    return Rhythm(median(one.share for one in stretches), slices, seen_ns)


class TrainingThreads:
    """The recent past of the threads that train."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._threads: Bounded[ProcessKey, _Thread] = Bounded(_MAX_PROCESSES)
        self._now_ns = 0
        self._previous_ns = 0
        self._saves: deque[Span] = deque(maxlen=_MAX_SAVES)

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
            known = _Thread(at_ns)
        self._threads[process] = known
        written = UNSEEN if time.written_chars is None else time.written_chars
        read = UNSEEN if time.read_chars is None else time.read_chars
        look = (time.on_cpu_ns + time.waited_ns, time.slices, written, read)
        if not known.times or look[_RUNNABLE] < known.times.last[_RUNNABLE]:
            known.pending = None
            known.times.add(at_ns, look)
            return
        if at_ns - known.times.last_ns < SPACING_NS:
            known.pending = at_ns, look
            return
        last_ns, last = known.pending or (known.times.last_ns, known.times.last)
        known.pending = None
        if self._previous_ns - last_ns >= SPACING_NS:  # until the tick before nothing had changed
            known.times.add(self._previous_ns, last)
        known.times.add(at_ns, look)

    def _take_memory(self, at_ns: int, stat: ProcessStat) -> None:
        """Take the memory of a process that trains."""
        known = self._threads.get((stat.pid, stat.start_ticks))
        if known is not None and stat.rss_bytes is not None:
            known.memory.add(at_ns, (stat.rss_bytes,), self._previous_ns)

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

    def acts(self, process: ProcessKey, start_ns: int, end_ns: int) -> list[Span]:
        """Return when its main thread renamed, removed or synced files, as (start, end)."""
        known = self._threads.get(process)
        return [act for act in known.acts if start_ns <= act[1] and act[0] <= end_ns] if known is not None else []

    def stretches(self, process: ProcessKey, start_ns: int, end_ns: int, least_ns: int = SPACING_NS) -> list[Stretch]:
        """Return what its main thread did in a time, in stretches that are at least so long."""
        found: list[Stretch] = []
        looks = self._looks(process, start_ns, end_ns)
        begin_ns, begin = looks[0] if looks else (0, ())
        for at_ns, look in looks[1:]:
            span_ns = at_ns - begin_ns
            if span_ns < least_ns:
                continue
            share = max(0.0, min(1.0, (look[_RUNNABLE] - begin[_RUNNABLE]) / span_ns))
            found.append(Stretch(begin_ns, at_ns, share, look[_SLICES] - begin[_SLICES]))
            begin_ns, begin = at_ns, look
        return found

    def _looks(self, process: ProcessKey, start_ns: int, end_ns: int) -> list[Timed]:
        """Return the looks within a time, and how the counters stood at its start and end; the last look holds on."""
        known = self._threads.get(process)
        if known is None or not known.times:
            return []
        looks = known.times.bracket(start_ns, end_ns)
        later = [known.pending] if known.pending is not None else []
        until_ns = self._now_ns if known.ended_ns is None else known.ended_ns
        last_ns, last = later[-1] if later else (known.times.last_ns, known.times.last)
        for look in [*later, *([(until_ns, last)] if until_ns > last_ns else [])]:
            if looks[-1][0] < end_ns:
                looks = [look] if look[0] <= start_ns else [*looks, look]
        if len(looks) > 1:
            looks[0] = _edge(looks[0], looks[1], start_ns)
            looks[-1] = _edge(looks[-2], looks[-1], end_ns)
        return looks

    def moved(self, process: ProcessKey, start_ns: int, end_ns: int) -> tuple[int, int] | None:
        """Return (written, read) by its main thread itself in a time; None if that was not looked at."""
        looks = self._looks(process, start_ns, end_ns)
        counts = [look[_WRITTEN:] for _, look in looks if UNSEEN not in look[_WRITTEN:]]
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
        pairs = pairwise(known.memory.bracket(start_ns, end_ns)) if known is not None else ()
        return [(since, until, now - had) for (since, (had,)), (until, (now,)) in pairs if now > had]

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
        self._threads.forget_before(at_ns - BASELINE_NS, lambda known: known.times.last_ns)


def _edge(before: Timed, after: Timed, at_ns: int) -> Timed:
    """Return how the counters stood between two looks; what was moved is counted at the look after it."""
    at_ns = max(at_ns, before[0])
    if at_ns >= after[0]:
        return after
    runnable_ns, slices = interpolated((before[0], before[1][:_WRITTEN]), (after[0], after[1][:_WRITTEN]), at_ns)
    return at_ns, (round(runnable_ns), round(slices), *before[1][_WRITTEN:])
