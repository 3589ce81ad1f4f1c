"""Old checkpoints are deleted in line."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import spent
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(_checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> Spent | None:
    """Return what shows it."""
    return spent(accounts, Limit.CLEAN_UP)


RULE = Rule(
    name="clean-up",
    limits=(Limit.CLEAN_UP,),
    applies=applies,
    exclusion="nothing is deleted while the save is waited for",
    remedy="delete in the background: rename the old directory away, and remove it in a thread or from cron",
    reference="NVIDIA/Megatron-Bridge#332; prime-rl PR#1763",
    without="with deletion in the background",
)
