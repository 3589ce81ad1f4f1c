"""A flush for each tensor or piece on an object store or a FUSE stream."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import fs_type, spent
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> Spent | None:
    """Return what shows it."""
    return spent(accounts, Limit.FLUSH) if fs_type(checkpoint).startswith("fuse") else None


RULE = Rule(
    name="flush-each",
    limits=(Limit.FLUSH,),
    applies=applies,
    exclusion="one flush at the end",
    remedy="drop the flush after each item: buffer 64 MB and more, and flush once at the end of the file",
    reference="pytorch/pytorch#194034 (up to 60 % of the time)",
)
