"""What training threads did: their CPU time, Python stacks and GPUs, as far as sampled.

A thread without a new sample since the last tick was idle: collectors report only changes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from statistics import median
from typing import NamedTuple

from msgspec.structs import replace

from ckptprof.detect.tolerances import AT_ONCE_NS, MAX_FILES, MAX_POINTS
from ckptprof.detect.world.bounded import MAX_ENTRIES, MAX_RECENT, Bounded
from ckptprof.detect.world.counter_history import UNOBSERVED, CounterHistory, TimedCounters, interpolated
from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.detect.world.jobs import Jobs
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.spans import Span
from ckptprof_collectors.samples import GpuUse, ProcessExit, StackSample, ThreadTime

SPACING_NS = 80_000_000  # between retained samples: shares of shorter times are noise
BASELINE_NS = 60_000_000_000  # before a save: the baseline
_USUAL_NS = 5_000_000_000  # before that it may have imported, read or evaluated
_MIN_OBSERVED_NS = 500_000_000
_WAKES_PER_SECOND = 1.0  # a second
_BLOCKED_SHARE = 0.05
_MAX_GPUS = 16  # of one process
_MAX_CACHED_STRETCHES = 8192  # cached, 0.2 KB each


class Stretch(NamedTuple):
    """Activity of a thread between two samples."""

    start_ns: int
    end_ns: int
    share: float  # of the time in which it ran or was runnable
    slices: int


@dataclass(frozen=True)
class Rhythm:
    """What is usual for a thread: medians over stretches without a save."""

    share: float
    slices_per_second: float


@dataclass(slots=True)
class _TrainingThread:
    first_ns: int | None = None  # time of the first sample
    # ns on a CPU or waiting for one, slices, bytes written and read
    times: CounterHistory = field(default_factory=lambda: CounterHistory(4))
    ended_ns: int | None = None
    stacks: deque[StackSample] = field(default_factory=lambda: deque(maxlen=MAX_POINTS))
    # by GPU: (time, busy percent of the time before)
    gpus: dict[int, deque[tuple[int, int]]] = field(default_factory=dict)
    shares_gpu: bool = False  # with a process that may be of another job
    copy_buffer_bytes: int = 0  # the largest copy of its state


def usual_rhythm(stretches: Sequence[Stretch]) -> Rhythm | None:
    """Medians over stretches; None if these are too short."""
    observed_ns = sum(one.end_ns - one.start_ns for one in stretches)
    if observed_ns < _MIN_OBSERVED_NS:
        return None
    slices = median(one.slices * 1e9 / (one.end_ns - one.start_ns) for one in stretches)  # the median ignores bursts
    return Rhythm(median(one.share for one in stretches), slices)


def wakes_by_itself(stretches: Sequence[Stretch]) -> bool:
    """Whether it woke by itself: a blocked thread does not, nor a launcher that waits for its workers."""
    observed_ns = sum(one.end_ns - one.start_ns for one in stretches)
    return sum(one.slices for one in stretches) * 1e9 >= _WAKES_PER_SECOND * observed_ns


class TrainingThreads:
    """Recent history of the training threads."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._threads: Bounded[ProcessKey, _TrainingThread] = Bounded(
            MAX_ENTRIES, _TrainingThread, last_ns=lambda known: known.times.last_ns
        )
        self._now_ns = 0
        self._previous_ns = 0
        self._frames: dict[tuple[str, str, int], tuple[str, str, int]] = {}
        self._saves: deque[tuple[str, int, int]] = deque(maxlen=MAX_RECENT)  # job, start, end
        self.paused_ns_per_byte: Bounded[ProcessKey, deque[float]] = Bounded(MAX_ENTRIES, lambda: deque(maxlen=2))
        # by arguments: the sample times that were used, and the result
        self._cached: dict[tuple[ProcessKey, int, int, int], tuple[array[int], Sequence[Stretch]]] = {}
        self._cached_stretches = 0

    def ingest(self, samples: FrameSamples) -> None:
        """Ingest the samples of one frame."""
        at_ns = samples.at_ns
        self._previous_ns, self._now_ns = self._now_ns or at_ns, at_ns
        for exited in samples.by_kind(ProcessExit):
            thread = self._thread(exited)
            thread.ended_ns = thread.ended_ns or min(at_ns, self._previous_ns)  # from then on it is not idle but gone
        for time in samples.by_kind(ThreadTime):
            before_ns = min(self._previous_ns, samples.counted_before_ns((time.pid, time.start_ticks)))
            self._ingest_time(at_ns, before_ns, time)
        for stacks in samples.by_kind(StackSample):
            self._thread(stacks).stacks.append(self._with_shared_frames(stacks))
        for use in samples.by_kind(GpuUse):
            thread = self._thread(use)
            thread.shares_gpu = thread.shares_gpu or use.others > 0
            gpus = thread.gpus
            if use.gpu in gpus or len(gpus) < _MAX_GPUS:
                gpus.setdefault(use.gpu, deque(maxlen=MAX_POINTS)).extend(use.points)

    def _with_shared_frames(self, sample: StackSample) -> StackSample:
        """Return a sample whose frames are those of earlier samples: of a profile most are equal."""
        if len(self._frames) > MAX_FILES:
            self._frames.clear()
        share = self._frames.setdefault
        return replace(sample, threads=tuple(
            replace(one, frames=tuple(share(frame, frame) for frame in one.frames)) for one in sample.threads
        ))  # fmt: skip

    def _thread(self, process: ProcessKey | ProcessExit | StackSample | GpuUse) -> _TrainingThread:
        key = process if isinstance(process, tuple) else (process.pid, process.start_ticks)
        return self._threads[key]

    def _ingest_time(self, at_ns: int, before_ns: int, time: ThreadTime) -> None:
        thread = self._threads.touch((time.pid, time.start_ticks))
        thread.first_ns = thread.first_ns or at_ns
        sample = (time.on_cpu_ns + time.waited_ns, time.slices, time.written_chars, time.read_chars)
        ran_ns = sample[0] - thread.times.last_values[0] if thread.times else 0
        was_read = ran_ns <= at_ns - before_ns  # else it ran before that, too, so it was not read then
        thread.times.add(at_ns, sample, before_ns if was_read else 0)

    def gpu_uses(self, process: ProcessKey) -> list[list[tuple[int, int]]]:
        """For each of its GPUs, list (CLOCK_MONOTONIC ns, busy percent since the previous point)."""
        return [list(points) for points in self._thread(process).gpus.values()]

    def shares_gpu(self, process: ProcessKey) -> bool:
        """Whether another process computed on one of its GPUs, whose activity counts for both."""
        return self._thread(process).shares_gpu

    def record_save(self, job: str, start_ns: int, end_ns: int) -> None:
        """Record the time of a save, which is no baseline of its job."""
        self._saves.append((job, start_ns, end_ns))

    def is_known(self, process: ProcessKey) -> bool:
        """Whether its main thread was sampled."""
        return process in self._threads

    def first_ns(self, process: ProcessKey) -> int | None:
        """Time of its first sample; None: not sampled."""
        return self._thread(process).first_ns

    def stacks(self, process: ProcessKey, start_ns: int, end_ns: int) -> list[StackSample]:
        """Select the samples of its stacks in a time, in order: those of a profile arrive late."""
        found = [one for one in self._thread(process).stacks if start_ns <= one.at_ns <= end_ns]
        return sorted(found, key=attrgetter("at_ns"))

    def stretches(
        self, process: ProcessKey, start_ns: int, end_ns: int, least_ns: int = SPACING_NS
    ) -> Sequence[Stretch]:
        """List the stretches of its main thread in a time, each at least `least_ns` long; cached if they are final."""
        times = self._thread(process).times
        if times.last_ns <= end_ns:
            return self._stretches(process, start_ns, end_ns, least_ns)
        key = process, start_ns, end_ns, least_ns
        sample_times, found = self._cached.get(key, (None, ()))
        if sample_times is not times.times:  # not cached, or samples were thinned since
            found = self._stretches(*key)
            self._cached_stretches += 1 + len(found)
            if self._cached_stretches > _MAX_CACHED_STRETCHES:
                self._cached, self._cached_stretches = {}, 1 + len(found)
            self._cached[key] = times.times, found
        return found

    def _stretches(self, process: ProcessKey, start_ns: int, end_ns: int, least_ns: int) -> list[Stretch]:
        found: list[Stretch] = []
        samples = iter(self._samples(process, start_ns, end_ns))
        since_ns, (ran_ns, slices_before, *_) = next(samples, (0, (0, 0)))
        for at_ns, (runnable_ns, slices, _, _) in samples:
            span_ns = at_ns - since_ns
            if span_ns < least_ns:
                continue
            share = (runnable_ns - ran_ns) / span_ns
            found.append(Stretch(since_ns, at_ns, 0.0 if share < 0 else min(share, 1.0), slices - slices_before))
            since_ns, ran_ns, slices_before = at_ns, runnable_ns, slices
        return found

    def running_share(self, process: ProcessKey, start_ns: int, end_ns: int) -> float | None:
        """Share of a time in which its main thread ran or was runnable; None: not sampled, or too short."""
        spans = [(one.share, one.end_ns - one.start_ns) for one in self.stretches(process, start_ns, end_ns)]
        return sum(share * span_ns for share, span_ns in spans) / sum(ns for _, ns in spans) if spans else None

    def recent_stretches(self, process: ProcessKey, start_ns: int, end_ns: int) -> Iterator[Stretch]:
        """Yield the result of `stretches`, last first, computing only what is consumed."""
        times, until_ns, reach_ns = self._thread(process).times.times, end_ns, _USUAL_NS // 2
        while until_ns - reach_ns > start_ns:
            low, high = bisect_left(times, until_ns - reach_ns), bisect_left(times, until_ns)
            edges = (
                times[sample] for sample in range(low + 1, high) if times[sample] - times[sample - 1] >= SPACING_NS
            )
            edge_ns = next(edges, None)
            if edge_ns is None:
                reach_ns *= 2
                continue
            yield from reversed(self._stretches(process, edge_ns, until_ns, SPACING_NS))
            until_ns = edge_ns
        yield from reversed(self._stretches(process, start_ns, until_ns, SPACING_NS))

    def _samples(self, process: ProcessKey, start_ns: int, end_ns: int) -> list[TimedCounters]:
        """List samples within a time, with the counters at its edges; the last one is valid until its exit."""
        thread = self._thread(process)
        if not thread.times:
            return []
        samples = thread.times.samples(start_ns, end_ns)
        until_ns = self._now_ns if thread.ended_ns is None else thread.ended_ns
        if thread.times.last_ns < until_ns and samples[-1][0] < end_ns:
            last_sample = until_ns, thread.times.last_values
            samples = [last_sample] if until_ns <= start_ns else [*samples, last_sample]
        if len(samples) > 1:
            samples[0] = _interpolate_edge(samples[0], samples[1], start_ns)
            samples[-1] = _interpolate_edge(samples[-2], samples[-1], end_ns)
        return samples

    def transferred_bytes(self, process: ProcessKey, start_ns: int, end_ns: int) -> tuple[int, int] | None:
        """Measure bytes (written, read) by its main thread itself; None: not sampled."""
        samples = self._samples(process, start_ns, end_ns)
        counts = [counters for _, (_, _, *counters) in samples if UNOBSERVED not in counters]
        if len(counts) < 2:
            return None
        (written, read), (written_before, read_before) = counts[-1], counts[0]
        return written - written_before, read - read_before

    def rhythm(self, process: ProcessKey, before_ns: int) -> Rhythm | None:
        """Rhythm of its main thread in the last seconds without a save before a time; None if unknown."""
        recent: list[Stretch] = []
        observed_ns, saves = 0, self.saves_between(process, before_ns - BASELINE_NS, before_ns)
        for one in self.recent_stretches(process, before_ns - BASELINE_NS, before_ns):
            if observed_ns >= _USUAL_NS:
                break
            is_blocked = one.share < _BLOCKED_SHARE and not wakes_by_itself([one])
            if is_blocked and (not recent or (observed_ns <= AT_ONCE_NS <= one.end_ns - one.start_ns)):
                recent, observed_ns = [], 0  # already blocked, though it may have sent its state in between
                continue
            if not any(start_ns < one.end_ns and one.start_ns < end_ns for start_ns, end_ns in saves):
                recent.append(one)
                observed_ns += one.end_ns - one.start_ns
        return usual_rhythm(recent)

    def saves_between(self, process: ProcessKey, start_ns: int, end_ns: int) -> list[Span]:
        """Select the saves of its job that overlap or touch a time."""
        job = self._jobs.job_of(process)
        return [one[1:] for one in self._saves if one[0] == job and one[1] <= end_ns and one[2] >= start_ns]

    def last_save_end_ns(self, process: ProcessKey, before_ns: int) -> int:
        """End of the last save of its job that started before a time; 0 if there was none."""
        return max((end_ns for _, end_ns in self.saves_between(process, 0, before_ns - 1)), default=0)

    def record_copy_buffer(self, process: ProcessKey, size: int) -> None:
        """Record that it allocated memory to copy its state, which it may use again."""
        thread = self._thread(process)
        thread.copy_buffer_bytes = max(thread.copy_buffer_bytes, size)

    def has_copy_buffer(self, process: ProcessKey, size: int) -> bool:
        """Whether it may still have memory for a copy of its state."""
        return self._thread(process).copy_buffer_bytes * 2 >= size

    def forget_before(self, at_ns: int) -> None:
        """Drop threads without recent samples."""
        self._threads.forget_before(at_ns - BASELINE_NS)


def _interpolate_edge(before: TimedCounters, after: TimedCounters, at_ns: int) -> TimedCounters:
    """Interpolate CPU counters between two samples; transferred bytes count at the second one."""
    at_ns = max(at_ns, before[0])
    if at_ns >= after[0]:
        return after
    runnable_ns, slices, *_ = interpolated(before, after, at_ns)
    _, _, *counters = before[1]
    return at_ns, (round(runnable_ns), round(slices), *counters)
