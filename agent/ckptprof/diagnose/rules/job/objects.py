"""The writing thread pickles many small objects."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import stack
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(checkpoint: Checkpoint, _accounts: tuple[Spent, ...]) -> str | None:
    """Return what shows it."""
    return stack(checkpoint, "pickle")


RULE = Rule(
    name="objects",
    limits=(Limit.SERIALIZE,),
    applies=applies,
    exclusion="the stack is in a checksum or in compression",
    remedy="pack small Python objects of the state into one tensor or array, and save data loader state apart",
    reference="ServiceNow/Fast-LLM#26",
    without="as tensors",
)
