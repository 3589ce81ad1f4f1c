"""The history of a few cumulative counters of one thing: their growth between two times, and how even it was.

The model. A sample is a time and one integer per counter. Samples are stored in two arrays, in full near the end; when
the memory limit is reached they are thinned, so that the distance of two samples is a fixed share of their age. A
counter that was not sampled keeps its last value: collectors only report changes, and `add` gets the time until which
nothing had changed.
Between two samples counters are interpolated as if they grew evenly. `difference` does that at both edges.
`measure` prefers the samples next to the edges, since a counter shows work only after it is done; and
`values_around` takes them without interpolation, up to the next change.

Invariant: times rise, and the first `rising` counters never fall. If one does, the thing was replaced (a device, an
interface) and the history starts again: nothing is known of the time before.

Example: a disk that had written 10 MB at 1 s and 30 MB at 3 s has written 5 MB between 1.5 s and 2 s by `difference`,
and 20 MB in the same time by `values_around` and `measure`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from operator import lt
from statistics import median

from ckptprof.detect.tolerances import AT_ONCE_NS, NEARBY_NS
from ckptprof.detect.world.bounded import MAX_ENTRIES, Bounded, K

SECOND_NS = 1_000_000_000
UNOBSERVED = (1 << 64) - 1  # stands for None, which an array cannot store
MAX_HISTORY_BYTES = 1 << 17  # of one history
_EMPTY_HISTORY_BYTES = 700  # of a history besides its samples, with its entry in a mapping
_SPACING_FACTOR = 8  # distance of two samples = age * this / maximum number of samples
_MIN_IMPROVEMENT = 1.02  # smaller improvements are not recorded: they would be a long list
_STEADY_DEVIATION = 0.2  # deviation from the median of a steady rate
_ACTIVE = 0.05  # of the best window: above that it is active
_MIN_WINDOWS = 4

TimedCounters = tuple[int, tuple[int, ...]]  # a sample: its time, and the counters


class CounterHistory:
    """Samples of `width` counters. After the last sample counters stand still; before the first, nothing is known."""

    def __init__(
        self,
        width: int,
        *,
        rising: int = 0,
        rated: Sequence[int] = (),
        wraps: Sequence[int] = (),
        max_bytes: int = MAX_HISTORY_BYTES,
    ) -> None:
        """`rising`: that many first counters never fall; if one does, the history starts again.

        `rated`: counters whose best second is recorded; `wraps`: counters that have 32 bits in the kernel.
        """
        self._width, self._rising, self._wraps = width, rising, wraps
        self._max_samples = max_bytes // (8 * (width + 1))
        self.times = array("q")
        self._values = array("Q")
        self._raw: tuple[int, ...] = ()
        self.last_ns = 0
        self.last_values: tuple[int, ...] = ()  # counters of the latest sample
        self._start_ns = 0  # the time before is unknown
        # record seconds of each rated counter: when, and the rates of all rated counters
        self._bests: dict[int, list[tuple[int, dict[int, float]]]] = {column: [] for column in rated}

    def __len__(self) -> int:
        return len(self.times)

    @property
    def retained_bytes(self) -> int:
        """Memory used, approximately."""
        return _EMPTY_HISTORY_BYTES + 8 * (self._width + 1) * len(self.times)

    def add(self, at_ns: int, sample: Sequence[int | None], unchanged_ns: int = 0) -> None:
        """Add a sample; times rise. Until `unchanged_ns`, its previous reading, the counters had not changed."""
        last, values = self.last_values, stored(sample)
        if self._wraps:
            values, self._raw = self._unwrapped(values), values
        if last:
            if self._rising and any(map(lt, values[: self._rising], last)):
                self.times, self._values, self._start_ns = array("q"), array("Q"), at_ns
            elif self.last_ns < unchanged_ns < at_ns:
                self.times.append(unchanged_ns)
                self._values.extend(last)
        self.times.append(at_ns)
        self._values.extend(values)
        self.last_ns, self.last_values = at_ns, values
        if len(self.times) > self._max_samples:
            self._thin(self._max_samples)
        if self._bests and self.first_ns <= at_ns - SECOND_NS:
            self._record_best_rates(at_ns, values)

    def _unwrapped(self, values: tuple[int, ...]) -> tuple[int, ...]:
        if not self.last_values:
            return values
        return tuple(
            self.last_values[i] + (value - self._raw[i]) % (1 << 32) if i in self._wraps else value
            for i, value in enumerate(values)
        )

    def _record_best_rates(self, at_ns: int, values: tuple[int, ...]) -> None:
        before = self.at(at_ns - SECOND_NS)
        rates = {column: values[column] - before[column] for column in self._bests}
        for column, bests in self._bests.items():
            if rates[column] > 0 and (not bests or rates[column] > bests[-1][1][column] * _MIN_IMPROVEMENT):
                bests.append((at_ns, rates))

    def shrink(self, share: float) -> None:
        """Thin to this share of the maximum number of samples."""
        limit = int(share * self._max_samples)
        if len(self.times) > limit:
            self._thin(limit)

    def _thin(self, limit: int) -> None:
        """Keep samples whose distance is a share of their age, and of these the latest."""
        times, fine, retained = self.times, limit // _SPACING_FACTOR, [0]
        for index in range(1, len(times)):
            if (times[index] - times[retained[-1]]) * fine >= self.last_ns - times[index]:
                retained.append(index)
        retained = retained[-limit * 3 // 4 :]
        width = self._width
        self._values = array("Q", (value for i in retained for value in self._values[i * width : (i + 1) * width]))
        self.times = array("q", (times[i] for i in retained))

    @property
    def first_ns(self) -> int:
        """Time of the oldest sample; IndexError if there is none."""
        return self.times[0]

    def time_by(self, at_ns: int) -> int:
        """Time of the last sample up to a time, or of the first one if later; IndexError if there is none."""
        return self.times[self._before(at_ns)]

    def at(self, at_ns: int) -> tuple[float, ...]:
        """Counters at a time, interpolated between two samples; IndexError if there is none."""
        after = bisect_right(self.times, at_ns)
        if after in {0, len(self.times)}:
            return self._at(min(after, len(self.times) - 1))
        before = after - 1
        return interpolated((self.times[before], self._at(before)), (self.times[after], self._at(after)), at_ns)

    def difference(self, start_ns: int, end_ns: int) -> tuple[float, ...] | None:
        """Growth between two times, interpolated at the edges; None: no sample by then."""
        if not self.times or self.times[0] >= end_ns or start_ns < self._start_ns:
            return None
        return tuple(new - old for old, new in zip(self.at(start_ns), self.at(end_ns), strict=True))

    def samples(self, start_ns: int, end_ns: int) -> list[TimedCounters]:
        """List the samples from the last one before a time to the first one after another."""
        since, until = self._before(start_ns), min(len(self.times), bisect_left(self.times, end_ns) + 1)
        each = iter(self._values[since * self._width : until * self._width])
        return list(zip(self.times[since:until], zip(*[each] * self._width, strict=True), strict=True))

    def values_around(self, start_ns: int, end_ns: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Counters at two times, up to the next change; None: no sample, or it started later."""
        if not self.times or start_ns < self._start_ns:
            return None
        before, after = self._before(start_ns), self._after(end_ns)
        while 0 < after < len(self.times) - 1 and self._at(after) == self._at(after - 1):
            after += 1
        return self._at(before), self._at(max(before, after))

    def largest(self, column: int, start_ns: int, end_ns: int) -> int | None:
        """Maximum of a gauge after the first time, up to the sample after the second; None: no sample."""
        if not self.times:
            return None
        after = max(self._before(start_ns), self._after(end_ns))
        return max(self._at(i)[column] for i in range(min(self._before(start_ns) + 1, after), after + 1))

    def measure(self, start_ns: int, end_ns: int) -> tuple[int, int, tuple[float, ...]] | None:
        """Measure (from, to, growth) between the samples next to two times; None as in `difference`.

        Work right before a time is counted by the sample after it. Where no sample is near, the time itself is used.
        """
        if end_ns <= start_ns or self.difference(start_ns, end_ns) is None:
            return None
        before_ns = self.time_by(start_ns)
        after_ns = self.times[min(bisect_left(self.times, end_ns), len(self.times) - 1)]
        start_ns = before_ns if start_ns - NEARBY_NS <= before_ns <= start_ns else start_ns
        end_ns = after_ns if end_ns <= after_ns <= end_ns + NEARBY_NS else end_ns
        counts = self.difference(start_ns, end_ns)
        return None if counts is None else (start_ns, end_ns, counts)

    def growth(self, start_ns: int, end_ns: int) -> list[float | None] | None:
        """Measure the growth of each counter, None for one that is not observed; None: not sampled by then."""
        measured = self.measure(start_ns, end_ns)
        return None if measured is None else self.observed(measured[2])

    def observed(self, counts: Sequence[float]) -> list[float | None]:
        """Values of the counters, None for one that is not observed."""
        return [None if last >= UNOBSERVED else value for last, value in zip(self.last_values, counts, strict=True)]

    def best_rate(self, column: int, before_ns: int | None = None, other_column: int | None = None) -> float | None:
        """Best growth in one second ever, or in seconds that had ended by then; None: there was none.

        `other_column`: another counter, whose growth in that second is returned instead.
        """
        rates_by_then = [rates for at_ns, rates in self._bests[column] if before_ns is None or at_ns <= before_ns]
        return rates_by_then[-1][column if other_column is None else other_column] if rates_by_then else None

    def peak_rate(self, columns: Sequence[int], start_ns: int, end_ns: int) -> float | None:
        """Sum of counters in the best second between two times, per second; of a shorter time, in all of it."""
        span_ns = end_ns - start_ns
        if self.difference(start_ns, end_ns) is None or span_ns <= 0:
            return None
        window_ns = min(SECOND_NS, max(span_ns, NEARBY_NS))
        ends = self.times[bisect_left(self.times, start_ns + window_ns) : bisect_right(self.times, end_ns)]
        best = 0.0
        for at_ns in {max(end_ns, start_ns + window_ns), *ends}:
            before, after = self.at(at_ns - window_ns), self.at(at_ns)
            best = max(best, sum(after[i] - before[i] for i in columns))
        return best * SECOND_NS / window_ns

    def windows(self, column: int, start_ns: int, end_ns: int, least_ns: int) -> list[tuple[int, int]]:
        """List consecutive windows between samples, at least `least_ns` long, as (length in ns, growth)."""
        found: list[tuple[int, int]] = []
        since = bisect_left(self.times, start_ns)
        for sample in range(since + 1, bisect_right(self.times, end_ns)):
            span_ns = self.times[sample] - self.times[since]
            if span_ns >= least_ns:
                found.append((span_ns, self._at(sample)[column] - self._at(since)[column]))
                since = sample
        return found

    def steadiness(self, column: int, start_ns: int, end_ns: int) -> float | None:
        """Share of the active time with a rate near the median; None: too short."""
        windows = [(span_ns, added / span_ns) for span_ns, added in self.windows(column, start_ns, end_ns, AT_ONCE_NS)]
        least = _ACTIVE * max((rate for _, rate in windows), default=0.0)
        active = [(span_ns, rate) for span_ns, rate in windows if rate > least]
        if len(active) < _MIN_WINDOWS:
            return None
        middle = median(rate for _, rate in active)
        steady_ns = sum(span_ns for span_ns, rate in active if abs(rate - middle) <= _STEADY_DEVIATION * middle)
        return steady_ns / sum(span_ns for span_ns, _ in active)

    def active_seconds(self, column: int, start_ns: int, end_ns: int, trickle: float) -> float | None:
        """Seconds with a rate above `trickle` per second; None: too few samples."""
        windows = self.windows(column, start_ns, end_ns, 0)
        if len(windows) + 1 < _MIN_WINDOWS:
            return None
        return sum(span_ns for span_ns, added in windows if added * SECOND_NS > trickle * span_ns) / SECOND_NS

    def _before(self, at_ns: int) -> int:
        return max(0, bisect_right(self.times, at_ns) - 1)

    def _after(self, at_ns: int) -> int:
        return min(len(self.times) - 1, bisect_right(self.times, at_ns))

    def _at(self, index: int) -> tuple[int, ...]:
        return tuple(self._values[index * self._width : (index + 1) * self._width])


class CounterHistories(Bounded[K, CounterHistory]):
    """Histories of things of one kind; a missing one is empty, and not stored."""

    def __init__(self, make: Callable[[], CounterHistory], limit: int = MAX_ENTRIES) -> None:
        super().__init__(limit, make, last_ns=lambda history: history.last_ns)

    @property
    def retained_bytes(self) -> int:
        """Memory used, approximately."""
        return sum(history.retained_bytes for history in self.values())

    def shrink(self, share: float) -> None:
        """Thin each history to this share of its limit."""
        for history in self.values():
            history.shrink(share)


def interpolated(before: TimedCounters, after: TimedCounters, at_ns: int) -> tuple[float, ...]:
    """Interpolate counters at a time between two samples."""
    share = (at_ns - before[0]) / (after[0] - before[0])
    return tuple(old + share * (new - old) for old, new in zip(before[1], after[1], strict=True))


def stored(sample: Sequence[int | None]) -> tuple[int, ...]:
    """Values of a sample as a history stores them."""
    return tuple(UNOBSERVED if value is None else value for value in sample)


def rounded(value: float | None) -> int | None:
    """Round; None stays None."""
    return None if value is None else round(value)
