"""Copying into the page cache is slow itself."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import spent
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(_checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> Spent | None:
    """Return what shows it."""
    return spent(accounts, Limit.PAGE_CACHE)


RULE = Rule(
    name="copying",
    limits=(Limit.PAGE_CACHE,),
    applies=applies,
    exclusion="copying goes at memory speed",
    remedy=(
        "write in pieces of 1 MB and more, with several writers; O_DIRECT where the device is faster than "
        "one thread copies"
    ),
    reference="DDN hybrid I/O (x1.7 per thread, 40 % of peak with buffered writes)",
)
