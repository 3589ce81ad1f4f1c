"""What single threads used, and the calls in which samples found them: /proc/PID/task/TID, in bounded memory."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from typing import NamedTuple

from ckptprof.detect.tolerances import LITTLE_SHARE, MAX_SAMPLES, NEARBY_NS, POLL_INTERVAL_NS
from ckptprof.detect.world.bounded import MAX_RECENT
from ckptprof.detect.world.counter_history import CounterHistory
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.spans import Span
from ckptprof_collectors.processes.syscalls import classify
from ckptprof_collectors.samples import ThreadSample

WORDS = (
    "data", "sync", "close", "create", "rename", "unlink", "metadata", "fault", "network", "lock", "file-lock",
    "child", "sleep", "running", "stopped", "other",
)  # fmt: skip
_PLACES = {word: place for place, word in enumerate(WORDS)} | {"poll": WORDS.index("network")}
_MIN_SPLIT_TICKS = 2  # fewer ticks cannot be split into user and system time
_NEAR_NS, _FAR_NS = 20_000_000, 400_000_000  # what a sample stands for, at least and at most
_MIN_COVERAGE = 0.3  # of a span must lie between two samples


class ThreadUsage(NamedTuple):
    """What one thread used in a time; None: not observed."""

    on_cpu_ns: int | None
    runqueue_ns: int | None
    user_ns: int | None
    system_ns: int | None
    block_delay_ns: int | None
    samples: int
    samples_by_state: dict[str, int]


class _ThreadHistory(CounterHistory):
    """History of one thread: milliseconds in each class of calls by its samples, five usage counters, samples."""

    def __init__(self) -> None:
        super().__init__(len(WORDS) + 6)
        self.comm, self.user_ticks = "", 0
        self.has_schedule = self.has_delays = True

    def add_sample(self, at_ns: int, sample: ThreadSample, word: str) -> None:
        self.comm, self.user_ticks = sample.comm, sample.user_ticks
        self.has_schedule = sample.on_cpu_ns is not None
        self.has_delays = sample.block_delay_ticks is not None
        words, number = list(self.last_values[: len(WORDS)]) or [0] * len(WORDS), 0
        since_ns = min(at_ns - self.last_ns, _FAR_NS) if self else 0  # one that sleeps is sampled less often
        if word != "unknown":
            words[_PLACES.get(word, _PLACES["other"])] += max(_NEAR_NS, since_ns) // 1_000_000
            number = 1
        self.add(
            at_ns,
            (*words, sample.on_cpu_ns or 0, sample.waited_ns or 0, sample.user_ticks, sample.system_ticks,
             sample.block_delay_ticks or 0, number + (self.last_values[-1] if self else 0)),
        )  # fmt: skip

    def was_in(self, sample: int, place: int) -> bool:
        """Whether one sample found it in a class of calls, given by index."""
        width = self._width
        now = sample * width + place
        return self._values[now] > (self._values[now - width] if sample else 0)

    def states(self, start_ns: int, end_ns: int) -> dict[str, int]:
        """Divide the number of samples in a time by the time that each class of calls took."""
        low, high = bisect_left(self.times, start_ns), bisect_right(self.times, end_ns)
        if low >= high:
            return {}
        after = self._at(high - 1)
        before = self._at(low - 1) if low else [0] * len(after)
        spent = {word: new - old for word, old, new in zip(WORDS, before, after, strict=False) if new > old}
        number, whole = after[-1] - before[-1], sum(spent.values())
        return {word: max(1, round(number * one / whole)) for word, one in spent.items()}


class ThreadHistories:
    """Histories of threads, by process."""

    def __init__(self, ticks_per_second: int = 100) -> None:
        self._tick_ns = 1_000_000_000 // max(1, ticks_per_second)
        self._threads: dict[ProcessKey, dict[int, _ThreadHistory]] = {}
        self._first_ns: dict[ProcessKey, int] = {}  # the first sample of any of its threads
        self._waits: dict[ProcessKey, deque[Span]] = {}  # main threads that wait for a child
        self._count = 0

    def observe(self, at_ns: int, sample: ThreadSample) -> None:
        """Ingest a sample, at its own time or else that of its frame."""
        process = (sample.pid, sample.start_ticks)
        at_ns = sample.at_ns or at_ns
        threads = self._threads.get(process)
        if threads is None:
            threads = self._threads[process] = {}
            self._first_ns[process] = at_ns
        thread = threads.get(sample.tid)
        if thread is not None and at_ns <= thread.last_ns:
            return
        word = classify(sample.state, sample.call, sample.wait)
        if sample.tid == sample.pid and word == "child":
            self._record_wait(process, thread, at_ns, sample)
        before = len(thread) if thread is not None else 0
        if thread is None or sample.user_ticks < thread.user_ticks:  # the tid was reused
            thread = threads[sample.tid] = _ThreadHistory()
        thread.add_sample(at_ns, sample, word)
        self._count += len(thread) - before
        while self._count > MAX_SAMPLES:  # drop the thread sampled longest ago
            every = ((process, tid) for process, threads in self._threads.items() for tid in threads)
            self._drop(*min(every, key=lambda key: self._threads[key[0]][key[1]].last_ns))

    def _record_wait(
        self, process: ProcessKey, before: _ThreadHistory | None, at_ns: int, sample: ThreadSample
    ) -> None:
        """Record that a main thread waits for a child: since the previous sample if that also found it waiting."""
        spans = self._waits.setdefault(process, deque(maxlen=MAX_RECENT))
        span = at_ns, at_ns
        if before is not None and spans and spans[-1][1] == before.last_ns:
            ran_ns = (sample.on_cpu_ns or 0) - before.last_values[len(WORDS)]
            if ran_ns <= LITTLE_SHARE * (at_ns - before.last_ns):
                span = spans.pop()[0], at_ns
        spans.append(span)

    def child_waits(self, process: ProcessKey, start_ns: int, end_ns: int) -> list[Span]:
        """List when, in a time, the main thread waited for a child; a single sample has no length."""
        return [span for span in self._waits.get(process, ()) if span[0] <= end_ns and span[1] >= start_ns]

    def __len__(self) -> int:
        return self._count

    def was_last_in(self, process: ProcessKey, word: str, since_ns: int) -> bool:
        """Whether the last sample since then of any thread found it in a class of calls."""
        found = self._threads.get(process, {}).values()
        return any(one.last_ns >= since_ns and one.was_in(len(one) - 1, _PLACES[word]) for one in found)

    def state_end_ns(self, process: ProcessKey, word: str, from_ns: int) -> int | None:
        """Time of the last sample in an unbroken series in a class of calls, from about a time on; None: none."""
        place, last_ns = _PLACES[word], None
        for one in self._threads.get(process, {}).values():
            if not one.last_values[place]:
                continue  # never sampled in it
            sample = bisect_left(one.times, from_ns - NEARBY_NS)
            while sample < len(one.times) and not one.was_in(sample, place) and one.times[sample] < from_ns + NEARBY_NS:
                sample += 1
            before_ns = max(from_ns, one.times[sample - 1]) if sample else from_ns
            while (
                sample < len(one.times)
                and one.was_in(sample, place)
                and one.times[sample] - before_ns <= POLL_INTERVAL_NS
            ):
                before_ns = one.times[sample]
                last_ns = max(last_ns or 0, before_ns)
                sample += 1
        return last_ns if last_ns is not None and last_ns > from_ns else None

    def _drop(self, process: ProcessKey, tid: int) -> None:
        self._count -= len(self._threads[process].pop(tid))
        if not self._threads[process]:
            del self._threads[process], self._first_ns[process]
            self._waits.pop(process, None)

    def threads(self, process: ProcessKey, start_ns: int, end_ns: int) -> dict[int, str]:
        """Names of the threads of a process sampled in or around a time, by tid."""
        found = self._threads.get(process, {}).items()
        return {tid: one.comm for tid, one in found if one.last_ns >= start_ns and one.first_ns <= end_ns}

    def was_sampled(self, process: ProcessKey, start_ns: int, end_ns: int) -> bool:
        """Whether any of its threads was sampled in a time."""
        found = self._threads.get(process, {}).values()
        return any(bisect_left(one.times, start_ns) < bisect_right(one.times, end_ns) for one in found)

    def comm(self, process: ProcessKey, tid: int) -> str | None:
        """Name of a thread; None: not sampled."""
        thread = self._threads.get(process, {}).get(tid)
        return thread.comm if thread is not None else None

    def state_span(
        self, process: ProcessKey, words: frozenset[str], start_ns: int, until_ns: int, gap_ns: int
    ) -> tuple[int, int, int] | None:
        """Find the run (number, from, to) of samples of the main thread in some calls, each soon after another.

        The run extends half-way to the neighbouring samples.
        """
        thread = self._threads.get(process, {}).get(process[0])
        if thread is None:
            return None
        places = [_PLACES[word] for word in words]
        number, first_ns, last_ns, last_in_ns = 0, start_ns, start_ns, start_ns
        for sample in range(bisect_right(thread.times, start_ns), bisect_right(thread.times, until_ns)):
            at_ns = thread.times[sample]
            if at_ns - last_in_ns > gap_ns:
                break
            if not any(thread.was_in(sample, place) for place in places):
                continue
            if not number:
                first_ns = max(start_ns, (thread.times[sample - 1] + at_ns) // 2 if sample else at_ns)
            after_ns = thread.times[sample + 1] if sample + 1 < len(thread.times) else at_ns
            number, last_in_ns, last_ns = number + 1, at_ns, (at_ns + min(after_ns, at_ns + gap_ns)) // 2
        return (number, first_ns, last_ns) if number else None

    def usage(self, process: ProcessKey, tid: int, start_ns: int, end_ns: int) -> ThreadUsage | None:
        """Measure what a thread used between two times; None if too little of that is covered by samples."""
        thread = self._threads.get(process, {}).get(tid)
        span_ns = end_ns - start_ns
        if thread is None or span_ns <= 0:
            return None
        low_ns, high_ns = max(start_ns, thread.first_ns), min(end_ns, thread.last_ns)
        before = thread.at(low_ns)
        on_cpu_ns, waited_ns, user, system, *_ = before[len(WORDS) :]
        lifetime_ns = waited_ns + max(on_cpu_ns, (user + system) * self._tick_ns)
        if low_ns > start_ns >= self._first_ns[process] and lifetime_ns <= low_ns - start_ns + self._tick_ns:
            # it started in that time: its process was sampled before, and its total time is no longer
            low_ns, before = start_ns, (0.0,) * len(before)
        covered = (high_ns - low_ns) / span_ns
        states = thread.states(start_ns, end_ns)
        if covered < _MIN_COVERAGE:
            return None
        counts = [max(0.0, new - old) / covered for old, new in zip(before, thread.at(high_ns), strict=True)]
        on_cpu_ns, waited_ns, user, system, blocked, _ = counts[len(WORDS) :]
        user_ns, system_ns = self._split(on_cpu_ns if thread.has_schedule else None, user, system)
        return ThreadUsage(
            on_cpu_ns=clamp_to_span(on_cpu_ns, span_ns) if thread.has_schedule else None,
            runqueue_ns=clamp_to_span(waited_ns, span_ns) if thread.has_schedule else None,
            user_ns=clamp_to_span(user_ns, span_ns),
            system_ns=clamp_to_span(system_ns, span_ns),
            block_delay_ns=clamp_to_span(blocked * self._tick_ns, span_ns) if thread.has_delays else None,
            samples=sum(states.values()),
            samples_by_state=states,
        )

    def runqueue_ns(self, process: ProcessKey, start_ns: int, end_ns: int) -> int:
        """Time in which the main thread waited for a CPU; 0 if not observed."""
        return usage.runqueue_ns or 0 if (usage := self.usage(process, process[0], start_ns, end_ns)) else 0

    def _split(self, on_cpu_ns: float | None, user: float, system: float) -> tuple[float | None, float | None]:
        if on_cpu_ns is None:
            return user * self._tick_ns, system * self._tick_ns
        if on_cpu_ns == 0:
            return 0.0, 0.0
        if user + system < _MIN_SPLIT_TICKS:
            return None, None
        share = user / (user + system)
        return on_cpu_ns * share, on_cpu_ns * (1 - share)

    def forget_before(self, at_ns: int) -> None:
        """Drop threads without samples since."""
        for process, threads in list(self._threads.items()):
            for tid in [tid for tid, thread in threads.items() if thread.last_ns < at_ns]:
                self._drop(process, tid)


def clamp_to_span(value: float | None, span_ns: int) -> int | None:
    """Clamp nanoseconds to the span in which they were counted; None stays None."""
    return None if value is None else min(span_ns, max(0, round(value)))
