"""One connection to an NFS or EFS server."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import fs_type, spent
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> str | None:
    """Return what shows it."""
    if not fs_type(checkpoint).startswith("nfs") or len(checkpoint.writers) > 2:
        return None
    return f"{len(checkpoint.writers)} of its processes used one mount: {spent(accounts, Limit.SERVER, Limit.NETWORK)}"


RULE = Rule(
    name="single-stream",
    limits=(Limit.SERVER, Limit.NETWORK),
    applies=applies,
    exclusion="several clients and mounts",
    remedy="mount with `nconnect=8,rsize=1048576,wsize=1048576`, and write several files at a time",
    reference="alpa-projects/alpa#466 (0.53 Gbit/s)",
    without="over more connections",
)
