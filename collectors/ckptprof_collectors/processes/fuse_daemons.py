"""Daemons of FUSE mounts: the process that has /dev/fuse open for it, and its helpers with network connections.

A newer kernel shows in /proc/PID/fdinfo the mount of a descriptor of /dev/fuse (`fuse_connection`, since 6.16); else
the name of the process decides, and its arguments if several have the same name. Candidates are processes with the name
of the mount's type, and active ones. sshfs connects through `ssh`, whose standard input is the other end of a pair of
sockets.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from ckptprof_collectors.blocking_processes import BLOCKING_PROCESSES
from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.mounts.mountinfo import is_fuse
from ckptprof_collectors.mounts.remote_servers import fuse_program
from ckptprof_collectors.processes.process import Process, ProcessGone, list_pids
from ckptprof_collectors.processes.socket_owners import read_links
from ckptprof_collectors.samples import FuseDaemon, MountInfo, text

MAX_SCANNED = 64  # processes whose descriptors are read in one search
MAX_HELPERS = 8
_DEVICE = b"/dev/fuse"
_CONNECTION = re.compile(rb"^fuse_connection:\s*(\d{1,10})$", re.MULTILINE)
_SOCKET = re.compile(rb"socket:\[(\d{1,20})\]$")
_MINOR_BITS = 20  # include/linux/kdev_t.h
_COMM_BYTES = 15
_PID_DIGITS = 10
_OTHER_NAMES = {"mountpoint-s3": "mount-s3"}  # name in the mount -> name of the process
PeerFinder = Callable[[Collection[int]], Mapping[int, int]]


def daemon_names(mount: MountInfo) -> frozenset[bytes]:
    """Possible names of the process: `fuse.sshfs` is served by sshfs; a plain `fuse` may name it in the source."""
    name = fuse_program(mount.fs_type, mount.source)
    words = {name, name.lower(), _OTHER_NAMES.get(name, name)} - {""}
    return frozenset(word.encode()[:_COMM_BYTES] for word in words)


class FuseDaemons:
    """Finds the processes behind FUSE mounts, each once, and reads what they use."""

    def __init__(self, fs: KernelFs, peers: PeerFinder) -> None:
        """`peers` returns the inodes of the other ends of local sockets."""
        self._fs = fs
        self._peers = peers
        self._found: dict[tuple[int, int], tuple[list[Process], FuseDaemon]] = {}  # by mount; its server is the first

    @property
    def processes(self) -> list[Process]:
        return [process for processes, _ in self._found.values() for process in processes]

    def read(self, page_bytes: int) -> list[FuseDaemon]:
        """Sample the daemons that used CPU since the last call; ended ones are forgotten."""
        changed = []
        for key, (processes, daemon) in list(self._found.items()):
            if any(process.pid in BLOCKING_PROCESSES for process in processes):
                continue
            ticks = 0
            try:
                for process in processes:
                    BLOCKING_PROCESSES.reading = process.pid
                    process.read_stat(page_bytes)
                    ticks += process.stat.user_ticks + process.stat.system_ticks if process.stat is not None else 0
            except (ProcessGone, OSError):
                del self._found[key]
                continue
            BLOCKING_PROCESSES.reading = 0
            if ticks != daemon.cpu_ticks:
                changed.append(msgspec.structs.replace(daemon, cpu_ticks=ticks))
                self._found[key] = (processes, changed[-1])
        return changed

    def mounts_without_daemon(self, mounts: Iterable[MountInfo]) -> list[MountInfo]:
        """Mounts without a known daemon; removed mounts are forgotten."""
        served = {(one.major, one.minor): one for one in mounts if is_fuse(one.fs_type.encode()) and not one.device}
        self._found = {key: found for key, found in self._found.items() if key in served}
        return [mount for key, mount in served.items() if key not in self._found and mount.fs_type != "virtiofs"]

    def find(self, mounts: Collection[MountInfo], active_pids: Collection[int]) -> None:
        """Find the daemons of these mounts, as far as permitted, also among `active_pids`; raises OSError."""
        named = [(mount, daemon_names(mount)) for mount in mounts]
        every = frozenset(name for _, names in named for name in names)
        pids = list_pids(self._fs)
        comms = {pid: comm for pid in pids if pid not in BLOCKING_PROCESSES and (comm := self._comm(pid)) is not None}
        candidates = [pid for pid, comm in comms.items() if comm in every]
        candidates += [pid for pid in active_pids if pid in comms and pid not in candidates]
        for pid in candidates[:MAX_SCANNED]:
            BLOCKING_PROCESSES.reading = pid
            links = self._links(pid)
            for fd in [fd for fd, link in links.items() if link == _DEVICE]:
                mount = self._find_mount(pid, fd, comms[pid], named)
                if mount is not None and (mount.major, mount.minor) not in self._found:
                    self._add_daemon(mount, pid, links, pids)
        BLOCKING_PROCESSES.reading = 0

    def _find_mount(
        self, pid: int, fd: bytes, comm: bytes, named: list[tuple[MountInfo, frozenset[bytes]]]
    ) -> MountInfo | None:
        connection = _CONNECTION.search(self._read(b"%d/fdinfo/%s" % (pid, fd)))
        if connection is not None:
            return next((one for one, _ in named if one.major << _MINOR_BITS | one.minor == int(connection[1])), None)
        alike = [mount for mount, names in named if comm in names]
        if len(alike) > 1:
            arguments = self._read(b"%d/cmdline" % pid).split(b"\0")
            alike = [mount for mount in alike if mount.mount_point.encode() in arguments]
        return alike[0] if len(alike) == 1 else None

    def _add_daemon(self, mount: MountInfo, pid: int, links: Mapping[bytes, bytes], pids: Collection[int]) -> None:
        processes: list[Process] = []
        for one in (pid, *self._helpers(pid, links, pids)):
            with contextlib.suppress(OSError, ProcessGone):
                processes.append(Process(self._fs, one, keeps_open=False))
        if processes and processes[0].pid == pid:
            name = text(self._comm(pid) or b"")
            served_by = tuple((one.pid, one.start_ticks) for one in processes)
            self._found[mount.major, mount.minor] = (
                processes,
                FuseDaemon(mount.major, mount.minor, name, served_by),
            )

    def _helpers(self, pid: int, links: Mapping[bytes, bytes], pids: Collection[int]) -> list[int]:
        """Children of a process, and the peers of its sockets that are a process's standard input."""
        children = self._read(b"%d/task/%d/children" % (pid, pid)).split()
        found = dict.fromkeys(int(child) for child in children if child.isdigit() and len(child) <= _PID_DIGITS)
        own = {int(socket[1]) for link in links.values() if (socket := _SOCKET.match(link)) is not None}
        ends = {b"socket:[%d]" % peer for peer in self._peers(own).values()}
        if ends:
            found.update((one, None) for one in pids if one != pid and self._input(one) in ends)
        return list(found)[:MAX_HELPERS]

    def _input(self, pid: int) -> bytes:
        try:
            return os.readlink(os.fsencode(self._fs.proc) + b"/%d/fd/0" % pid)
        except OSError:
            return b""

    def _links(self, pid: int) -> dict[bytes, bytes]:
        try:
            return read_links(os.fsencode(self._fs.proc) + b"/%d/fd" % pid)
        except OSError:
            return {}

    def _comm(self, pid: int) -> bytes | None:
        return self._read(b"%d/comm" % pid).rstrip(b"\n") or None

    def _read(self, name: bytes) -> bytes:
        try:
            with open(os.fsencode(self._fs.proc) + b"/" + name, "rb", buffering=0) as file:
                return file.read(1 << 16)
        except OSError:
            return b""
