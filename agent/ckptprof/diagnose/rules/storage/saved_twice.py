"""The same data is saved twice."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import overhead
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(checkpoint: Checkpoint, _accounts: tuple[Spent, ...]) -> str | None:
    """Return what shows it."""
    return overhead(checkpoint, "duplicate", "copy")


RULE = Rule(
    name="saved-twice",
    limits=(Limit.DEVICE, Limit.NETWORK, Limit.SERVER, Limit.PAGE_CACHE, Limit.FLUSH, Limit.SERIALIZE),
    applies=applies,
    exclusion="all bytes are different",
    remedy="write it once, and give it its second name by a link; write replicated state once",
    remedies={
        "lightning": 'Lightning `ModelCheckpoint(save_last="link")`; write replicated state once',
        "transformers": "upgrade transformers (ZeRO-3 saved twice); write replicated state once",
    },
    reference='huggingface/transformers#34534; Lightning save_last="link"',
    without="written once",
)
