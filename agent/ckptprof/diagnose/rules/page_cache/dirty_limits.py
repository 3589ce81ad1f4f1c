"""Writers are blocked because vm.dirty_bytes is small."""

from __future__ import annotations

from ckptprof.diagnose.causes import Cause, Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import due_to
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(_checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> Spent | None:
    """Return what shows it."""
    return due_to(accounts, Cause.DIRTY)


RULE = Rule(
    name="dirty-limits",
    limits=(Limit.PAGE_CACHE,),
    applies=applies,
    exclusion="the threshold was never reached",
    remedy=(
        "`sysctl vm.dirty_ratio=20 vm.dirty_background_ratio=10` (it resets vm.dirty_bytes), or "
        "vm.dirty_bytes above a checkpoint's size"
    ),
    reference="DDN hybrid I/O (x1.7 per thread); cockroachdb PR#20449",
    without="with the usual dirty limits",
)
