"""A restore from the page cache says nothing of the storage."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import is_restore
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(checkpoint: Checkpoint, _accounts: tuple[Spent, ...]) -> str | None:
    """Return what shows it."""
    if not is_restore(checkpoint) or checkpoint.cache != "warm":
        return None
    return "its bytes came from the page cache, not from storage"


RULE = Rule(
    name="warm",
    limits=(Limit.NONE,),
    applies=applies,
    exclusion="its bytes were fetched",
    remedy=(
        "to test the storage itself drop the cache first: `echo 3 > /proc/sys/vm/drop_caches`; or restore on "
        "another node"
    ),
    reference="argonne-lcf/dlio_benchmark#277",
)
