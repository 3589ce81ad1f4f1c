"""The disk is fine and the save is slow: more has to be seen."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.model import Checkpoint
from ckptprof.units import seconds
from ckptprof.verdicts import Limit


def applies(_checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> str | None:
    """Return what shows it."""
    whole = sum(one.seconds for one in accounts)
    return f"{seconds(whole)} without a limit that holds most of it" if whole > 0 else None


RULE = Rule(
    name="unexplained",
    limits=(Limit.UNCLEAR,),
    applies=applies,
    exclusion="a limit holds most of the time",
    remedy="look closer: the agent at --level trace, py-spy installed, and `ckptprof ceiling DIR` once",
    reference="pytorch/torchtitan#1301",
)
