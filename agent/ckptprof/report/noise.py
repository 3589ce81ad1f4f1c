"""Whether two sets of measurements differ by more than chance, without assuming a distribution.

The shift is that of Hodges and Lehmann: the median of all differences between a value of the second set and one of the
first. Its interval belongs to the test of Mann and Whitney, so it excludes zero exactly where that test finds a
difference. It is exact up to `EXACT` values on a side, and uses the normal approximation (with ties) above. Few values
have no interval: with 3 on either side even the most unequal order happens by chance once in ten times.
`center_on` replaces the shift by the change of the medians, which users see.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist, median

import msgspec

CONFIDENCE = 0.95
EXACT = 25  # values on a side up to which the distribution of the ranks is counted out
_MOST = 400  # values on a side that are compared; of more, as many that stand at equal distances in their order


class Shift(msgspec.Struct, frozen=True):
    """The change of the medians, and the interval of the shift (Hodges-Lehmann), extended to include it.

    None: not known, or too few values.
    """

    estimate: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def is_significant(self) -> bool:
        """Whether the difference exceeds what chance would cause."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)

    @property
    def has_interval(self) -> bool:
        """Whether there were enough values."""
        return self.low is not None


def shift(before: Sequence[float], after: Sequence[float]) -> Shift:
    """Return the shift from one set to the other."""
    first, second = _thinned(before), _thinned(after)
    if not first or not second:
        return Shift()
    differences = sorted(b - a for a in first for b in second)
    place = _place(len(first), len(second))
    low, high = (None, None) if place is None else (differences[place], differences[-1 - place])
    return Shift(estimate=median(differences), low=low, high=high)


def ratio(before: Sequence[float], after: Sequence[float]) -> Shift:
    """Return the shift from one set to the other as a share of the first: +0.1 is a tenth more.

    It is calculated from logarithms: only the order decides whether a shift is significant, so both agree.
    """
    if not all(value > 0 for value in (*before, *after)):
        return Shift()
    found = shift([math.log(value) for value in before], [math.log(value) for value in after])
    return Shift(*(None if one is None else math.expm1(one) for one in (found.estimate, found.low, found.high)))


def center_on(found: Shift, change: float) -> Shift:
    """Return the shift with this change as its estimate, and an interval that includes it."""
    if found.low is None or found.high is None:
        return Shift() if found.estimate is None else Shift(change)
    return Shift(change, min(found.low, change), max(found.high, change))


def least_values() -> int:
    """Return the minimum number of values on both sides."""
    return next(number for number in range(1, EXACT) if _place(number, number) is not None)


def _place(first: int, second: int) -> int | None:
    """Return the index among the sorted differences at which the interval starts; None for too few values."""
    tail = (1 - CONFIDENCE) / 2
    if first <= EXACT and second <= EXACT:
        below, whole, place = 0, math.comb(first + second, first), None
        for rank, ways in enumerate(_ways(first, second)):
            below += ways
            if below > tail * whole:
                break
            place = rank
        return place
    spread = math.sqrt(first * second * (first + second + 1) / 12)
    rank = math.floor(first * second / 2 + NormalDist().inv_cdf(tail) * spread)
    return rank if rank >= 0 else None


@lru_cache(maxsize=64)
def _ways(first: int, second: int) -> tuple[int, ...]:
    """Return the number of orders in which the test's statistic is 0, 1, 2 ... (Mann and Whitney 1947)."""
    ways = [1] + [0] * (first * second)
    for i in range(1, first + 1):
        for total in range(first * second, second + i - 1, -1):  # times (1 - q^(second + i))
            ways[total] -= ways[total - second - i]
        for total in range(i, first * second + 1):  # over (1 - q^i)
            ways[total] += ways[total - i]
    return tuple(ways)


def _thinned(values: Sequence[float]) -> list[float]:
    ordered = sorted(value for value in values if math.isfinite(value))
    if len(ordered) <= _MOST:
        return ordered
    return [ordered[(2 * i + 1) * len(ordered) // (2 * _MOST)] for i in range(_MOST)]
