"""What a limit cost, and how much of that its remedy wins: one definition for all reports."""

from __future__ import annotations

from ckptprof.figures import lost_seconds
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Alternative, Limit, Verdict

PLAIN = frozenset({Limit.NONE, Limit.UNCLEAR})  # they cost what no remedy wins


def seconds_apart(verdict: Verdict) -> dict[Limit | None, float]:
    """Divide the path by limit, all waits for a CPU in `cpu`, in whatever account they are; None: unexplained."""
    apart: dict[Limit | None, float] = {}
    for one in verdict.accounts:
        waited = one.seconds if one.limit is Limit.CPU else one.runnable_seconds
        apart[one.limit] = apart.get(one.limit, 0.0) + one.seconds - waited
        apart[Limit.CPU] = apart.get(Limit.CPU, 0.0) + waited
    return apart


def seconds_of(verdict: Verdict, limit: Limit) -> float:
    """Return the seconds of the path that a limit cost; of `cpu` all waits for a CPU, in whatever account they are."""
    if limit is Limit.CPU:
        return seconds_apart(verdict).get(limit, 0.0)
    return sum(one.seconds for one in verdict.accounts if one.limit is limit)


def won_seconds(verdict: Verdict, other: Alternative | None = None) -> float | None:
    """Return the seconds of the path that the remedy wins, or the other one, at most what its limit cost."""
    limit, expected = (other.limit, other.expected_seconds) if other else (verdict.limit, verdict.expected_seconds)
    return None if expected is None else max(0.0, min(verdict.seconds - expected, seconds_of(verdict, limit)))


def lost_to(one: Checkpoint, limit: Limit) -> float:
    """Return the seconds lost to a limit; all lost time if no account has the limit of the verdict."""
    verdict, whole = one.verdict, lost_seconds(one)
    own = 0.0 if verdict is None or limit in PLAIN else seconds_of(verdict, limit)
    if verdict is None or not own or not verdict.seconds > 0:
        return whole if verdict is not None and limit is verdict.limit else 0.0
    return own * min(1.0, whole / verdict.seconds)
