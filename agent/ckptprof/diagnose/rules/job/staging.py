"""The state is copied to host memory before the first byte."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import spent
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(_checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> Spent | None:
    """Return what shows it."""
    return spent(accounts, Limit.STAGING)


RULE = Rule(
    name="staging",
    limits=(Limit.STAGING,),
    applies=applies,
    exclusion="memory did not grow",
    remedy="pinned buffers, kept between saves; and save shards",
    remedies={
        "torch": (
            "pinned buffers, kept between saves: DCP `DefaultStager(StagingOptions(use_pinned_memory=True))`; and "
            "save shards"
        ),
    },
    reference="pytorch/pytorch PR#147039",
    without="with pinned buffers",
)
