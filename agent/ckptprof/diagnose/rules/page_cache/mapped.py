"""A cold restore by mmap: page after page is faulted in, in the order in which tensors are touched."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import spent
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(_checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> Spent | None:
    """Return what shows it."""
    return spent(accounts, Limit.PAGE_FAULT)


RULE = Rule(
    name="mapped",
    limits=(Limit.PAGE_FAULT,),
    applies=applies,
    exclusion="the file is in the page cache, or read by calls",
    remedy="read it by large calls, or posix_fadvise(WILLNEED) before mapping",
    remedies={
        "safetensors": (
            'read it by large calls: `safetensors` `load(open(f, "rb").read())`, or posix_fadvise(WILLNEED) before '
            "mapping"
        ),
        "torch": "read it by large calls: `torch.load(mmap=False)`, or posix_fadvise(WILLNEED) before mapping",
    },
    reference="huggingface/safetensors#562; ComfyUI#2288 (30 to 50 times)",
    without="read by calls",
)
