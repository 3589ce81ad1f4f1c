"""The past of a few cumulative counters of one thing: what they came to between two times, and how evenly.

Looks are kept in bounded memory, in full near the end: the older they are, the farther apart.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from operator import lt
from statistics import median

from ckptprof.detect.tolerances import AT_ONCE_NS, NEAR_NS
from ckptprof.detect.world.bounded import MAX_THINGS, Bounded, K

SECOND_NS = 1_000_000_000
UNSEEN = (1 << 64) - 1  # stands for None, which an array cannot hold
MOST_BYTES = 1 << 17  # of one history
_EACH_BYTES = 900  # of a history without looks, with its place in a mapping
_FINE = 8  # a look is apart from the next by its age, times this, over the looks that there is room for
_RISE = 1.02  # a best that is better by less is not noted: it would be a long list
_NEAR = 0.2  # of the median is a steady rate
_ACTIVE = 0.05  # of the best window is activity
_LEAST_WINDOWS = 4

Timed = tuple[int, tuple[int, ...]]  # a look: its time, and the counters


class CounterHistory:
    """Looks at `width` counters. What was looked at last goes on; before the first look nothing is known."""

    def __init__(
        self,
        width: int,
        *,
        rising: int = 0,
        rated: Sequence[int] = (),
        wraps: Sequence[int] = (),
        most_bytes: int = MOST_BYTES,
    ) -> None:
        """Start with nothing.

        If one of the first `rising` counters falls, the thing is another one, with a new past. `rated`: counters whose
        best second is noted; `wraps`: those that have 32 bits in the kernel.
        """
        self._width, self._rising, self._wraps = width, rising, wraps
        self._most = most_bytes // (8 * (width + 1))
        self.times = array("q")
        self._values = array("Q")
        self._raw: tuple[int, ...] = ()
        self.last_ns = 0
        self.last: tuple[int, ...] = ()  # the latest look
        self._began_ns = 0  # what lay before cannot be told
        # of the seconds that were each better than all before in a counter: when, and the rates of all that are rated
        self._bests: dict[int, list[tuple[int, dict[int, float]]]] = {column: [] for column in rated}

    def __len__(self) -> int:
        """Return how many looks are kept."""
        return len(self.times)

    @property
    def kept_bytes(self) -> int:
        """What it takes, about."""
        return _EACH_BYTES + 8 * (self._width + 1) * len(self.times)

    def add(self, at_ns: int, values: tuple[int, ...], unchanged_ns: int = 0) -> None:
        """Add a look; times rise. Up to `unchanged_ns`, when it was looked at before, it was as at the look before."""
        last = self.last
        if self._wraps:
            values, self._raw = self._unwrapped(values), values
        if last:
            if self._rising and any(map(lt, values[: self._rising], last)):
                self.times, self._values, self._began_ns = array("q"), array("Q"), at_ns
            elif self.last_ns < unchanged_ns < at_ns:
                self.times.append(unchanged_ns)
                self._values.extend(last)
        self.times.append(at_ns)
        self._values.extend(values)
        self.last_ns, self.last = at_ns, values
        if len(self.times) > self._most:
            self._thin(self._most)
        if self._bests and self.first_ns <= at_ns - SECOND_NS:
            self._rate(at_ns, values)

    def _unwrapped(self, values: tuple[int, ...]) -> tuple[int, ...]:
        if not self.last:
            return values
        return tuple(
            self.last[i] + (value - self._raw[i]) % (1 << 32) if i in self._wraps else value
            for i, value in enumerate(values)
        )

    def _rate(self, at_ns: int, values: tuple[int, ...]) -> None:
        before = self.at(at_ns - SECOND_NS)
        rates = {column: values[column] - before[column] for column in self._bests}
        for column, bests in self._bests.items():
            if rates[column] > 0 and (not bests or rates[column] > bests[-1][1][column] * _RISE):
                bests.append((at_ns, rates))

    def cut(self, share: float) -> None:
        """Keep no more looks than a share of those that there is room for: they are farther apart."""
        most = int(share * self._most)
        if len(self.times) > most:
            self._thin(most)

    def _thin(self, most: int) -> None:
        """Keep the looks that are apart by a share of their age, and of these the latest."""
        times, fine, kept = self.times, most // _FINE, [0]
        for index in range(1, len(times)):
            if (times[index] - times[kept[-1]]) * fine >= self.last_ns - times[index]:
                kept.append(index)
        kept = kept[-most * 3 // 4 :]
        width = self._width
        self._values = array("Q", (value for i in kept for value in self._values[i * width : (i + 1) * width]))
        self.times = array("q", (times[i] for i in kept))

    @property
    def first_ns(self) -> int:
        """The time of the oldest look that is kept; of an empty past IndexError."""
        return self.times[0]

    def by(self, at_ns: int) -> int:
        """Return the time of the last look by then, of the first one if it is later; of an empty past IndexError."""
        return self.times[self._before(at_ns)]

    def at(self, at_ns: int) -> tuple[float, ...]:
        """Return the counters at a time, as if they grew evenly between two looks; of an empty past IndexError."""
        after = bisect_right(self.times, at_ns)
        if after in {0, len(self.times)}:
            return self._at(min(after, len(self.times) - 1))
        before = after - 1
        return interpolated((self.times[before], self._at(before)), (self.times[after], self._at(after)), at_ns)

    def difference(self, start_ns: int, end_ns: int) -> tuple[float, ...] | None:
        """Return what was added between two times, edges interpolated; None: it was not looked at by then."""
        if not self.times or self.times[0] >= end_ns or start_ns < self._began_ns:
            return None
        return tuple(new - old for old, new in zip(self.at(start_ns), self.at(end_ns), strict=True))

    def looks(self, start_ns: int, end_ns: int) -> list[Timed]:
        """Return the looks from the last one before a time to the first one after another."""
        since, until = self._before(start_ns), min(len(self.times), bisect_left(self.times, end_ns) + 1)
        each = iter(self._values[since * self._width : until * self._width])
        return list(zip(self.times[since:until], zip(*[each] * self._width, strict=True), strict=True))

    def around(self, start_ns: int, end_ns: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Return the counters as they stood at two times, up to the next change; None: no look, or it began since."""
        if not self.times or start_ns < self._began_ns:
            return None
        before, after = self._before(start_ns), self._after(end_ns)
        while 0 < after < len(self.times) - 1 and self._at(after) == self._at(after - 1):
            after += 1
        return self._at(before), self._at(max(before, after))

    def largest(self, column: int, start_ns: int, end_ns: int) -> int | None:
        """Return the largest value of a gauge after the first time, to the look after the second. None: no look."""
        if not self.times:
            return None
        after = max(self._before(start_ns), self._after(end_ns))
        return max(self._at(i)[column] for i in range(min(self._before(start_ns) + 1, after), after + 1))

    def measured(self, start_ns: int, end_ns: int) -> tuple[int, int, tuple[float, ...]] | None:
        """Return (from, to, what was added) between the looks next to two times; None: as `difference`.

        What was done right before a time is counted at the look after it. Where no look is near, the time itself holds.
        """
        if end_ns <= start_ns or self.difference(start_ns, end_ns) is None:
            return None
        before_ns = self.by(start_ns)
        after_ns = self.times[min(bisect_left(self.times, end_ns), len(self.times) - 1)]
        start_ns = before_ns if start_ns - NEAR_NS <= before_ns <= start_ns else start_ns
        end_ns = after_ns if end_ns <= after_ns <= end_ns + NEAR_NS else end_ns
        counts = self.difference(start_ns, end_ns)
        return None if counts is None else (start_ns, end_ns, counts)

    def best(self, column: int, before_ns: int | None = None, beside: int | None = None) -> float | None:
        """Return the best rate of a second ever, or of those that had ended by then. None: there was none.

        `beside`: another counter, whose rate in that second is wanted.
        """
        told = [rates for at_ns, rates in self._bests[column] if before_ns is None or at_ns <= before_ns]
        return told[-1][column if beside is None else beside] if told else None

    def peak(self, columns: Sequence[int], start_ns: int, end_ns: int) -> float | None:
        """Return the sum of some counters in the best second between two times, per second; of less: of all of it."""
        span_ns = end_ns - start_ns
        if self.difference(start_ns, end_ns) is None or span_ns <= 0:
            return None
        window_ns = min(SECOND_NS, max(span_ns, NEAR_NS))
        ends = self.times[bisect_left(self.times, start_ns + window_ns) : bisect_right(self.times, end_ns)]
        best = 0.0
        for at_ns in {max(end_ns, start_ns + window_ns), *ends}:
            before, after = self.at(at_ns - window_ns), self.at(at_ns)
            best = max(best, sum(after[i] - before[i] for i in columns))
        return best * SECOND_NS / window_ns

    def windows(self, column: int, start_ns: int, end_ns: int, least_ns: int) -> list[tuple[int, int]]:
        """Return windows of so long and more between two looks, as (length, what was added in it)."""
        found: list[tuple[int, int]] = []
        since = bisect_left(self.times, start_ns)
        for look in range(since + 1, bisect_right(self.times, end_ns)):
            span_ns = self.times[look] - self.times[since]
            if span_ns >= least_ns:
                found.append((span_ns, self._at(look)[column] - self._at(since)[column]))
                since = look
        return found

    def steadiness(self, column: int, start_ns: int, end_ns: int) -> float | None:
        """Return the share of the active time in which the rate lay near its median; None: too short to tell."""
        windows = [(span_ns, moved / span_ns) for span_ns, moved in self.windows(column, start_ns, end_ns, AT_ONCE_NS)]
        least = _ACTIVE * max((rate for _, rate in windows), default=0.0)
        active = [(span_ns, rate) for span_ns, rate in windows if rate > least]
        if len(active) < _LEAST_WINDOWS:
            return None
        middle = median(rate for _, rate in active)
        steady_ns = sum(span_ns for span_ns, rate in active if abs(rate - middle) <= _NEAR * middle)
        return steady_ns / sum(span_ns for span_ns, _ in active)

    def active_seconds(self, column: int, start_ns: int, end_ns: int, trickle: float) -> float | None:
        """Return for how long the rate was above so much per second."""
        windows = self.windows(column, start_ns, end_ns, 0)
        if len(windows) + 1 < _LEAST_WINDOWS:
            return None
        return sum(span_ns for span_ns, moved in windows if moved * SECOND_NS > trickle * span_ns) / SECOND_NS

    def _before(self, at_ns: int) -> int:
        return max(0, bisect_right(self.times, at_ns) - 1)

    def _after(self, at_ns: int) -> int:
        return min(len(self.times) - 1, bisect_right(self.times, at_ns))

    def _at(self, index: int) -> tuple[int, ...]:
        return tuple(self._values[index * self._width : (index + 1) * self._width])


class CounterHistories(Bounded[K, CounterHistory]):
    """The histories of things of one kind; what was not looked at has an empty one, which is not kept."""

    def __init__(self, make: Callable[[], CounterHistory], most: int = MAX_THINGS) -> None:
        super().__init__(most, make, last_ns=lambda past: past.last_ns)

    @property
    def kept_bytes(self) -> int:
        """What is kept, about."""
        return sum(past.kept_bytes for past in self.values())

    def cut(self, share: float) -> None:
        """Keep all of them, each with as many looks as a share of its bound."""
        for past in self.values():
            past.cut(share)


def interpolated(before: Timed, after: Timed, at_ns: int) -> tuple[float, ...]:
    """Return counters at a time between two looks, as if they had grown evenly."""
    share = (at_ns - before[0]) / (after[0] - before[0])
    return tuple(old + share * (new - old) for old, new in zip(before[1], after[1], strict=True))


def known(value: int) -> int | None:
    """Return a value of a history; None where it was not seen."""
    return None if value >= UNSEEN else value
