"""A restore by mmap while memory is short: pages are fetched, dropped and fetched again."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import is_restore, pressed
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(checkpoint: Checkpoint, _accounts: tuple[Spent, ...]) -> str | None:
    """Return what shows it."""
    return pressed(checkpoint) if is_restore(checkpoint) else None


RULE = Rule(
    name="mapped-pressed",
    limits=(Limit.PAGE_FAULT,),
    applies=applies,
    exclusion="memory was available throughout",
    remedy="read() in pieces instead of mapping, and fewer ranks that load at a time",
    reference="NVIDIA/TensorRT-LLM PR#17368",
    without="read by calls",
)
