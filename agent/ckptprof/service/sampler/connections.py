"""Whose TCP connections matter: those of processes that train, and of those that serve FUSE mounts for them.

While nothing trains, neither sockets nor the wires of interfaces are asked for.
"""

from __future__ import annotations

import contextlib
import mmap
import time
from collections.abc import Iterable, Mapping

from ckptprof.service.sampler.watching import Watching
from ckptprof_collectors.contract import Collector
from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.mounts.clients import RemoteClients
from ckptprof_collectors.mounts.mountinfo import Mounts
from ckptprof_collectors.networks.tcpsockets import TcpSockets
from ckptprof_collectors.networks.unixpeers import peers
from ckptprof_collectors.networks.wire import Wires
from ckptprof_collectors.processes.fusedaemons import FuseDaemons
from ckptprof_collectors.processes.socketowners import SocketOwners
from ckptprof_collectors.samples import FuseDaemon

MAX_OWNERS = 64
AGAIN_NS = 5_000_000_000  # after a look for the process behind a mount,
SHARE = 0.002  # of a core; hosts have thousands of processes
_PROGRESSION = 2  # each pause is so many times as long as the one before
MAX_PAUSE_NS = 300_000_000_000


class Connections:
    """Tells the collectors of connections whether anybody trains, and who may have a socket."""

    def __init__(self, fs: KernelFs, collectors: Iterable[Collector]) -> None:
        """Find the collectors among these; where they are not there, nothing is done."""
        self._owners = SocketOwners()
        self._daemons = FuseDaemons(fs, peers)
        self._has_tcp = False
        self._mounts: Mounts | None = None
        self._wires: Wires | None = None
        self._clients: RemoteClients | None = None
        for collector in collectors:
            if isinstance(collector, TcpSockets):
                self._has_tcp = True
                collector.owners = self._owners
            elif isinstance(collector, Wires):
                self._wires = collector
            elif isinstance(collector, Mounts):
                self._mounts = collector
            elif isinstance(collector, RemoteClients):
                self._clients = collector
        self._next_ns = self._paid_ns = 0
        self._pause_ns = AGAIN_NS
        self._lacking: set[tuple[int, int]] = set()

    def follow(self, now_ns: int, watched: Mapping[int, Watching]) -> list[FuseDaemon]:
        """Take note of who trains now; return who serves a mount, and what that takes."""
        training = [one.process for one in watched.values() if one.trains or one.keep]
        if self._wires is not None:
            self._wires.wanted = bool(training)
        if self._clients is not None and self._mounts is not None:
            self._clients.wanted = bool(training)
            self._clients.follow(self._mounts.mounts)
        told: list[FuseDaemon] = []
        if self._has_tcp and training:
            self._find(now_ns, watched)
            told = self._daemons.read(mmap.PAGESIZE)
            training = [*self._daemons.processes, *training[:MAX_OWNERS]]
        self._owners.ask(training)
        return told

    def _find(self, now_ns: int, watched: Mapping[int, Watching]) -> None:
        """Look for the processes behind FUSE mounts that have none yet: soon for a new mount, else ever more seldom."""
        lacking = self._daemons.lacking(self._mounts.mounts if self._mounts is not None else ())
        keys = {(mount.major, mount.minor) for mount in lacking}
        if keys - self._lacking:
            self._next_ns, self._pause_ns = 0, AGAIN_NS
        self._lacking = keys
        if not lacking or now_ns < max(self._next_ns, self._paid_ns):
            return
        began = time.thread_time_ns()
        with contextlib.suppress(OSError):  # no descriptor is left: it is tried again
            self._daemons.look(lacking, watched.keys())
        self._paid_ns = now_ns + int((time.thread_time_ns() - began) / SHARE)
        self._next_ns = now_ns + self._pause_ns
        self._pause_ns = min(_PROGRESSION * self._pause_ns, MAX_PAUSE_NS)
