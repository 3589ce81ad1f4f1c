"""Staging fills the host's memory."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import pressed
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(checkpoint: Checkpoint, _accounts: tuple[Spent, ...]) -> str | None:
    """Return what shows it."""
    return pressed(checkpoint)


RULE = Rule(
    name="staging-memory",
    limits=(Limit.STAGING,),
    applies=applies,
    exclusion="memory was available throughout",
    remedy="stage in waves: smaller buckets, one checkpoint in flight at a time; pinned buffers that are kept",
    reference="radixark/Megatron-LM PR#61; marin#6774 (26 GB per host and save); NeMo Speech#14965",
    without="staged in waves",
)
