"""What a process built in memory for a save, or from what it had read: memory that it allocated and retained.

Training also allocates memory, but frees it again in each step, and needs no more than before.
"""

from __future__ import annotations

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
from ckptprof.detect.world.process_usage import MemoryChange
from ckptprof.detect.world.spans import Span

_STEP_SHARE = 0.01  # of the bytes: a small state is built in steps of at least that


def find_build_before(changes: list[MemoryChange], first_ns: int, size: int, released_bytes: int = 0) -> Span | None:
    """Find since when a process built what it wrote, up to its first byte; None if its memory does not show it.

    `changes`: since it trains and since the previous save. It allocated as much as it wrote, more than ever before, and
    hardly anything before that, for at least a third as long. Far apart samples show it if most is released at its end.
    """
    changes = [one for one in changes if one.start_ns < first_ns]
    steps = _last_rise(changes, min(SIGNIFICANT_BYTES, _STEP_SHARE * size))
    whole = steps[1:] or steps  # the first one is partly training
    if not steps or 2 * _retained_ns(whole) < sum(one.end_ns - one.start_ns for one in whole):
        return None
    start_ns = steps[0].start_ns
    usual_since_ns = max(changes[0].start_ns, start_ns - max(CONCURRENT_NS, first_ns - start_ns))
    usual = [one for one in changes if usual_since_ns < one.end_ns <= start_ns]
    if start_ns - usual_since_ns < max(CONCURRENT_NS, (first_ns - start_ns) // 3):
        return None
    growth = steps[-1].level_bytes - max(one.level_bytes for one in changes if one.end_ns <= start_ns)
    are_short = all(one.end_ns - one.start_ns <= AT_ONCE_NS for one in changes if one.end_ns > usual_since_ns)
    is_observed = 2 * released_bytes >= growth or are_short
    is_build = is_observed and _trend(usual) <= LITTLE_SHARE * size and MOST_SHARE * size <= growth
    return (start_ns, first_ns) if is_build else None


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


def _last_rise(changes: list[MemoryChange], least_bytes: float) -> list[MemoryChange]:
    """Select the last samples that each found more memory than any before, without a pause.

    Nor with most of it freed in between, as training does in each step. A table that grows is copied, and the old one
    freed.
    """
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
    return rise if rise and changes[-1].end_ns - rise[-1].end_ns <= AT_ONCE_NS else []


def _trend(changes: list[MemoryChange]) -> float:
    middle = len(changes) // 2
    return mean(one.level_bytes for one in changes[middle:]) - mean(one.level_bytes for one in changes[: middle or 1])


def _retained_ns(steps: list[MemoryChange]) -> int:
    return sum(one.end_ns - one.start_ns for one in steps if one.grown_bytes >= MOST_SHARE * one.touched_bytes)
