"""The way to the server is slow, beyond this host's own link."""

from __future__ import annotations

from ckptprof.diagnose.causes import Cause, Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import due_to
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(_checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> Spent | None:
    """Return what shows it."""
    return due_to(accounts, Cause.PATH)


RULE = Rule(
    name="slow-path",
    limits=(Limit.NETWORK,),
    applies=applies,
    exclusion="data is seldom on its way, or the receiver's window lets no more out",
    remedy=(
        "have the way to the server looked at (`mtr ADDRESS`, switches, limits of a node or a connection); more "
        "connections if each is limited; else local NVMe first"
    ),
    reference="kernel 05b055e89121 (tcp: instrument tcp sender limits chronographs)",
    without="on a path that does not limit it",
)
