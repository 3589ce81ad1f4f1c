"""Staged in a temporary directory and copied from there: everything is written twice."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import overhead
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(checkpoint: Checkpoint, _accounts: tuple[Spent, ...]) -> str | None:
    """Return what shows it."""
    return overhead(checkpoint, "staging", "consolidation")


RULE = Rule(
    name="staging-copy",
    limits=(Limit.DEVICE, Limit.NETWORK, Limit.SERVER, Limit.PAGE_CACHE, Limit.FLUSH, Limit.SERIALIZE),
    applies=applies,
    exclusion="as many bytes written as the checkpoint has",
    remedy="set TMPDIR to a directory on the target file system, so that a rename takes the place of the copy",
    reference="Lightning-AI/pytorch-lightning#21253 and #20270",
    without="written once",
)
