"""The fabric is congested: its ports are told to send more slowly, are paused, or lose packets."""

from __future__ import annotations

from ckptprof.diagnose.causes import Cause, Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import due_to
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(_checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> Spent | None:
    """Return what shows it."""
    return due_to(accounts, Cause.CONGESTION)


RULE = Rule(
    name="congested-fabric",
    limits=(Limit.NETWORK,),
    applies=applies,
    exclusion="no notifications, pauses or losses",
    remedy=(
        "fewer ranks that write at a time, or storage on other ports or priorities than the collectives; have PFC and "
        "ECN of the switches looked at"
    ),
    reference="Meta, RDMA over Ethernet for distributed AI training at scale (SIGCOMM 2024)",
    without="on a fabric that is not congested",
)
