"""fsync on a shared file system: the server answers late, though there is little to write."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import fs_type, is_far, spent
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> Spent | None:
    """Return what shows it."""
    if not is_far(checkpoint) or fs_type(checkpoint).startswith("fuse"):
        return None
    return spent(accounts, Limit.FLUSH)


RULE = Rule(
    name="sync-far",
    limits=(Limit.FLUSH,),
    applies=applies,
    exclusion="a local device; or large data per sync",
    remedy=(
        "fsync once per file and off the critical path, into fewer and larger files; then have the server's "
        "commit latency looked at"
    ),
    reference="LLNL/scr#449 (16 MB in 10 to 31 s)",
)
