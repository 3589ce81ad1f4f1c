"""The network link is full."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import spent
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(_checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> Spent | None:
    """Return what shows it."""
    return spent(accounts, Limit.NETWORK)


RULE = Rule(
    name="full-link",
    limits=(Limit.NETWORK,),
    applies=applies,
    exclusion="the link has room",
    remedy=(
        "save to local NVMe first and copy on in the background, or from all nodes instead of one; else a faster link"
    ),
    reference="alpa-projects/alpa#466",
    remedy_of_restore="bring it to local NVMe before the restore, or read it once and send it on",
    remedies_of_restore={
        "torch": (
            "bring it to local NVMe before the restore, or read it once and send it on: DCP `broadcast_from_rank0=True`"
        ),
    },
)
