"""Several readers share one handle on FUSE: to its client their reads look random."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import fs_type, is_restore, spent
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit

LIMITS = (Limit.SMALL_IO, Limit.SERVER, Limit.NETWORK)


def applies(checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> str | None:
    """Return what shows it."""
    if not is_restore(checkpoint) or not fs_type(checkpoint).startswith("fuse") or len(checkpoint.writers) < 2:
        return None
    return f"{len(checkpoint.writers)} processes read through one FUSE mount: {spent(accounts, *LIMITS)}"


RULE = Rule(
    name="shared-handle",
    limits=LIMITS,
    applies=applies,
    exclusion="one reader for each open file",
    remedy="open the file once in each reader, not before forking; gcsfuse `--file-cache-max-size-mb`",
    reference="huggingface/diffusers#10280",
    without="with a handle each",
)
