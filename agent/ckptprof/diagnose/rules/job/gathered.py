"""The full state is gathered on one rank before it is written."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import spent
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(_checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> Spent | None:
    """Return what shows it."""
    return spent(accounts, Limit.GATHER)


RULE = Rule(
    name="gathered",
    limits=(Limit.GATHER,),
    applies=applies,
    exclusion="no traffic and no CPU before the first byte",
    remedy="save shards from every rank, instead of the whole state from one",
    remedies={
        "accelerate": "save shards from every rank: accelerate `fsdp_state_dict_type: SHARDED_STATE_DICT`",
        "torch-dcp": "save shards: `get_state_dict` without DCP's `StateDictOptions(full_state_dict=True)`",
        "torch": "save shards from every rank: `torch.distributed.checkpoint.save`",
    },
    reference="huggingface/accelerate#4099 (62 min at 16 ranks), PR#4105; dlrover#985",
    without="saved in shards",
)
