"""How many operations something takes: what is in proportion is shown by counts, on any machine."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from cProfile import Profile
from types import FrameType
from typing import Any

LINEAR = 1.5  # times as many calls for each process or file, at most
_FEW_LINES = 50  # for each item: some functions work from so many items on only


def calls_of(does: Callable[[], object]) -> int:
    """Return how many calls of functions, Python's and C's, something takes; each step of a generator is one."""
    profile = Profile()
    profile.runcall(does)
    return sum(entry.callcount for entry in profile.getstats())


def lines_of(does: Callable[[], object]) -> Counter[str]:
    """Return how many lines each function of the product executes; each turn of a loop or comprehension is one."""
    counts: Counter[Any] = Counter()

    def of_product(frame: FrameType, _: str, __: object) -> Callable[..., object] | None:
        return count if "/agent/ckptprof/" in frame.f_code.co_filename else None

    def count(frame: FrameType, event: str, _: object) -> Callable[..., object]:
        if event == "line":
            counts[frame.f_code] += 1
        return count

    before = sys.gettrace()
    sys.settrace(of_product)
    try:
        does()
    finally:
        sys.settrace(before)
    names = Counter[str]()
    for code, number in counts.items():
        names[f"{code.co_filename.partition('/agent/ckptprof/')[2]}:{code.co_firstlineno} {code.co_qualname}"] += number
    return names


def growth_per_doubling(
    few: Mapping[str, float], many: Mapping[str, float], sizes: tuple[int, int]
) -> dict[str, float]:
    """Return how much the lines of each function, and of all, grow for one item when there are twice as many items.

    `few` and `many` are the lines for each of so many items. A function with few lines counts as one with `_FEW_LINES`.
    """
    doublings = math.log2(sizes[1] / sizes[0])
    rates = {name: (lines / max(few.get(name, 0), _FEW_LINES)) ** (1 / doublings) for name, lines in many.items()}
    return rates | {"all": (sum(many.values()) / sum(few.values())) ** (1 / doublings)}
