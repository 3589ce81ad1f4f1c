"""A restore that unpickles on one thread."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import is_restore, spent
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> Spent | None:
    """Return what shows it."""
    return spent(accounts, Limit.SERIALIZE) if is_restore(checkpoint) else None


RULE = Rule(
    name="unpickling",
    limits=(Limit.SERIALIZE,),
    applies=applies,
    exclusion="the thread waits for data",
    remedy="keep arrays as raw data, a shard for each rank, and load only that; small objects packed into arrays",
    remedies={
        "torch": "keep tensors in DCP shards, and load one shard for each rank; small objects packed into tensors",
    },
    reference="pytorch: torch.load",
    without="without unpickling",
)
