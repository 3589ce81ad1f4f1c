"""How often to save: published formulas, from the cost of a save and the time between failures.

All times are in seconds. An interval is from the start of one save to the start of the next. `cost` is how long a save
blocks training: for an async save only the blocking part. `recovery` is from a failure until the progress of the last
checkpoint is reached again, without the work that is redone.
"""

from __future__ import annotations

import math

import msgspec

from ckptprof.diagnose.tolerances import SNIA_SHARE

SAVES_PER_MTTF = 20  # Micron and Lightbits: 20 checkpoints between failures lose at most 5 % of the work between them


class Losses(msgspec.Struct, frozen=True, kw_only=True):
    """The time that a job loses, as shares of 0..1 of its whole time."""

    stall_share: float  # training blocked by saves
    redone_share: float  # computed again after failures, saves included
    restart_share: float  # between a failure and when training resumes
    lost_share: float  # total: 1 less the goodput


def young(cost: float, mttf: float) -> float:
    """Return sqrt(2 C M) (Young 1974): the first-order optimum, for a cost far below the time between failures."""
    return math.sqrt(2 * cost * mttf)


def daly_exact(cost: float, mttf: float) -> float:
    """Return the period that minimises Daly's complete model, M e^(R/M) (e^((tau+C)/M) - 1) / tau, by Newton's method.

    With u = tau / M and d = C / M the minimum is where u + e^-(u+d) = 1; the left side is convex and rising, so steps
    from u = 1 come down to the root and never pass it. The recovery R does not move the minimum.
    """
    d = cost / mttf
    if not d:
        return 0.0
    u = 1.0
    while True:
        excess = u + math.expm1(-(u + d))
        lower = u + excess / math.expm1(-(u + d))  # the slope is 1 - e^-(u+d)
        if not 0 < lower < u:  # the precision of floats is reached
            return (u + d) * mttf
        u = lower


def best_availability(cost: float, mttf: float, recovery: float) -> float:
    """Return C + sqrt(2 (M + R) C + C^2), the interval with the least loss (arXiv 2410.18124)."""
    return cost + math.sqrt(2 * (mttf + recovery) * cost + cost * cost)


def losses(interval: float, cost: float, mttf: float, recovery: float) -> Losses | None:
    """Return the losses at an interval; None if a save does not end before the next starts.

    Progress is (1 - C/T) M / (M + R + T/2) (arXiv 2410.18124): a failure comes in the middle of an interval on average,
    so that T/2 is redone.
    """
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
    """Return the shortest and the longest interval with at most this loss; None if all lose more.

    The two roots of A T^2 / 2 + (A (M + R) - M) T + C M = 0, in which A is the share that is progress.
    """
    progress = 1 - lost_share
    if progress <= 0:
        return (cost, math.inf)
    slope = progress * (mttf + recovery) - mttf
    under_root = slope * slope - 2 * progress * cost * mttf
    if slope >= 0 or under_root < 0:
        return None
    longest = (math.sqrt(under_root) - slope) / progress
    return (2 * cost * mttf / progress / longest, longest)


def affordable_cost(mttf: float, recovery: float, share: float = SNIA_SHARE) -> float:
    """Return the maximum cost of a save that keeps the stall below `share` (< 0.5) at the best interval.

    From C = share * T in `best_availability`: 2 (M + R) / ((1/share - 1)^2 - 1), which is (M + R) / 180 for 5 %.
    """
    return 2 * (mttf + recovery) / ((1 / share - 1) ** 2 - 1)
