"""Directories and files made by all ranks at once: a storm of metadata."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import spent
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> str | None:
    """Return what shows it."""
    ranks = len({one.rank for one in checkpoint.writers if one.rank is not None})
    return f"{ranks} ranks: {spent(accounts, Limit.METADATA)}" if ranks >= 2 else None


RULE = Rule(
    name="many-files-ranks",
    limits=(Limit.METADATA,),
    applies=applies,
    exclusion="one rank makes them",
    remedy="create directories on rank 0 only, then a barrier; fewer files: one for each rank",
    reference="NVIDIA-NeMo/Automodel PR#3369; KempnerForge#49",
)
