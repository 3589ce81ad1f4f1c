"""One rank ends long after the others."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import spent
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(_checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> Spent | None:
    """Return what shows it."""
    return spent(accounts, Limit.STRAGGLER)


RULE = Rule(
    name="straggler",
    limits=(Limit.STRAGGLER,),
    applies=applies,
    exclusion="the ranks end together",
    remedy="balance what the ranks write; if they write alike, look at that rank's CPU, disk and link",
    remedies={
        "torch": (
            "balance what the ranks write (DCP: dedup_save_to_lowest_rank=False); if they write alike, look at that "
            "rank's CPU, disk and link"
        ),
    },
    reference="verl-project/verl#2860 (rank 0 an hour after the other 15); marin#8534",
    without="with all ranks alike",
    remedy_of_restore="balance what the ranks read; if they read alike, look at that rank's CPU, disk and link",
)
