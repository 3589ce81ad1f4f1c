"""What a process built in memory for a save, or from what it had read: memory that it allocated and retained.

Training also allocates memory, but frees it again in each step, and needs no more than before.
"""

from __future__ import annotations

from statistics import mean

from ckptprof.detect.tolerances import (
    AT_ONCE_NS,
    BESIDE_NS,
    CALLS_NS,
    HEADER_BYTES,
    LITTLE_SHARE,
    MANY,
    MOST_SHARE,
    NEAR_NS,
    TELLING_BYTES,
    is_like,
)
from ckptprof.detect.world.process_usage import MemoryLook
from ckptprof.detect.world.spans import Span

_STEP_SHARE = 0.01  # of the bytes: a small state is built in steps of at least that
_MOST_TIMES = 4.0  # the bytes: the pieces, the joined result, and a copy or two


def built_before(looks: list[MemoryLook], first_ns: int, size: int) -> Span | None:
    """Find since when a process built what it wrote, up to its first byte; None if its memory does not show it.

    `looks`: since it trains and since the previous save. It allocated as much as it wrote, more than ever before, and
    hardly anything for as long before that.
    """
    looks = [one for one in looks if one.start_ns < first_ns]
    steps = _rise(looks, min(TELLING_BYTES, _STEP_SHARE * size))
    whole = steps[1:] or steps  # the first one is partly training
    if not steps or 2 * _kept_ns(whole) < sum(one.end_ns - one.start_ns for one in whole):
        return None
    start_ns = steps[0].start_ns
    calm_ns = start_ns - max(BESIDE_NS, first_ns - start_ns)
    calm = [one for one in looks if calm_ns < one.end_ns <= start_ns]
    if looks[0].start_ns > calm_ns or not all(_is_near(one) for one in looks if one.end_ns > calm_ns):
        return None
    taken = steps[-1].level_bytes - max(one.level_bytes for one in looks if one.end_ns <= start_ns)
    told = _trend(calm) <= LITTLE_SHARE * size and MOST_SHARE * size <= taken <= _MOST_TIMES * size
    return (start_ns, first_ns) if told else None


def built_after(looks: list[MemoryLook], start_ns: int, last_ns: int, size: int) -> Span | None:
    """Find until when a process built from what it had read, after its last byte; None if its memory does not show it.

    Training that starts also allocates memory, but not at once, and not for long compared with the time since it
    started to read; nor does it end by freeing what was read.
    """
    steps: list[MemoryLook] = []
    least_ns = AT_ONCE_NS
    begin_ns = end_ns = last_ns
    grown = pending = 0
    for look in looks:
        if look.start_ns < last_ns or (not steps and look.grown_bytes < 0):
            continue  # it frees what it read
        apart_ns = look.end_ns - end_ns
        if (
            is_like(-look.grown_bytes, size) and look.start_ns - last_ns <= AT_ONCE_NS
        ):  # freed as well, with a copy in place
            steps, begin_ns, end_ns, grown, pending = [], look.end_ns, look.end_ns, 0, 0
            continue
        pending += look.grown_bytes
        if apart_ns > AT_ONCE_NS or look.grown_bytes <= -_STEP_SHARE * size:
            least_ns = NEAR_NS if -look.grown_bytes >= MOST_SHARE * size else AT_ONCE_NS
            break
        if pending >= max(HEADER_BYTES, LITTLE_SHARE * grown * apart_ns / max(1, end_ns - begin_ns)):
            steps.append(look)
            end_ns, grown, pending = look.end_ns, grown + pending, 0
    whole_ns = end_ns - begin_ns
    told = [one for one in steps if one.grown_bytes * whole_ns >= LITTLE_SHARE * grown * (one.end_ns - one.start_ns)]
    early = sum(one.grown_bytes for one in told if 2 * one.end_ns <= begin_ns + end_ns)
    lasts = len(told) >= MANY and end_ns - last_ns >= max(least_ns, (last_ns - start_ns) // 2)
    evenly = 2 * _kept_ns(told) >= whole_ns and early >= LITTLE_SHARE * grown
    at_once = lasts and told[0].start_ns - begin_ns <= CALLS_NS
    return (last_ns, end_ns) if at_once and evenly and grown >= LITTLE_SHARE * size else None


def _rise(looks: list[MemoryLook], least_bytes: float) -> list[MemoryLook]:
    """Select the last samples that each found more memory than any before, without a pause.

    Nor with most of it freed in between, as training does in each step. A table that grows is copied, and the old one
    freed.
    """
    rise: list[MemoryLook] = []
    base = highest = looks[0].level_bytes if looks else 0
    fell = False
    for look in looks:
        if look.level_bytes >= highest + least_bytes:
            if fell or (rise and look.start_ns - rise[-1].end_ns > AT_ONCE_NS):
                rise = []
            base = base if rise else highest
            highest, fell = look.level_bytes, False
            rise.append(look)
        fell = fell or look.level_bytes <= min(highest - least_bytes, (base + highest) / 2)
    return rise if rise and looks[-1].end_ns - rise[-1].end_ns <= AT_ONCE_NS else []


def _trend(looks: list[MemoryLook]) -> float:
    middle = len(looks) // 2
    return mean(one.level_bytes for one in looks[middle:]) - mean(one.level_bytes for one in looks[: middle or 1])


def _is_near(look: MemoryLook) -> bool:
    return look.end_ns - look.start_ns <= AT_ONCE_NS


def _kept_ns(steps: list[MemoryLook]) -> int:
    return sum(one.end_ns - one.start_ns for one in steps if one.grown_bytes >= MOST_SHARE * one.touched_bytes)
