"""What a limit cost, and how much of that its remedy wins: one definition for all reports."""

from __future__ import annotations

from ckptprof.figures import lost_seconds
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit, Verdict

PLAIN = frozenset({Limit.NONE, Limit.UNCLEAR})  # they cost what no remedy wins


def seconds_of(verdict: Verdict, limit: Limit) -> float:
    """Return the seconds of the path that a limit cost; of `cpu` all waits for a CPU, in whatever account they are."""
    own = sum(one.seconds for one in verdict.accounts if one.limit is limit)
    others = sum(one.runnable_seconds for one in verdict.accounts if one.limit is not limit)
    return own + others * (limit is Limit.CPU)


def won_seconds(verdict: Verdict) -> float | None:
    """Return the seconds of the path that the remedy wins, at most what the limit cost; None if not known."""
    if verdict.expected_seconds is None:
        return None
    return max(0.0, min(verdict.seconds - verdict.expected_seconds, seconds_of(verdict, verdict.limit)))


def lost_to(one: Checkpoint, limit: Limit) -> float:
    """Return the seconds lost to a limit; all lost time if no account has the limit of the verdict."""
    verdict, whole = one.verdict, lost_seconds(one)
    own = 0.0 if verdict is None or limit in PLAIN else seconds_of(verdict, limit)
    if verdict is None or not own or not verdict.seconds > 0:
        return whole if verdict is not None and limit is verdict.limit else 0.0
    return own * min(1.0, whole / verdict.seconds)
