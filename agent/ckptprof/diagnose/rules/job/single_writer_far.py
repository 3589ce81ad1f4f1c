"""One writer, and one connection, to a server that could take more."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import is_far, spent
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> Spent | None:
    """Return what shows it."""
    return spent(accounts, Limit.SINGLE_WRITER) if is_far(checkpoint) else None


RULE = Rule(
    name="single-writer-far",
    limits=(Limit.SINGLE_WRITER,),
    applies=applies,
    exclusion="several ranks write",
    remedy="let every rank write its shard; mount NFS with `nconnect=8`",
    remedies={
        "torch-dcp": (
            "shard the state, or spread its copies: DCP `DefaultSavePlanner()` as it is by default; "
            "mount NFS with `nconnect=8`"
        ),
        "torch": "let every rank write its shard (`torch.distributed.checkpoint.save`); mount NFS with `nconnect=8`",
    },
    reference="alpa-projects/alpa#466 (0.53 Gbit/s)",
    without="with all ranks writing",
)
