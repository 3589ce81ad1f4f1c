"""The recent past of a few cumulative counters, in bounded memory: every look of the last minute, then one a second."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

FAST_LOOKS = 600  # the last minute or two, in full
SLOW_LOOKS = 3600  # an hour before it, a look a second
SLOW_NS = 1_000_000_000


class CounterHistory:
    """Looks at `width` counters; 8 bytes each, as a node with many devices keeps many of these."""

    def __init__(
        self, width: int, *, fast_looks: int = FAST_LOOKS, slow_looks: int = SLOW_LOOKS, slow_ns: int = SLOW_NS
    ) -> None:
        """Start with nothing; of the looks before the last `fast_looks` so many are kept, this far apart."""
        self._width = width
        self._fast_looks, self._slow_looks, self._slow_ns = fast_looks, slow_looks, slow_ns
        self._times = array("q")
        self._values = array("Q")

    def add(self, at_ns: int, values: tuple[int, ...]) -> None:
        """Add a look; times rise."""
        self._times.append(at_ns)
        self._values.extend(values)
        if len(self._times) > self._slow_looks + 2 * self._fast_looks:
            self._thin()

    def _thin(self) -> None:
        """Keep the latest looks, of those before one every `slow_ns`, and of these the latest."""
        split = len(self._times) - self._fast_looks
        kept: list[int] = []
        for index in range(split):
            if not kept or self._times[index] - self._times[kept[-1]] >= self._slow_ns:
                kept.append(index)
        indexes = [*kept[-self._slow_looks :], *range(split, len(self._times))]
        width = self._width
        self._values = array("Q", (value for i in indexes for value in self._values[i * width : (i + 1) * width]))
        self._times = array("q", (self._times[i] for i in indexes))

    def around(self, start_ns: int, end_ns: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Return the counters as they stood at two times; without a newer look they had not changed. None: no look."""
        if not self._times:
            return None
        before, after = self._span(start_ns, end_ns)
        return self._at(before), self._at(after)

    def largest(self, column: int, start_ns: int, end_ns: int) -> int | None:
        """Return the largest value of a gauge after the first time, to the look after the second. None: no look."""
        if not self._times:
            return None
        before, after = self._span(start_ns, end_ns)
        return max(self._values[i * self._width + column] for i in range(min(before + 1, after), after + 1))

    def at(self, at_ns: int) -> tuple[float, ...]:
        """Return the counters at a time, as if they grew evenly between two looks; of an empty past IndexError."""
        after = bisect_right(self._times, at_ns)
        if after in {0, len(self._times)}:
            return self._at(min(after, len(self._times) - 1))
        since_ns, until_ns = self._times[after - 1], self._times[after]
        share = (at_ns - since_ns) / (until_ns - since_ns)
        return tuple(old + share * (new - old) for old, new in zip(self._at(after - 1), self._at(after), strict=True))

    def times(self, start_ns: int, end_ns: int) -> list[int]:
        """Return when it was looked at, from one time to another."""
        return list(self._times[bisect_left(self._times, start_ns) : bisect_right(self._times, end_ns)])

    def looks(self, start_ns: int, end_ns: int) -> list[tuple[int, tuple[int, ...]]]:
        """Return the looks from the last one before a time to the last one before another, each with its time."""
        if not self._times:
            return []
        first = max(0, bisect_right(self._times, start_ns) - 1)
        return [(self._times[i], self._at(i)) for i in range(first, max(first + 1, bisect_right(self._times, end_ns)))]

    @property
    def first_ns(self) -> int:
        """The time of the oldest look that is kept; of an empty past IndexError."""
        return self._times[0]

    @property
    def last_ns(self) -> int:
        """The time of the latest look; of an empty past IndexError."""
        return self._times[-1]

    @property
    def last(self) -> tuple[int, ...]:
        """The latest look; of an empty past an empty one."""
        return self._at(len(self._times) - 1) if self._times else ()

    def _span(self, start_ns: int, end_ns: int) -> tuple[int, int]:
        before = max(0, bisect_right(self._times, start_ns) - 1)
        return before, max(before, min(len(self._times) - 1, bisect_right(self._times, end_ns)))

    def _at(self, index: int) -> tuple[int, ...]:
        return tuple(self._values[index * self._width : (index + 1) * self._width])
