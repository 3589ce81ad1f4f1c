"""The recent past of a few cumulative counters, in bounded memory: every look of late, before that one at intervals."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from operator import lt
from typing import NamedTuple

SECOND_NS = 1_000_000_000
UNSEEN = (1 << 64) - 1  # stands for None, which an array cannot hold


Timed = tuple[int, tuple[int, ...]]  # a look: its time, and the counters


class Kept(NamedTuple):
    """How much of the past is kept."""

    fast_looks: int = 600  # the last ones, in full: a minute while something goes on
    slow_looks: int = 3600  # of those before, so many
    slow_ns: int = SECOND_NS  # this far apart


class CounterHistory:
    """Looks at `width` counters; 8 bytes each, as a node with many devices keeps many of these."""

    def __init__(self, width: int, kept: Kept = Kept(), *, rising: int = 0) -> None:  # noqa: B008 - it cannot be changed
        """Start with nothing; if one of the first `rising` counters falls, the thing is a new one with a new past."""
        self._width, self._kept, self._rising = width, kept, rising
        self._most = kept.slow_looks + 2 * kept.fast_looks
        self.times = array("q")
        self._values = array("Q")
        self.last_ns = 0
        self.last: tuple[int, ...] = ()  # the latest look
        self.began_ns = 0  # what lay before cannot be told

    def __len__(self) -> int:
        """Return how many looks are kept."""
        return len(self.times)

    def add(self, at_ns: int, values: tuple[int, ...], unchanged_ns: int = 0) -> None:
        """Add a look; times rise. Up to `unchanged_ns`, when it was looked at before, it was as at the look before."""
        last = self.last
        if last:
            if self._rising and any(map(lt, values[: self._rising], last)):
                self.times, self._values, self.began_ns = array("q"), array("Q"), at_ns
            elif self.last_ns < unchanged_ns < at_ns:
                self.times.append(unchanged_ns)
                self._values.extend(last)
        self.times.append(at_ns)
        self._values.extend(values)
        self.last_ns, self.last = at_ns, values
        if len(self.times) > self._most:
            self._thin()

    def _thin(self) -> None:
        """Keep the latest looks, of those before one every `slow_ns`, and of these the latest."""
        split = len(self.times) - self._kept.fast_looks
        kept: list[int] = []
        for index in range(split):
            if not kept or self.times[index] - self.times[kept[-1]] >= self._kept.slow_ns:
                kept.append(index)
        indexes = [*kept[-self._kept.slow_looks :], *range(split, len(self.times))]
        width = self._width
        self._values = array("Q", (value for i in indexes for value in self._values[i * width : (i + 1) * width]))
        self.times = array("q", (self.times[i] for i in indexes))

    def around(self, start_ns: int, end_ns: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Return the counters as they stood at two times; without a newer look they had not changed. None: no look."""
        if not self.times:
            return None
        before, after = self._span(start_ns, end_ns)
        return self._at(before), self._at(after)

    def largest(self, column: int, start_ns: int, end_ns: int) -> int | None:
        """Return the largest value of a gauge after the first time, to the look after the second. None: no look."""
        if not self.times:
            return None
        before, after = self._span(start_ns, end_ns)
        return max(self._values[i * self._width + column] for i in range(min(before + 1, after), after + 1))

    def at(self, at_ns: int) -> tuple[float, ...]:
        """Return the counters at a time, as if they grew evenly between two looks; of an empty past IndexError."""
        after = bisect_right(self.times, at_ns)
        if after in {0, len(self.times)}:
            return self._at(min(after, len(self.times) - 1))
        before = after - 1
        return interpolated((self.times[before], self._at(before)), (self.times[after], self._at(after)), at_ns)

    def difference(self, start_ns: int, end_ns: int) -> tuple[float, ...] | None:
        """Return what was added between two times, edges interpolated; None: it was not looked at by then."""
        if not self.times or self.times[0] >= end_ns or start_ns < self.began_ns:
            return None
        return tuple(new - old for old, new in zip(self.at(start_ns), self.at(end_ns), strict=True))

    def times_between(self, start_ns: int, end_ns: int) -> list[int]:
        """Return when it was looked at, from one time to another."""
        return list(self.times[bisect_left(self.times, start_ns) : bisect_right(self.times, end_ns)])

    def looks(self, start_ns: int, end_ns: int) -> list[Timed]:
        """Return the looks from the last one before a time to the last one before another, each with its time."""
        if not self.times:
            return []
        first = self._before(start_ns)
        return [(self.times[i], self._at(i)) for i in range(first, max(first, self._before(end_ns)) + 1)]

    def bracket(self, start_ns: int, end_ns: int) -> list[Timed]:
        """Return the looks from the last one before a time to the first one after another, each with its time."""
        first = self._before(start_ns)
        until = min(len(self.times), bisect_left(self.times, end_ns) + 1)
        return [(self.times[i], self._at(i)) for i in range(first, until)]

    @property
    def first_ns(self) -> int:
        """The time of the oldest look that is kept; of an empty past IndexError."""
        return self.times[0]

    def _before(self, at_ns: int) -> int:
        """Return the place of the last look by then, of the first one if it is later."""
        return max(0, bisect_right(self.times, at_ns) - 1)

    def _span(self, start_ns: int, end_ns: int) -> tuple[int, int]:
        before = self._before(start_ns)
        return before, max(before, min(len(self.times) - 1, bisect_right(self.times, end_ns)))

    def _at(self, index: int) -> tuple[int, ...]:
        return tuple(self._values[index * self._width : (index + 1) * self._width])


def interpolated(before: Timed, after: Timed, at_ns: int) -> tuple[float, ...]:
    """Return counters at a time between two looks, as if they had grown evenly."""
    share = (at_ns - before[0]) / (after[0] - before[0])
    return tuple(old + share * (new - old) for old, new in zip(before[1], after[1], strict=True))


def known(value: int) -> int | None:
    """Return a value of a history; None where it was not seen."""
    return None if value >= UNSEEN else value
