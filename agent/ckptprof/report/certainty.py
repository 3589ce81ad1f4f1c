"""The confidence of a verdict in words: no verdict is shown as if it were a fact."""

from __future__ import annotations

from ckptprof import units
from ckptprof.verdicts import THROTTLED, InterimVerdict, Limit, Verdict

LIKELY, PROBABLY = 0.8, 0.6  # confidence from which on
WORDS = ("likely", "probably", "unclear")
UNEXPLAINED, NOT_SLOW, THROTTLE = "unexplained", "not slow", "throttle"


def confidence_word(limit: Limit, confidence: float) -> str:
    """Return likely, probably or unclear for a limit and its confidence."""
    if limit is Limit.UNCLEAR or not confidence >= PROBABLY:
        return WORDS[2]
    return WORDS[0] if confidence >= LIKELY else WORDS[1]


def is_probable(verdict: Verdict | InterimVerdict | None) -> bool:
    """Return True for a verdict that is at least probable; False without one."""
    return verdict is not None and confidence_word(verdict.limit, verdict.confidence) != WORDS[2]


def account_name(limit: Limit | None, verdict: Verdict | InterimVerdict | None = None) -> str:
    """Return the name of an account, of a throttled verdict `throttle`: its disk is not a slow one."""
    if isinstance(verdict, Verdict) and verdict.cause == THROTTLED and limit is verdict.limit:
        return THROTTLE
    return UNEXPLAINED if limit is None else NOT_SLOW if limit is Limit.NONE else limit.word


def limit_name(verdict: Verdict) -> str:
    """Return the name of the limit, with the rate of a throttle."""
    name, rate = account_name(verdict.limit, verdict), verdict.throttle_bytes_per_second
    return name if rate is None else f"{name} of {units.rate(rate)}"


def short_limit(verdict: Verdict | InterimVerdict | None) -> str | None:
    """Return the limit for a table: `disk`, `disk?` if unclear, None without a verdict."""
    if verdict is None:
        return None
    limit = verdict.candidates[0] if verdict.limit is Limit.UNCLEAR and verdict.candidates else verdict.limit
    return account_name(limit, verdict) + "?" * (not is_probable(verdict) and limit is not Limit.UNCLEAR)
