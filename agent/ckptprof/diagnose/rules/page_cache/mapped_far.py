"""A restore by mmap on a network file system: each page fault is a small read over the network."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import is_far, spent
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> Spent | None:
    """Return what shows it."""
    return spent(accounts, Limit.PAGE_FAULT) if is_far(checkpoint) else None


RULE = Rule(
    name="mapped-far",
    limits=(Limit.PAGE_FAULT,),
    applies=applies,
    exclusion="reads by calls, or few major faults",
    remedy="read by large calls instead of mapping; or copy to local NVMe first",
    remedies={
        "safetensors": (
            'read instead of mapping: `safetensors` `load(open(f, "rb").read())`; or copy to local NVMe first'
        ),
        "torch": "read instead of mapping: `torch.load(mmap=False)`; or copy to local NVMe first",
    },
    reference="sglang PR#37806 (29 MB/s mapped; 756 GB in 42.6 s prefetched); safetensors#562; vllm PR#24469",
    without="read by calls",
)
