"""One thread serialises: it is at 100 % of a core while the device idles."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import spent
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(_checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> Spent | None:
    """Return what shows it."""
    return spent(accounts, Limit.SERIALIZE)


RULE = Rule(
    name="single-thread",
    limits=(Limit.SERIALIZE,),
    applies=applies,
    exclusion="the device is busy, or several threads write",
    remedy=(
        "write parts of it with several threads or processes; leave out checksums and compression that nobody needs"
    ),
    remedies={
        "torch-dcp": "write with more threads: DCP `FileSystemWriter(path, thread_count=8)`",
        "torch": (
            "`torch.serialization.set_crc32_options(False)` before torch.save; or with more threads: DCP "
            "`FileSystemWriter(path, thread_count=8)`"
        ),
        "numpy": (
            "write parts of it with several threads or processes; `np.save` for each array: a zip (`np.savez`) has a "
            "CRC32 to compute"
        ),
    },
    reference="ServiceNow/Fast-LLM#26; microsoft/DeepSpeed PR#1419",
)
