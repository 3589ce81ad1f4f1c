"""When nothing was slow: too short to matter, from memory, in the background, or as fast as its path allows."""

from __future__ import annotations

from ckptprof.diagnose.accounts.accounts import Accounting
from ckptprof.diagnose.accounts.network_evidence import was_in_pcc
from ckptprof.diagnose.causes import Cause
from ckptprof.diagnose.context import or_zero, rate_of
from ckptprof.diagnose.tolerances import LARGELY, MOMENT_SECONDS, PART, SHORT_SECONDS, SNIA_SHARE
from ckptprof.diagnose.verdict.save_series import stall_share
from ckptprof.model import Mode
from ckptprof.units import NS, percent, rate
from ckptprof.verdicts import Limit

TOO_SHORT = "too short for a limit to matter"
IN_BACKGROUND = "it was written in the background while training continued"
LEAST_SECONDS = 0.2  # of one limit: ten samples
LONG_SECONDS = 10.0
_BUSY = (Limit.SERIALIZE, Limit.CPU)
_STORAGE = (Limit.DEVICE, Limit.NETWORK, Limit.SERVER)


def why_not_slow(found: Accounting, limit: Limit | None) -> str | None:
    """Return why nothing was slow although `limit` is the longest account; None if something was slow."""
    if limit is Limit.PREVIOUS_SAVE:
        return None
    blocked_share = stall_share(found.context)
    slow = [pair for pair in found.bars if pair[0] not in (None, Limit.NONE)]
    short = _short(found.seconds, slow[0] if slow else None, blocked_share)
    if short is not None:
        return short
    if found.context.checkpoint.cache == "warm" and (limit not in _BUSY or found.share_of(limit) < PART):
        return f"it came from {'PCC, on a disk of this host' if was_in_pcc(found.context) else 'the page cache'}"
    if limit is None or found.share_of(limit) < PART:
        return None
    if limit is Limit.NONE:
        most = next(one for one in found.accounts if one.limit is Limit.NONE)
        return f"{most.text}, a normal rate for one thread" if most.cause is Cause.COPYING else most.text
    if blocked_share > SNIA_SHARE if blocked_share is not None else found.seconds >= LONG_SECONDS:
        return None
    return _at_ceiling(found, limit)


def background_reason(found: Accounting) -> str | None:
    """Return that unexplained time was in the background; None if it cost training too much.

    Copying the state may have blocked training where that was not observed; it is listed among the limitations.
    """
    save = found.context.checkpoint
    if save.mode is not Mode.ASYNC:
        return None
    share = stall_share(found.context) if save.stall_ns is not None else None
    short = or_zero(save.stall_ns) < MOMENT_SECONDS * NS
    return IN_BACKGROUND if (short if share is None else share < SNIA_SHARE) else None


def _short(length: float, slow: tuple[Limit | None, float] | None, blocked_share: float | None) -> str | None:
    """Return why a time was too short to matter; None: it was not.

    `slow`: its longest limit and the seconds of that, None without one. If the save costs too much of the interval, a
    limit is reported even for a short save; unexplained time, and waits for a CPU, from MOMENT_SECONDS on.
    """
    costs = blocked_share is not None and blocked_share >= SNIA_SHARE
    limit, own = slow or (None, 0.0)
    least = MOMENT_SECONDS if limit is Limit.CPU else LEAST_SECONDS
    if length < (MOMENT_SECONDS if limit is None else SHORT_SECONDS) and own < least:
        return TOO_SHORT
    if length < MOMENT_SECONDS and not costs:
        return TOO_SHORT
    if blocked_share is None:
        return None
    if length < SHORT_SECONDS and not costs:
        return f"it is only {percent(blocked_share)} of the time between two saves"
    return None


def _at_ceiling(found: Accounting, limit: Limit) -> str | None:
    context = found.context
    probed = context.probed
    overall = context.transferred_bytes / found.seconds if found.seconds else 0.0
    wait = found.waited_for(limit)
    if wait is not None and wait.imposed:
        return None
    if probed is not None and overall >= LARGELY * probed:
        return f"{rate(overall)}, {percent(overall / probed)} of what `ckptprof ceiling` measured on this path"
    if limit not in _STORAGE:
        return None
    shown, link = context.fastest_second, context.link
    if context.is_remote:
        shown = max(or_zero(link.shown_bytes_per_second), or_zero(link.peak_bytes_per_second)) if link else None
    now = or_zero(context.rate_of_device(context.device))
    if context.is_remote:
        now = rate_of(or_zero(context.link_bytes), found.waiting)
    if shown and now >= LARGELY * max(shown, probed or 0.0):
        return f"{rate(min(now, shown))}, the highest rate observed on this path"
    return None
