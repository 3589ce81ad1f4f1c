"""A writing thread, and others of its process that run Python: they fight for the interpreter's lock."""

from __future__ import annotations

from ckptprof.diagnose.causes import Cause, Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import in_background, is_restore, spent
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> str | None:
    """Return what shows it."""
    largest = spent(accounts, Limit.SERIALIZE)
    if is_restore(checkpoint):
        return None
    if largest is not None and largest.cause is Cause.LOCK:
        return "one core for all threads of a process is what Python's interpreter lock (GIL) allows"
    if not in_background(checkpoint, "thread"):
        return None
    return f"a thread of the trainer's own process wrote: {largest}"


RULE = Rule(
    name="gil",
    limits=(Limit.SERIALIZE,),
    applies=applies,
    exclusion="another process writes",
    remedy="write in another process: a thread of the trainer shares Python's interpreter lock with it",
    remedies={
        "torch": (
            "write in a process: "
            "`torch.distributed.checkpoint.async_save(async_checkpointer_type=AsyncCheckpointerType.PROCESS)`"
        ),
    },
    reference="pytorch/pytorch PR#147039; pytorch/torchtitan PR#3393",
)
