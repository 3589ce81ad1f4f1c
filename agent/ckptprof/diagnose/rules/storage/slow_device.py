"""The device is slower than it has shown to be, or than the checkpoint needs."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import spent
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(_checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> Spent | None:
    """Return what shows it."""
    return spent(accounts, Limit.DEVICE)


RULE = Rule(
    name="slow-device",
    limits=(Limit.DEVICE,),
    applies=applies,
    exclusion="the device idles",
    remedy="save to a faster tier (local NVMe) and copy on in the background, or save asynchronously",
    remedies={
        "torch": (
            "save to a faster tier (local NVMe) and copy on in the background, or "
            "`torch.distributed.checkpoint.async_save`"
        ),
        "orbax": "save to a faster tier (local NVMe) and copy on in the background, or by Orbax `AsyncCheckpointer`",
    },
    reference="NVIDIA DGX SuperPOD storage tiers",
    remedy_of_restore=(
        "restore from a faster tier: keep the newest checkpoint on local NVMe too, or load only a rank's shards"
    ),
    remedies_of_restore={
        "torch": (
            "restore from a faster tier: keep the newest checkpoint on local NVMe too, or load only a rank's shards "
            "(DCP)"
        ),
    },
)
