"""Causes of a disk behind a fabric (NVMe over TCP, RDMA or Fibre Channel): its paths, and its target."""

from __future__ import annotations

from ckptprof.diagnose.accounts.nvme_paths import detours, paths_of, place, trouble
from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.sight import look
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def _is_behind_fabric(checkpoint: Checkpoint) -> bool:
    return bool(paths_of(look(checkpoint)))


def _lost(checkpoint: Checkpoint, _accounts: tuple[Spent, ...]) -> str | None:
    return trouble(look(checkpoint))


def _detour(checkpoint: Checkpoint, _accounts: tuple[Spent, ...]) -> str | None:
    """Say which paths were used that the target does not call optimized."""
    found = detours(look(checkpoint))
    if not found:
        return None
    told = ", ".join(f"{one.device} to {place(one)}, which its target calls {one.ana_state}" for one in found)
    return f"it went over {told}"


# A path left `live` during the save: its requests wait until it comes back, or another one takes them.
PATH_LOST = Rule(
    name="nvme-path-lost",
    limits=(Limit.NETWORK, Limit.SERVER),
    words=_lost,
    exclusion="all paths were live throughout",
    remedy=(
        "look at that path (`nvme list-subsys`): its port, switch and target; a second path to the namespace; in "
        "`nvme connect` a shorter `--keep-alive-tmo`, `--reconnect-delay`"
    ),
    reference="nvme-connect(1); kernel drivers/nvme/host/multipath.c",
    without="with its paths live",
)

# The target gives access over another of its nodes, and says that this is not its best.
DETOUR = Rule(
    name="nvme-not-optimized",
    limits=(Limit.NETWORK, Limit.SERVER),
    words=_detour,
    exclusion="all that is used is optimized",
    remedy=(
        "bring an optimized path back (`nvme list-subsys`, `nvme ana-log`), or have the volume moved to the node of "
        "the target that this host reaches"
    ),
    reference="NVM Express Base Specification, Asymmetric Namespace Access; kernel drivers/nvme/host/multipath.c",
    without="over an optimized path",
)

# The target answers late, or does not take the bytes.
TARGET = Rule(
    name="nvme-target",
    limits=(Limit.SERVER,),
    when=_is_behind_fabric,
    exclusion="a request takes not much longer than a round, or the link is full",
    remedy=(
        "have the target looked at: its drives, its CPUs, what other hosts do there, a limit of the volume; with more "
        "`--nr-io-queues` if it has room; else local NVMe first"
    ),
    reference="nvme-connect(1); kernel Documentation/admin-guide/iostats.rst",
)
