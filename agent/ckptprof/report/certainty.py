"""The confidence of a verdict in words: no verdict is shown as if it were a fact."""

from __future__ import annotations

from collections.abc import Sequence

from ckptprof import units
from ckptprof.verdicts import InterimVerdict, Limit, Verdict

LIKELY, PROBABLY = 0.8, 0.6  # confidence from which on
WORDS = ("likely", "probably", "unclear")
UNEXPLAINED, NOT_SLOW = "unexplained", "not slow"


def confidence_word(limit: Limit, confidence: float) -> str:
    """Return likely, probably or unclear for a limit and its confidence."""
    if limit is Limit.UNCLEAR or not confidence >= PROBABLY:
        return WORDS[2]
    return WORDS[0] if confidence >= LIKELY else WORDS[1]


def is_probable(verdict: Verdict | InterimVerdict | None) -> bool:
    """Return True for a verdict that is at least probable; False without one."""
    return verdict is not None and confidence_word(verdict.limit, verdict.confidence) != WORDS[2]


def account_name(limit: Limit | None) -> str:
    """Return the name of an account."""
    return UNEXPLAINED if limit is None else NOT_SLOW if limit is Limit.NONE else limit.word


def limit_name(verdicts: Sequence[Verdict]) -> str:
    """Return the name of the limit of some verdicts, with the rates to which a cgroup throttled the disk of most."""
    name = account_name(verdicts[0].limit)
    rates = [one.throttle_bytes_per_second for one in verdicts if one.throttle_bytes_per_second is not None]
    return f"{name} throttled at {rate_range(rates)}" if 2 * len(rates) > len(verdicts) else name


def rate_range(rates: Sequence[float]) -> str:
    """Return `15.0 to 60.0 MB/s`; one if all are the same."""
    low, high = units.rate(min(rates)), units.rate(max(rates))
    return high if low == high else f"{low.removesuffix(high[high.index(' ') :])} to {high}"


def short_limit(verdict: Verdict | InterimVerdict | None) -> str | None:
    """Return the limit for a table: `disk`, `disk?` if unclear, None without a verdict."""
    if verdict is None:
        return None
    mark = "" if is_probable(verdict) else "?"
    if verdict.limit is Limit.UNCLEAR:
        return f"{verdict.candidates[0].word}{mark}" if verdict.candidates else verdict.limit.word
    return f"{verdict.limit.word}{mark}"
