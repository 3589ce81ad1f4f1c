"""Counters with their recent past: what they came to between two times, how evenly, and their best second ever."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from ckptprof.detect.world.counter_history import SECOND_NS, CounterHistory, Kept

_KEPT = Kept(fast_looks=300, slow_looks=1800, slow_ns=2 * SECOND_NS)  # a minute in full, an hour with a look each 2 s
_RISE = 1.02  # a best that is better by less is not noted: it would be a long list
_NEAR = 0.2  # of the median is a steady rate
_ACTIVE = 0.05  # of the best window is activity
_LEAST_WINDOWS = 4
_WINDOW_NS = 500_000_000
_NEAR_NS = 250_000_000  # devices are read five times a second while something goes on: no window is shorter
_MAX_WINDOWS = 1200


class Ceiling:
    """The best second that something was seen to have, and when that was."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._bests: list[tuple[int, float]] = []  # each better than the one before; 2 % apart, so that they are few

    def note(self, at_ns: int, rate: float) -> None:
        """Take the rate of the second that ended then."""
        if rate > 0 and (not self._bests or rate > self._bests[-1][1] * _RISE):
            self._bests.append((at_ns, rate))

    def best(self, before_ns: int | None = None) -> float | None:
        """Return the best rate, if asked for of those seconds only that had ended by then. None: there was none."""
        told = [rate for at_ns, rate in self._bests if before_ns is None or at_ns <= before_ns]
        return told[-1] if told else None


class CounterRates(CounterHistory):
    """The past of a few counters of one thing; if one of them falls, it was unplugged, and begins anew."""

    def __init__(self, width: int, rated: Sequence[int] = (), *, wraps: Sequence[int] = ()) -> None:
        """`rated`: counters whose best second is noted; `wraps`: those that have 32 bits in the kernel."""
        super().__init__(width, _KEPT, rising=width)
        self._wraps = tuple(wraps)
        self.ceilings = {column: Ceiling() for column in rated}
        self._raw: tuple[int, ...] = ()

    def add(self, at_ns: int, values: tuple[int, ...], unchanged_ns: int = 0) -> None:
        """Add a look; up to `unchanged_ns`, when it was looked at before, it was as at the look before."""
        values, self._raw = self._unwrapped(values), values
        super().add(at_ns, values, unchanged_ns)
        if self.ceilings and self.first_ns <= at_ns - SECOND_NS:
            before = self.at(at_ns - SECOND_NS)
            for column, ceiling in self.ceilings.items():
                ceiling.note(at_ns, values[column] - before[column])

    def _unwrapped(self, values: tuple[int, ...]) -> tuple[int, ...]:
        last = self.last
        if not self._wraps or not last:
            return values
        return tuple(
            last[i] + (value - self._raw[i]) % (1 << 32) if i in self._wraps else value
            for i, value in enumerate(values)
        )

    def around(self, start_ns: int, end_ns: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Return the counters as they stood at two times, up to the next change; None: no look, or it began since."""
        if not self.times or start_ns < self.began_ns:
            return None
        before, after = self._span(start_ns, end_ns)
        while after + 1 < len(self.times) and after and self._at(after) == self._at(after - 1):
            after += 1
        return self._at(before), self._at(max(before, after))

    def peak(self, columns: Sequence[int], start_ns: int, end_ns: int) -> float | None:
        """Return the sum of some counters in the best second between two times, per second; of less: of all of it."""
        span_ns = end_ns - start_ns
        if self.difference(start_ns, end_ns) is None or span_ns <= 0:
            return None
        window_ns = min(SECOND_NS, max(span_ns, _NEAR_NS))
        ends = [at_ns for at_ns in self.times_between(start_ns, end_ns) if at_ns - window_ns >= start_ns]
        best = 0.0
        for at_ns in {max(end_ns, start_ns + window_ns), *ends[:: max(1, len(ends) // _MAX_WINDOWS)]}:
            before, after = self.at(at_ns - window_ns), self.at(at_ns)
            best = max(best, sum(after[i] - before[i] for i in columns))
        return best * SECOND_NS / window_ns

    def seen(self, start_ns: int, end_ns: int) -> tuple[int, int] | None:
        """Return the looks around two times, or the times themselves where there was none near; None: as `difference`.

        What was done right before a time is counted at the look after it.
        """
        if self.difference(start_ns, end_ns) is None:
            return None
        before, after = self.times_between(start_ns - _NEAR_NS, start_ns), self.times_between(end_ns, end_ns + _NEAR_NS)
        return (before[-1] if before else start_ns), (after[0] if after else end_ns)

    def rates(self, columns: Sequence[int], start_ns: int, end_ns: int) -> list[tuple[int, float]]:
        """Return windows of half a second and more between two looks, as (length, rate per second)."""
        found: list[tuple[int, float]] = []
        looks = [at_ns for at_ns in self.times_between(start_ns, end_ns) if at_ns >= self.began_ns]
        since_ns, window_ns = looks[0] if looks else 0, max(_WINDOW_NS, (end_ns - start_ns) // _MAX_WINDOWS)
        before = self._sum(columns, since_ns) if looks else 0.0
        for at_ns in looks:
            if at_ns - since_ns >= window_ns:
                after = self._sum(columns, at_ns)
                found.append((at_ns - since_ns, (after - before) * SECOND_NS / (at_ns - since_ns)))
                since_ns, before = at_ns, after
        return found

    def _sum(self, columns: Sequence[int], at_ns: int) -> float:
        values = self.at(at_ns)
        return sum(values[i] for i in columns)

    def steadiness(self, columns: Sequence[int], start_ns: int, end_ns: int) -> float | None:
        """Return the share of the active time in which the rate lay near its median; None: too short to tell."""
        windows = self.rates(columns, start_ns, end_ns)
        least = _ACTIVE * max((rate for _, rate in windows), default=0.0)
        active = [(span_ns, rate) for span_ns, rate in windows if rate > least]
        if len(active) < _LEAST_WINDOWS:
            return None
        middle = median(rate for _, rate in active)
        steady_ns = sum(span_ns for span_ns, rate in active if abs(rate - middle) <= _NEAR * middle)
        return steady_ns / sum(span_ns for span_ns, _ in active)

    def active_seconds(self, columns: Sequence[int], start_ns: int, end_ns: int, trickle: float) -> float | None:
        """Return for how long the rate was above so much per second."""
        looks = [at_ns for at_ns in self.times_between(start_ns, end_ns) if at_ns >= self.began_ns]
        if len(looks) < _LEAST_WINDOWS:
            return None
        sums = [(at_ns, self._sum(columns, at_ns)) for at_ns in looks]
        pairs = ((after[0] - before[0], after[1] - before[1]) for before, after in pairwise(sums))
        return sum(span_ns for span_ns, moved in pairs if moved * SECOND_NS > trickle * span_ns) / SECOND_NS
