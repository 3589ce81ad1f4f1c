"""Causes that the client of BeeGFS shows: connections that fell back from RDMA to TCP."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import fs_type
from ckptprof.measures import ServerMeasure
from ckptprof.model import Checkpoint
from ckptprof.units import plural
from ckptprof.verdicts import Limit

_TOLD = 4  # names of servers


def is_beegfs(checkpoint: Checkpoint) -> bool:
    """Whether its files are on BeeGFS."""
    return fs_type(checkpoint) == "beegfs"


def _connections(one: ServerMeasure, kind: str) -> int:
    return max(0, (one.gauges or {}).get(f"{kind}_connections", 0))


def _fell_back(checkpoint: Checkpoint, _accounts: tuple[Spent, ...]) -> str | None:
    """Say which servers are reached over TCP, though this client has RDMA."""
    mount = checkpoint.measures.mount if checkpoint.measures is not None else None
    if mount is None:
        return None
    settings = mount.settings or {}
    over_rdma = any(_connections(one, "rdma") for one in mount.per_server)
    if settings.get("connUseRDMA") != 1 or not (over_rdma or settings.get("rdma_interfaces", 0) > 0):
        return None
    found = [one for one in mount.per_server if _connections(one, "tcp") and not _connections(one, "rdma")]
    if not found:
        return None
    servers = ", ".join(one.name for one in found[:_TOLD]) + ("" if len(found) <= _TOLD else ", ...")
    return f"{plural(len(found), 'storage server')} reached over TCP, though this client has RDMA: {servers}"


# RDMA was there, and the client went on over TCP.
RDMA_FALLBACK = Rule(
    name="rdma-fallback",
    limits=(Limit.NETWORK, Limit.SERVER),
    when=is_beegfs,
    words=_fell_back,
    exclusion="all storage servers are reached over RDMA, or this client has none",
    remedy=(
        "look at RDMA to these servers (`ibstat`, `rping`), and at `connRDMAInterfacesFile` of both; with "
        "`connTCPFallbackEnabled = false` it fails instead of being slow"
    ),
    reference="BeeGFS documentation, RDMA support: connTCPFallbackEnabled",
    without="over RDMA",
)
