"""One rank serialises everything while the others wait."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import spent
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(_checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> Spent | None:
    """Return what shows it."""
    return spent(accounts, Limit.SINGLE_WRITER)


RULE = Rule(
    name="single-writer",
    limits=(Limit.SINGLE_WRITER,),
    applies=applies,
    exclusion="the ranks write alike, or the device is at its limit",
    remedy="let every rank write its part",
    remedies={
        "deepspeed": (
            'let every rank write its part: DeepSpeed `"checkpoint": {"parallel_write": {"pipeline_stage": true}}`'
        ),
        "torch-dcp": "shard the state, or spread its copies: DCP `DefaultSavePlanner()` as it is by default",
        "torch": "let every rank write its part: `torch.distributed.checkpoint.save`",
    },
    reference="ServiceNow/Fast-LLM#26; microsoft/DeepSpeed PR#1419",
    without="with all ranks writing",
)
