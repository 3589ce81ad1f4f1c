"""A large file on one Lustre target."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import fs_type, spent
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> Spent | None:
    """Return what shows it."""
    if fs_type(checkpoint) != "lustre":
        return None
    return spent(accounts, Limit.SERVER, Limit.NETWORK)


RULE = Rule(
    name="stripes",
    limits=(Limit.SERVER, Limit.NETWORK),
    applies=applies,
    exclusion="another file system",
    remedy="stripe the directory before the first save: `lfs setstripe -c -1 -S 16M DIR`",
    reference="ornladios/ADIOS2#4621; E3SM#4280; darshan#444",
    without="over more targets",
)
