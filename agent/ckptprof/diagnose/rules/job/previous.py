"""The save before has not ended when the next is due."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.model import Checkpoint
from ckptprof.units import seconds
from ckptprof.verdicts import Limit


def applies(checkpoint: Checkpoint, _accounts: tuple[Spent, ...]) -> str | None:
    """Return what shows it."""
    return f"a save took {seconds(max(0, checkpoint.end_ns - checkpoint.start_ns) / 1e9)}, and the next was due"


RULE = Rule(
    name="previous",
    limits=(Limit.PREVIOUS_SAVE,),
    applies=applies,
    exclusion="a pause between two saves",
    remedy="save less often than a save takes: `ckptprof plan` names the interval; or make the save itself faster",
    reference="Orbax blocking_wait_prev_duration_secs; google/orbax#392",
)
