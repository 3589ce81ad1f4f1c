"""The disk is fine and the save is slow: more has to be seen."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.model import Checkpoint, Level
from ckptprof.units import seconds
from ckptprof.verdicts import Limit

_MEASURE = "measure the path once (`ckptprof ceiling DIR`)"


def applies(_checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> str | None:
    """Return what shows it."""
    whole = sum(one.seconds for one in accounts)
    return f"{seconds(whole)} without a limit that holds most of it" if whole > 0 else None


def _what_was_not_done(checkpoint: Checkpoint) -> str:
    """Return how to see more: nothing of what was there already."""
    processes = checkpoint.measures.processes if checkpoint.measures is not None else ()
    steps = [] if checkpoint.level is Level.TRACE else ["watch at --level trace"]
    steps += [] if any(one.stacks for one in processes) else ["install py-spy"]
    return f"look closer: {', '.join([*steps, _MEASURE])}"


RULE = Rule(
    name="unexplained",
    limits=(Limit.UNCLEAR,),
    applies=applies,
    exclusion="a limit holds most of the time",
    remedy=f"look closer: watch at --level trace, install py-spy, {_MEASURE}",
    reference="pytorch/torchtitan#1301",
    instead=_what_was_not_done,
)
