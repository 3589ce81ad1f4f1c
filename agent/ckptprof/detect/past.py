"""The recent past of a few cumulative counters, in bounded memory: every look of the last minute, then one a second."""

from __future__ import annotations

from array import array
from bisect import bisect_right

FAST_LOOKS = 600  # the last minute or two, in full
SLOW_LOOKS = 3600  # an hour before it, a look a second
SLOW_NS = 1_000_000_000


class Past:
    """Looks at `width` counters; 8 bytes each, as a node with many devices keeps many of these."""

    def __init__(self, width: int) -> None:
        """Start with nothing."""
        self._width = width
        self._times = array("q")
        self._values = array("Q")

    def add(self, at_ns: int, values: tuple[int, ...]) -> None:
        """Add a look; times rise."""
        self._times.append(at_ns)
        self._values.extend(values)
        if len(self._times) > SLOW_LOOKS + 2 * FAST_LOOKS:
            self._thin()

    def _thin(self) -> None:
        """Keep the latest looks, of those before one a second, and of these the latest."""
        split = len(self._times) - FAST_LOOKS
        kept: list[int] = []
        for index in range(split):
            if not kept or self._times[index] - self._times[kept[-1]] >= SLOW_NS:
                kept.append(index)
        indexes = [*kept[-SLOW_LOOKS:], *range(split, len(self._times))]
        width = self._width
        self._values = array("Q", (value for i in indexes for value in self._values[i * width : (i + 1) * width]))
        self._times = array("q", (self._times[i] for i in indexes))

    def around(self, start_ns: int, end_ns: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Return the counters as they stood at two times; without a newer look they had not changed. None: no look."""
        if not self._times:
            return None
        before = max(0, bisect_right(self._times, start_ns) - 1)
        after = max(before, min(len(self._times) - 1, bisect_right(self._times, end_ns)))
        return self._at(before), self._at(after)

    def _at(self, index: int) -> tuple[int, ...]:
        return tuple(self._values[index * self._width : (index + 1) * self._width])
