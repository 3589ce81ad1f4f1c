"""Every rank reads the whole file."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import is_restore
from ckptprof.diagnose.sight import some
from ckptprof.model import Checkpoint
from ckptprof.units import size
from ckptprof.verdicts import Limit


def applies(checkpoint: Checkpoint, _accounts: tuple[Spent, ...]) -> str | None:
    """Return what shows it."""
    unique, whole = some(checkpoint.unique_bytes), some(checkpoint.bytes)
    if not is_restore(checkpoint) or not unique or whole < 1.5 * unique:
        return None
    return f"{size(whole)} were read of {size(unique)}: several ranks read the same"


RULE = Rule(
    name="read-by-all",
    limits=(Limit.DEVICE, Limit.NETWORK, Limit.SERVER),
    applies=applies,
    exclusion="each byte is read once",
    remedy="read once and broadcast; or load shards",
    remedies={
        "torch": (
            "read once and broadcast: DCP `StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)`; or "
            "load shards"
        ),
        "orbax": "read once and broadcast: Orbax `SingleReplicaArrayHandler`; or load shards",
    },
    reference="Lightning-AI/pytorch-lightning#21017 (20 min with 8 GPUs)",
    without="read once",
)
