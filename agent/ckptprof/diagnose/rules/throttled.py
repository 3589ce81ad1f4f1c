"""A limit set for the cgroup or the volume holds the device back."""

from __future__ import annotations

from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import said
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Account, Limit


def applies(_checkpoint: Checkpoint, accounts: tuple[Account, ...]) -> str | None:
    """Return what shows it."""
    return said(accounts, "held to") or said(accounts, "held back before its queue")


RULE = Rule(
    name="throttled",
    limits=(Limit.DEVICE, Limit.SMALL_IO),
    applies=applies,
    exclusion="no limit is set, and the device is busy",
    remedy=(
        "raise the limit: io.max or blkio.throttle.* of the cgroup, the container's --device-write-bps, the "
        "volume's provisioned IOPS and MB/s"
    ),
    reference="kernel Documentation/admin-guide/cgroup-v2.rst, io.max",
    without="without that limit",
)
