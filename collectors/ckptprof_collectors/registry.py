"""The collectors of the whole host, in reading order. To add one, add a line."""

from __future__ import annotations

from collections.abc import Callable

from ckptprof_collectors.collector import Collector
from ckptprof_collectors.devices.block_devices import BlockDevices
from ckptprof_collectors.devices.memory import HostMemory
from ckptprof_collectors.devices.wall_clock import WallClock
from ckptprof_collectors.kernelfs import KernelFs, UnavailableError
from ckptprof_collectors.mounts.client_counters import RemoteClientReader
from ckptprof_collectors.mounts.mountinfo import MountReader
from ckptprof_collectors.networks.nics import NicReader
from ckptprof_collectors.networks.qdiscs import QdiscReader
from ckptprof_collectors.networks.rdma import RdmaPorts
from ckptprof_collectors.networks.tcp_endpoints import TcpEndpoints
from ckptprof_collectors.networks.wire_counters import WireReader
from ckptprof_collectors.samples import Unavailable

# mypy checks at each line that the class is a Collector and is made from a KernelFs alone.
COLLECTORS: tuple[tuple[str, Callable[[KernelFs], Collector]], ...] = (
    (BlockDevices.name, BlockDevices),
    (NicReader.name, NicReader),
    (QdiscReader.name, QdiscReader),
    (RdmaPorts.name, RdmaPorts),
    (WireReader.name, WireReader),
    (TcpEndpoints.name, TcpEndpoints),
    (MountReader.name, MountReader),
    (RemoteClientReader.name, RemoteClientReader),
    (HostMemory.name, HostMemory),
    (WallClock.name, WallClock),
)


def make_collectors(fs: KernelFs) -> tuple[list[Collector], list[Unavailable]]:
    """Make the collectors that work on this host; the others with the reason."""
    collectors: list[Collector] = []
    unavailable: list[Unavailable] = []
    for name, factory in COLLECTORS:
        try:
            collectors.append(factory(fs))
        except UnavailableError as error:  # noqa: PERF203 - ten turns, at start-up
            unavailable.append(Unavailable(name, str(error)))
    return collectors, unavailable
