"""A limit set for the cgroup or the volume slows the device."""

from __future__ import annotations

from ckptprof.diagnose.causes import Cause, Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import due_to
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(_checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> Spent | None:
    """Return what shows it."""
    return due_to(accounts, Cause.DEVICE_CAPPED, Cause.SMALL_OPERATIONS_CAPPED, Cause.DEVICE_PACED)


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
