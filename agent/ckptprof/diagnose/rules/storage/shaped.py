"""The link is shaped: its queueing discipline delays packets."""

from __future__ import annotations

from ckptprof.diagnose.causes import Cause, Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import due_to
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(_checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> Spent | None:
    """Return what shows it."""
    return due_to(accounts, Cause.LINK_SHAPED)


RULE = Rule(
    name="shaped",
    limits=(Limit.NETWORK,),
    applies=applies,
    exclusion="no packets are delayed",
    remedy=(
        "lift the shaping (`tc -s qdisc show dev IF`, the instance's bandwidth class), or route storage over "
        "another interface"
    ),
    reference="kernel tc-tbf(8), tc-htb(8)",
    without="without the shaping",
)
