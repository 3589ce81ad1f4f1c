"""A save longer than the collective timeout kills the ranks that wait for it."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.sight import some
from ckptprof.model import Checkpoint
from ckptprof.units import seconds
from ckptprof.verdicts import Limit


def applies(checkpoint: Checkpoint, _accounts: tuple[Spent, ...]) -> str | None:
    """Return what shows it."""
    took = max(0, checkpoint.end_ns - checkpoint.start_ns) / 1e9
    many = some(checkpoint.ranks) >= 2
    return f"it took {seconds(took)}, and NCCL gives up after 600 s" if many and took >= 600 else None


RULE = Rule(
    name="timeout",
    limits=(Limit.UNCLEAR,),
    applies=applies,
    exclusion="shorter than ten minutes",
    remedy="raise the timeout of the collectives until the cause is found",
    remedies={
        "torch": "raise the timeout (`init_process_group(timeout=timedelta(hours=2))`) until the cause is found",
    },
    reference="DeepSpeed#7533; torchtune#2093; accelerate#2912; ai2cm/ace#851",
)
