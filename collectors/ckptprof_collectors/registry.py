"""The collectors of the whole host, in the order in which they are read. To add one: one line."""

from __future__ import annotations

from collections.abc import Callable

from ckptprof_collectors.contract import Collector
from ckptprof_collectors.devices.blockdevices import BlockDevices
from ckptprof_collectors.devices.clock import WallClock
from ckptprof_collectors.devices.memory import Memory
from ckptprof_collectors.gpus.gpudirect import GpuDirect
from ckptprof_collectors.kernelfs import KernelFs, UnavailableError
from ckptprof_collectors.mounts.clients import RemoteClients
from ckptprof_collectors.mounts.mountinfo import Mounts
from ckptprof_collectors.networks.nics import Nics
from ckptprof_collectors.networks.qdiscs import Qdiscs
from ckptprof_collectors.networks.rdma import RdmaPorts
from ckptprof_collectors.networks.tcpsockets import TcpSockets
from ckptprof_collectors.networks.wire import Wires
from ckptprof_collectors.samples import Unavailable

# mypy checks at each line that the class is a Collector and is made from a KernelFs alone.
COLLECTORS: tuple[tuple[str, Callable[[KernelFs], Collector]], ...] = (
    (BlockDevices.name, BlockDevices),
    (Nics.name, Nics),
    (Qdiscs.name, Qdiscs),
    (RdmaPorts.name, RdmaPorts),
    (Wires.name, Wires),
    (TcpSockets.name, TcpSockets),
    (Mounts.name, Mounts),
    (RemoteClients.name, RemoteClients),
    (GpuDirect.name, GpuDirect),
    (Memory.name, Memory),
    (WallClock.name, WallClock),
)


def make(fs: KernelFs) -> tuple[list[Collector], list[Unavailable]]:
    """Make the collectors that work on this host; the others with the reason."""
    collectors: list[Collector] = []
    unavailable: list[Unavailable] = []
    for name, factory in COLLECTORS:
        try:
            collectors.append(factory(fs))
        except UnavailableError as error:  # noqa: PERF203 - ten turns, at start-up
            unavailable.append(Unavailable(name, str(error)))
    return collectors, unavailable
