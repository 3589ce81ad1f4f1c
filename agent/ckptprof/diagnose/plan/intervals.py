"""How often to save: the formulas of the field, each from the cost of a save and the time between failures.

All times are in seconds. An interval is from the start of one save to the start of the next. `cost` is how long a save
holds training: for an async save the blocking part only. `recovery` is from a failure until the progress that the last
checkpoint holds is reached again, without what has to be computed again.
"""

from __future__ import annotations

import math

import msgspec

SAVES_PER_MTTF = 20  # Micron and Lightbits: 20 checkpoints between failures lose at most 5 % of the work between them
STALL_SHARE = 0.05  # SNIA: checkpointing takes less than 5 % of the time in training
_TINY = 1e-12  # cost over MTTF; below it the series is exact and the equation is not


class Losses(msgspec.Struct, frozen=True, kw_only=True):
    """What a job loses of its whole time, as shares of 0..1."""

    stall_share: float  # training held by saves
    redone_share: float  # computed again after failures, saves included
    restart_share: float  # between a failure and the point at which training goes on
    lost_share: float  # all of it: 1 less the goodput


def young(cost: float, mttf: float) -> float:
    """Return sqrt(2 C M) (Young 1974): the first-order optimum, for a cost far below the time between failures."""
    return math.sqrt(2 * cost * mttf)


def young_cost(interval: float, mttf: float) -> float:
    """Return the cost of a save for which an interval is Young's optimum: 9.3 s for 6.2 min at an MTTF of 124 min."""
    return interval * interval / (2 * mttf)


def daly(cost: float, mttf: float) -> float:
    """Return Daly's higher-order optimum (FGCS 22, 2006, eq. 37), as the whole period.

    His tau is the time of computing between two saves; tau + C is sqrt(2 C M) (1 + sqrt(C / 2M) / 3 + (C / 2M) / 9) for
    C < 2 M, and M + C beyond.
    """
    if cost >= 2 * mttf:
        return mttf + cost
    ratio = cost / (2 * mttf)
    return young(cost, mttf) * (1 + math.sqrt(ratio) / 3 + ratio / 9)


def daly_exact(cost: float, mttf: float) -> float:
    """Return the period that minimises Daly's complete model, M e^(R/M) (e^((tau+C)/M) - 1) / tau, by Newton's method.

    With u = tau / M and d = C / M the minimum is where u + e^-(u+d) = 1; the left side is convex and grows, so steps
    from u = 1 come down to the root and never pass it. The recovery R does not move the minimum.
    """
    d = cost / mttf
    if d < _TINY:
        return daly(cost, mttf)
    u = 1.0
    while True:
        excess = u + math.expm1(-(u + d))
        lower = u + excess / math.expm1(-(u + d))  # the slope is 1 - e^-(u+d)
        if not 0 < lower < u:  # as near as floats come
            return (u + d) * mttf
        u = lower


def availability(interval: float, cost: float, mttf: float, recovery: float) -> float:
    """Return the share of time that is progress, (1 - C/T) M / (M + R + T/2) (arXiv 2410.18124); 0 if T <= C.

    A failure comes in the middle of an interval on average, so that T/2 is done again.
    """
    if interval <= cost:
        return 0.0
    return (1 - cost / interval) * mttf / (mttf + recovery + interval / 2)


def best_availability(cost: float, mttf: float, recovery: float) -> float:
    """Return C + sqrt(2 (M + R) C + C^2), where `availability` is highest (arXiv 2410.18124)."""
    return cost + math.sqrt(2 * (mttf + recovery) * cost + cost * cost)


def losses(interval: float, cost: float, mttf: float, recovery: float) -> Losses | None:
    """Return where the rest of the time goes; None if a save does not end before the next begins."""
    if interval <= 0 or interval < cost:
        return None
    between_failures = mttf + recovery + interval / 2
    stall = cost / interval * mttf / between_failures
    redone = interval / 2 / between_failures
    restart = recovery / between_failures
    return Losses(
        stall_share=stall, redone_share=redone, restart_share=restart, lost_share=min(1.0, stall + redone + restart)
    )


def as_good_as(lost_share: float, cost: float, mttf: float, recovery: float) -> tuple[float, float] | None:
    """Return the shortest and the longest interval that lose no more than a share of the time; None if all lose more.

    The two roots of A T^2 / 2 + (A (M + R) - M) T + C M = 0, which is `availability` = A.
    """
    kept = 1 - lost_share
    if kept <= 0:
        return (cost, math.inf)
    slope = kept * (mttf + recovery) - mttf
    under_root = slope * slope - 2 * kept * cost * mttf
    if slope >= 0 or under_root < 0:
        return None
    longest = (math.sqrt(under_root) - slope) / kept
    return (2 * cost * mttf / kept / longest, longest)


def per_mttf(mttf: float, saves: int = SAVES_PER_MTTF) -> float:
    """Return the interval of so many saves between failures (Micron): 6.2 min at an MTTF of 124 min."""
    return mttf / saves


def for_stall(cost: float, share: float = STALL_SHARE) -> float:
    """Return the shortest interval at which saves take no more than a share of it (SNIA)."""
    return cost / share


def affordable_cost(mttf: float, recovery: float, share: float = STALL_SHARE) -> float:
    """Return the cost of a save below which the best interval also keeps the stall under a share, itself under a half.

    From C = share * T in `best_availability`: 2 (M + R) / ((1/share - 1)^2 - 1), which is (M + R) / 180 for 5 %.
    """
    return 2 * (mttf + recovery) / ((1 / share - 1) ** 2 - 1)


def whole_steps(interval: float, step_seconds: float) -> int:
    """Return how many whole training steps fit into an interval, 1 at least."""
    return max(1, math.floor(interval / step_seconds))
