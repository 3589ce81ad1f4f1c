"""Owners of sockets: /proc/PID/fd of the selected processes only."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Mapping

from ckptprof_collectors.blocking_processes import BLOCKING_PROCESSES
from ckptprof_collectors.processes.process import Process, ProcessGone

MAX_DESCRIPTORS = 4096  # of one process
MAX_CPU_SHARE = 0.01  # of a core
_SOCKET = b"socket:["


class SocketOwners:
    """Finds the owners of sockets among the selected processes; of those that share one, the oldest."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._processes: dict[tuple[int, int], Process] = {}
        self._clock = clock
        self._next_search = 0.0
        self.turn = 0  # rises when a process is added
        self.users: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return len(self._processes)

    def __contains__(self, owner: tuple[int, int]) -> bool:
        """Test whether the descriptors of (pid, start_ticks) are searched."""
        return owner in self._processes

    def set_processes(self, processes: Collection[Process]) -> None:
        now = {(one.pid, one.start_ticks): one for one in processes}
        if now.keys() != self._processes.keys():
            self.turn += 1
            self.users = frozenset(one.uid for one in now.values())
        self._processes = now

    def find(self, inodes: Collection[int]) -> Mapping[int, tuple[int, int]] | None:
        """Find (pid, start_ticks) of sockets; None: too early for another search."""
        if self._clock() < self._next_search:
            return None
        start_cpu_seconds = time.thread_time()
        links_wanted = {_SOCKET + b"%d]" % inode: inode for inode in inodes}
        found: dict[int, tuple[int, int]] = {}
        for process in sorted(self._processes.values(), key=lambda one: one.start_ticks):
            if process.pid in BLOCKING_PROCESSES:
                continue
            BLOCKING_PROCESSES.reading = process.pid
            with contextlib.suppress(OSError, ProcessGone):
                links = read_links(process.folder + b"/fd").values()
                process.check_alive()  # the links were its own, not of a process with a reused pid
                for inode in {links_wanted[link] for link in links if link in links_wanted}:
                    found.setdefault(inode, (process.pid, process.start_ticks))
        BLOCKING_PROCESSES.reading = 0
        self._next_search = self._clock() + (time.thread_time() - start_cpu_seconds) / MAX_CPU_SHARE
        return found


def read_links(folder: bytes) -> dict[bytes, bytes]:
    """Read the links of a folder of descriptors; raises OSError."""
    links = {}
    for name in os.listdir(folder)[:MAX_DESCRIPTORS]:
        with contextlib.suppress(OSError):  # closed meanwhile
            links[name] = os.readlink(folder + b"/" + name)
    return links
