"""torch.save computes a CRC32 of each record on the writing thread."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import is_restore, stack
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(checkpoint: Checkpoint, _accounts: tuple[Spent, ...]) -> str | None:
    """Return what shows it."""
    return None if is_restore(checkpoint) else stack(checkpoint, "crc")


RULE = Rule(
    name="crc",
    limits=(Limit.SERIALIZE,),
    applies=applies,
    exclusion="the stack is in pickle or in compression",
    remedy="write no zip: one thread computes its CRC32 over all bytes",
    remedies={
        "torch": "torch.serialization.set_crc32_options(False) before torch.save",
        "numpy": "write each array by `np.save`: one thread computes the CRC32 of the zip that `np.savez` writes",
    },
    reference="pytorch torch.serialization.set_crc32_options; ServiceNow/Fast-LLM#26",
    without="with CRC off",
)
