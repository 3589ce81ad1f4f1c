"""The writing thread compresses."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import stack
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(checkpoint: Checkpoint, _accounts: tuple[Spent, ...]) -> str | None:
    """Return what shows it."""
    return stack(checkpoint, "compress")


RULE = Rule(
    name="compression",
    limits=(Limit.SERIALIZE,),
    applies=applies,
    exclusion="the stack is elsewhere",
    remedy="write uncompressed (weights hardly compress), or zstd at level 1 with several threads",
    remedies={
        "numpy": "`np.savez` in place of `np.savez_compressed`: weights hardly compress",
    },
    reference="ServiceNow/Fast-LLM#26",
    without="uncompressed",
)
