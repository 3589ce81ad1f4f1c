"""The server answers late."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import spent
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(_checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> Spent | None:
    """Return what shows it."""
    return spent(accounts, Limit.SERVER)


RULE = Rule(
    name="slow-server",
    limits=(Limit.SERVER,),
    applies=applies,
    exclusion="the link is full",
    remedy=(
        "several files at a time, in larger pieces (NFS wsize=1048576, FUSE max_write); have the server "
        "looked at; else local NVMe first"
    ),
    reference="LLNL/scr#449",
)
