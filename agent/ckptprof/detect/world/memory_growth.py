"""What a process built in memory for a save, or from what it had read: memory that it allocated and retained.

Training also allocates memory, but frees it again in each step, and needs no more than before.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise, takewhile
from statistics import mean

from ckptprof.detect.tolerances import (
    AT_ONCE_NS,
    CONCURRENT_NS,
    COUNTER_LAG_NS,
    HEADER_BYTES,
    LITTLE_SHARE,
    MANY,
    MOST_SHARE,
    NEARBY_NS,
    SIGNIFICANT_BYTES,
    is_similar_size,
)
from ckptprof.detect.world.process_counters import find_runs
from ckptprof.detect.world.process_usage import MemoryChange
from ckptprof.detect.world.spans import Span

_STEP_SHARE = 0.01  # of the bytes: a small state is built in steps of at least that


def find_build_before(
    changes: list[MemoryChange], first_ns: int, last_ns: int, size: int, read_bytes: Callable[[int, int], int]
) -> Span | None:
    """Find since when a process built what it wrote, up to its first byte; None if its memory does not show it.

    `changes`: since it trains and since the previous save, until after its last byte; `read_bytes`: what it read in a
    time. It allocated as much as it wrote beyond what it read, more than ever before, and hardly anything before that:
    for a moment if it then released it, else for a third of the time in which it built. Far apart samples show it if
    most is released.
    """
    after = [one.level_bytes for one in changes if one.start_ns >= last_ns + COUNTER_LAG_NS]
    after_bytes = mean(after or [one.level_bytes for one in changes[-1:]] or [0])
    changes = [one for one in changes if one.end_ns <= first_ns or (one.start_ns < first_ns and one.grown_bytes >= 0)]
    released_ns, risen_ns = _released_since(changes, first_ns, size, after_bytes), _risen_since(changes, size)
    built_ns = max(CONCURRENT_NS, first_ns - risen_ns)
    spans = (risen_ns, built_ns, max(CONCURRENT_NS, built_ns // 3)), (released_ns, NEARBY_NS, NEARBY_NS)
    for start_ns, usual_ns, least_ns in spans:
        usual_since_ns = max(start_ns - usual_ns, min((one.start_ns for one in changes), default=first_ns))
        usual = [one for one in changes if usual_since_ns < one.end_ns <= start_ns]
        if not usual or start_ns - usual_since_ns < least_ns:
            continue
        top_bytes = max(one.level_bytes for one in changes)
        growth = top_bytes - max(one.level_bytes for one in changes if one.end_ns <= start_ns)
        growth -= read_bytes(start_ns, first_ns)
        longest_ns = max(one.end_ns - one.start_ns for one in changes if one.end_ns > usual_since_ns)
        is_observed = 2 * (top_bytes - after_bytes) >= growth or longest_ns <= AT_ONCE_NS
        levels, middle = [one.level_bytes for one in usual], len(usual) // 2
        trend = mean(levels[middle:]) - mean(levels[: middle or 1])
        if is_observed and trend <= LITTLE_SHARE * size and MOST_SHARE * size <= growth:
            rise = find_runs((*one[:3],) for one in changes if one.start_ns >= start_ns)
            return (rise[0].start_ns if rise else start_ns), first_ns
    return None


def _released_since(changes: list[MemoryChange], first_ns: int, size: int, after_bytes: float) -> int:
    """Find since when memory exceeded the level to which it returned after the last byte.

    0 if it released less than it wrote. Nor is it a build if it is as short as a step of training, if it released much
    before, as each step does, or if it paused for long.
    """
    if not changes or changes[-1].level_bytes - after_bytes < MOST_SHARE * size:
        return 0
    level = after_bytes + LITTLE_SHARE * size
    start_ns = max((one.end_ns for one in changes if one.level_bytes <= level), default=first_ns)
    before = takewhile(lambda one: one.end_ns > start_ns or one.grown_bytes >= _STEP_SHARE * size, reversed(changes))
    start_ns = min([start_ns, *(one.start_ns for one in before)])
    build, risen, edges = [one for one in changes if one.start_ns >= start_ns], 0, [start_ns]
    for change in build:
        risen += max(0, change.grown_bytes)
        if change.level_bytes >= level + _STEP_SHARE * size:
            level = change.level_bytes
            edges.append(change.end_ns)
    is_retained = sum(one.grown_bytes for one in build) >= MOST_SHARE * risen
    longest_ns = max(later - earlier for earlier, later in pairwise([*edges, first_ns]))
    is_steady = longest_ns <= pause_limit_ns(first_ns - start_ns) and first_ns - start_ns >= AT_ONCE_NS
    return start_ns if is_retained and is_steady else 0


def find_build_after(changes: list[MemoryChange], start_ns: int, last_ns: int, size: int) -> Span | None:
    """Find until when a process built from what it had read, after its last byte; None if its memory does not show it.

    Training that starts also allocates memory, but not at once, and not for long compared with the time since it
    started to read; nor does it end by freeing what was read.
    """
    steps: list[MemoryChange] = []
    start_of_build_ns = end_ns = last_ns
    grown = pending = 0
    for change in changes:
        if change.start_ns < last_ns or (not steps and change.grown_bytes < 0):
            continue  # it frees what it read
        apart_ns = change.end_ns - end_ns
        if (
            is_similar_size(-change.grown_bytes, size) and change.start_ns - last_ns <= AT_ONCE_NS
        ):  # freed as well, with a copy in place
            steps, start_of_build_ns, end_ns, grown, pending = [], change.end_ns, change.end_ns, 0, 0
            continue
        pending += change.grown_bytes
        if apart_ns > pause_limit_ns(end_ns - last_ns) or change.grown_bytes <= -_STEP_SHARE * size:
            break
        if pending >= max(HEADER_BYTES, LITTLE_SHARE * grown * apart_ns / max(1, end_ns - start_of_build_ns)):
            steps.append(change)
            end_ns, grown, pending = change.end_ns, grown + pending, 0
    whole_ns = end_ns - start_of_build_ns
    significant = [
        one for one in steps if one.grown_bytes * whole_ns >= LITTLE_SHARE * grown * (one.end_ns - one.start_ns)
    ]
    early = sum(one.grown_bytes for one in significant if 2 * one.end_ns <= start_of_build_ns + end_ns)
    after = [one for one in changes if end_ns <= one.start_ns <= end_ns + NEARBY_NS]
    freed = -sum(min(0, one.grown_bytes) for one in after) / max(1, size)  # of what was read, with the last step
    least_ns = NEARBY_NS if freed >= MOST_SHARE else AT_ONCE_NS
    least_ns = max(least_ns, (last_ns - start_ns) // (MANY if freed >= LITTLE_SHARE else 2))
    is_long = len(significant) >= MANY and end_ns - last_ns >= least_ns
    evenly = 3 * _retained_ns(significant) >= whole_ns and early >= LITTLE_SHARE * grown
    starts_at_once = is_long and significant[0].start_ns - start_of_build_ns <= COUNTER_LAG_NS
    return (last_ns, end_ns) if starts_at_once and evenly and grown >= LITTLE_SHARE * size else None


def pause_limit_ns(lasted_ns: int) -> int:
    """Longest pause in which memory that was built for `lasted_ns` does not grow: objects are traced for garbage."""
    return max(AT_ONCE_NS, lasted_ns // 3)


def _risen_since(changes: list[MemoryChange], size: int) -> int:
    """Find since when its samples found more memory than any before, without a pause, up to the last one; 0: never.

    Most of what it touched was retained, and not freed in between, as training does in each step. A table that grows is
    copied, and the old one freed.
    """
    least_bytes = min(SIGNIFICANT_BYTES, _STEP_SHARE * size)
    rise: list[MemoryChange] = []
    base = highest = changes[0].level_bytes if changes else 0
    fell = False
    for change in changes:
        if change.level_bytes >= highest + least_bytes:
            if fell or (rise and change.start_ns - rise[-1].end_ns > AT_ONCE_NS):
                rise = []
            base = base if rise else highest
            highest, fell = change.level_bytes, False
            rise.append(change)
        fell = fell or change.level_bytes <= min(highest - least_bytes, (base + highest) / 2)
    if not rise or changes[-1].end_ns - rise[-1].end_ns > AT_ONCE_NS:
        return 0
    whole = rise[1:] or rise  # the first one is partly training
    is_retained = 2 * _retained_ns(whole) >= sum(one.end_ns - one.start_ns for one in whole)
    return rise[0].start_ns if is_retained else 0


def _retained_ns(steps: list[MemoryChange]) -> int:
    return sum(one.end_ns - one.start_ns for one in steps if one.grown_bytes >= MOST_SHARE * one.touched_bytes)
