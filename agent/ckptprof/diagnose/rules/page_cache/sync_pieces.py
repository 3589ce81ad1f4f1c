"""A sync after each small piece: each waits for the device, nothing is gathered."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import spent
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(_checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> Spent | None:
    """Return what shows it."""
    return spent(accounts, Limit.FLUSH)


RULE = Rule(
    name="sync-pieces",
    limits=(Limit.FLUSH,),
    applies=applies,
    exclusion="one sync per file, or megabytes for each",
    remedy="write the whole file, then fsync once before the rename; no O_SYNC, no O_DSYNC, no mount with `sync`",
    reference="LLNL/scr#449; pytorch/pytorch#194034",
)
