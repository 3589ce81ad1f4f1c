"""Buffered writes run into the dirty limits: a writer goes at the speed of writeback."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.sight import look, some
from ckptprof.model import Checkpoint
from ckptprof.units import seconds
from ckptprof.verdicts import Limit


def applies(checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> str | None:
    """Return what shows it."""
    paused = sum(some(one.dirty_pause_ns) for one in look(checkpoint).measures.processes) / 1e9
    whole = sum(one.seconds for one in accounts)
    return f"writers were blocked for {seconds(paused)} because too much was dirty" if paused > 0.2 * whole else None


RULE = Rule(
    name="buffered",
    limits=(Limit.DEVICE,),
    applies=applies,
    exclusion="no dirty pauses",
    remedy=(
        "a faster tier, or async saves: the device is what it waits for in the end; more vm.dirty_bytes only "
        "moves the wait"
    ),
    reference="DDN hybrid I/O; cockroachdb PR#20449",
)
