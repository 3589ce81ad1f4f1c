"""Staging for a writer process copies everything through shared memory."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import in_background, spent
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> Spent | None:
    """Return what shows it."""
    return spent(accounts, Limit.STAGING) if in_background(checkpoint, "child", "daemon") else None


RULE = Rule(
    name="shared-memory",
    limits=(Limit.STAGING,),
    applies=applies,
    exclusion="a thread writes",
    remedy="keep the buffers in shared memory between saves; pack small arrays",
    remedies={
        "torch": (
            "keep the buffers between saves: DCP `DefaultStager(StagingOptions(use_shared_memory=True, "
            "use_pinned_memory=True))`; pack small tensors"
        ),
    },
    reference="InternLM/xtuner PR#1859",
    without="with buffers that are kept",
)
