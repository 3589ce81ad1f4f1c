"""Processes whose TCP connections are collected: those that train, and those that serve FUSE mounts.

While nothing trains, neither sockets nor interface counters are read; counters of clients also while files there are.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import time
from collections.abc import Iterable, Mapping

from ckptprof.service.sampler.watched_process import WatchedProcess
from ckptprof_collectors.collector import Collector
from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.mounts.client_counters import RemoteClientReader
from ckptprof_collectors.mounts.mountinfo import MountReader
from ckptprof_collectors.networks.tcp_endpoints import TcpEndpoints
from ckptprof_collectors.networks.unix_peers import find_peers
from ckptprof_collectors.networks.wire_counters import WireReader
from ckptprof_collectors.processes.fuse_daemons import FuseDaemons
from ckptprof_collectors.processes.socket_owners import SocketOwners
from ckptprof_collectors.samples import FileActivity, FuseDaemon, Sample

MAX_OWNERS = 64
MIN_PAUSE_NS = 5_000_000_000  # after a search for the process behind a mount,
SEARCH_SHARE = 0.002  # of a core; hosts have thousands of processes
MAX_PAUSE_NS = 300_000_000_000
_NEXT_SAVE_NS = 60_000_000_000


class SocketOwnership:
    """Enables the network collectors while a process trains, and sets the processes whose sockets are read."""

    def __init__(self, fs: KernelFs, collectors: Iterable[Collector]) -> None:
        """Find the network collectors among these; any may be missing."""
        self._owners = SocketOwners()
        self._daemons = FuseDaemons(fs, find_peers)
        self._has_tcp = False
        self._mounts: MountReader | None = None
        self._wires: WireReader | None = None
        self._clients: RemoteClientReader | None = None
        for collector in collectors:
            if isinstance(collector, TcpEndpoints):
                self._has_tcp = True
                collector.owners = self._owners
            elif isinstance(collector, WireReader):
                self._wires = collector
            elif isinstance(collector, MountReader):
                self._mounts = collector
            elif isinstance(collector, RemoteClientReader):
                self._clients = collector
        self._next_ns = self._paid_ns = self._used_until_ns = 0
        self._pause_ns = MIN_PAUSE_NS
        self._unserved: set[tuple[int, int]] = set()

    def record_files(self, samples: Iterable[Sample], now_ns: int) -> None:
        """Record the files that a trace reports: who transfers them may train without a library that shows it."""
        devices = {os.makedev(*device) for device in self._clients.devices} if self._clients is not None else ()
        if devices and any(isinstance(one, FileActivity) and one.device in devices for one in samples):
            self._used_until_ns = now_ns + _NEXT_SAVE_NS

    def follow(self, now_ns: int, watched: Mapping[int, WatchedProcess]) -> list[FuseDaemon]:
        """Update the training processes; return the FUSE daemons with their CPU and memory."""
        training = [one.process for one in watched.values() if one.is_training or one.is_required]
        if self._wires is not None:
            self._wires.is_enabled = bool(training)
        if self._clients is not None and self._mounts is not None:
            self._clients.is_enabled = bool(training) or now_ns < self._used_until_ns
            self._clients.set_mounts(self._mounts.mounts)
        daemons: list[FuseDaemon] = []
        if self._has_tcp and training:
            self._find_daemons(now_ns, watched)
            daemons = self._daemons.read(mmap.PAGESIZE)
            training = [*self._daemons.processes, *training[:MAX_OWNERS]]
        self._owners.set_processes(training)
        return daemons

    def _find_daemons(self, now_ns: int, watched: Mapping[int, WatchedProcess]) -> None:
        """Find the processes behind FUSE mounts: soon for a new mount, else at growing intervals."""
        unserved = self._daemons.mounts_without_daemon(self._mounts.mounts if self._mounts is not None else ())
        keys = {(mount.major, mount.minor) for mount in unserved}
        if keys - self._unserved:
            self._next_ns, self._pause_ns = 0, MIN_PAUSE_NS
        self._unserved = keys
        if not unserved or now_ns < max(self._next_ns, self._paid_ns):
            return
        start_ns = time.thread_time_ns()
        with contextlib.suppress(OSError):  # no descriptor is left: retried later
            self._daemons.find(unserved, watched.keys())
        self._paid_ns = now_ns + int((time.thread_time_ns() - start_ns) / SEARCH_SHARE)
        self._next_ns = now_ns + self._pause_ns
        self._pause_ns = min(2 * self._pause_ns, MAX_PAUSE_NS)
