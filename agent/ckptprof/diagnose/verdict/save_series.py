"""The earlier saves of a job: how often it saves, and whether a save waited for the previous one."""

from __future__ import annotations

import itertools
import statistics

from ckptprof.diagnose.context import CheckpointContext, or_zero
from ckptprof.diagnose.tolerances import HARDLY_ANY, LITTLE, MOMENT_SECONDS, MOST, TWICE
from ckptprof.figures import duration_seconds as took
from ckptprof.figures import intervals_seconds
from ckptprof.model import Checkpoint, Kind, Mode
from ckptprof.units import NS, seconds

_MOMENT = 0.3  # seconds
_SAVES = 9  # the last saves: earlier ones may be of another run
_AT_ONCE = 0.05  # seconds: too short for a step of training


def saves(context: CheckpointContext) -> list[Checkpoint]:
    """Return the job's saves, ending with this one if it is a save."""
    before = [one for one in context.history if one.kind is Kind.SAVE]
    return [*before, context.checkpoint] if context.checkpoint.kind is Kind.SAVE else before


def interval(context: CheckpointContext) -> float | None:
    """Return the usual seconds from the start of one save to the start of the next; None: not known."""
    apart = intervals_seconds(saves(context)[-_SAVES:])
    return statistics.median(apart) if apart else None


def stall_share(context: CheckpointContext) -> float | None:
    """Return the share of the interval in which a save blocks training; None: not known."""
    apart = interval(context)
    if not apart:
        return None
    stall_ns = context.checkpoint.stall_ns
    return (context.span if stall_ns is None else stall_ns / NS) / apart


def back_to_back(context: CheckpointContext) -> str | None:
    """Describe that saves wait for each other, None if they do not.

    Only an async save can be waited for: one that blocks training has ended when the next starts.
    """
    chain = saves(context)
    if context.checkpoint.kind is not Kind.SAVE or len(chain) < 2 or not _in_background(chain[-1]):
        return None
    follows = [_follows(earlier, later) for earlier, later in itertools.pairwise(chain)]
    in_row = len(list(itertools.takewhile(bool, reversed(follows))))
    if in_row >= 2:
        return f"the last {in_row + 1} saves each started as soon as the previous one ended"
    before = context.measures.before
    stall = max(or_zero(context.checkpoint.stall_ns), before.blocked_ns if before is not None else 0) / NS
    if in_row == 1 and stall >= LITTLE * took(chain[-2]) > 0:
        return "it started as soon as the previous save ended, and training was blocked until then"
    return None


def waited_for(context: CheckpointContext) -> str | None:
    """Describe that this save waited for the previous one, whether training was blocked or not; None if it did not.

    A thread or process other than the trainer writes them, so that training should continue. But the next save was due
    before the previous one was done, and started as soon as it was. This applies to saves with a known limit; without
    one the host may be short of CPU.
    """
    chain = saves(context)
    if context.checkpoint.kind is not Kind.SAVE or len(chain) < 2:
        return None
    earlier, later = chain[-2:]
    if not (_is_by_another(earlier) and _is_by_another(later)) or took(earlier) < MOMENT_SECONDS:
        return None
    is_same_size = max(earlier.bytes, later.bytes) <= TWICE * min(earlier.bytes, later.bytes)
    gap, slack = (later.start_ns - earlier.end_ns) / NS, HARDLY_ANY * took(earlier)
    if not is_same_size or not -_AT_ONCE - slack <= gap <= max(_AT_ONCE, slack):
        return None
    return f"it started as soon as the previous save ended, which took {seconds(took(earlier))} in the background"


def _is_by_another(save: Checkpoint) -> bool:
    whole = sum(one.bytes for one in save.writers)
    other = sum(one.bytes for one in save.writers if one.role in ("thread", "child", "daemon"))
    return other > whole / 2


def _follows(earlier: Checkpoint, later: Checkpoint) -> bool:
    gap = (later.start_ns - earlier.end_ns) / NS
    return _in_background(earlier) and -MOST * took(earlier) <= gap <= max(_MOMENT, HARDLY_ANY * took(earlier))


def _in_background(save: Checkpoint) -> bool:
    if save.mode is not None:
        return save.mode is Mode.ASYNC
    return any(one.role in ("thread", "child", "daemon") for one in save.writers)
