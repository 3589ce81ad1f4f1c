"""Planning collectives: ranks agree on who writes what before the first byte."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import spent
from ckptprof.diagnose.sight import look, some
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> Spent | None:
    """Return what shows it."""
    before = look(checkpoint).measures.before
    if before is None or some(before.received_bytes) >= 0.3 * max(1, checkpoint.bytes):
        return None
    return spent(accounts, Limit.GATHER)


RULE = Rule(
    name="planning",
    limits=(Limit.GATHER,),
    applies=applies,
    exclusion="as much as the checkpoint came in over the network",
    remedy="plan once, and keep the plan while the state has the same structure",
    remedies={
        "megatron": "cache the plan: Megatron `--ckpt-assume-constant-structure`",
        "torch": "cache the plan: DCP `DefaultSavePlanner(enable_plan_caching=True)`",
    },
    reference="accelerate#4099; meta-pytorch/tnt PR#989; NVIDIA/Megatron-LM PR#2864",
    without="with a cached plan",
)
