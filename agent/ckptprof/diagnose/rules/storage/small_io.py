"""Small or random operations straight to the device."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import spent
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(_checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> Spent | None:
    """Return what shows it."""
    return spent(accounts, Limit.SMALL_IO)


RULE = Rule(
    name="small-io",
    limits=(Limit.SMALL_IO,),
    applies=applies,
    exclusion="large requests at the device",
    remedy=(
        'write in pieces of 1 MB and more: `open(path, "wb", buffering=16 << 20)`, tensors packed into one '
        "file, no O_DIRECT for small pieces"
    ),
    reference="Darshan job summary: small accesses; huggingface/diffusers#10280",
    without="in large pieces",
    remedy_of_restore=(
        'read in pieces of 1 MB and more: `open(path, "rb", buffering=16 << 20)`, whole tensors instead of slices'
    ),
)
