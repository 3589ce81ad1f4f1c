"""Whose connections matter: told to the collectors, for a small share of a core, and never in the way."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.detect.tracer import activity

from ckptprof.service.sampler.socket_ownership import MIN_PAUSE_NS, SocketOwnership
from ckptprof.service.sampler.watched_process import WatchedProcess
from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.mounts.client_counters import RemoteClientReader
from ckptprof_collectors.mounts.mountinfo import MountReader
from ckptprof_collectors.networks.tcp_endpoints import TcpEndpoints
from ckptprof_collectors.processes.process import Process
from ckptprof_collectors.samples import MountInfo

SECOND = 1_000_000_000
SSHFS = MountInfo(1, 0, 41, "/", "/mnt", "fuse.sshfs", "host:/x", None, None)


class Desk:
    """The collectors of this machine, a process that trains, and a mount that is said to be there."""

    def __init__(self) -> None:
        """Look at nothing yet."""
        self.tcp, self.mounts = TcpEndpoints(KernelFs()), MountReader(KernelFs())
        self.process = Process(KernelFs(), os.getpid())
        self.connections = SocketOwnership(KernelFs(), [self.tcp, self.mounts])
        self.looked: list[Collection[MountInfo]] = []
        self.connections._daemons.find = lambda mounts, _: self.looked.append(mounts)  # type: ignore[method-assign]
        self.mounts.mounts = (SSHFS,)

    def watched(self, *, trains: bool = True, keep: bool = False) -> dict[int, WatchedProcess]:
        """Return this process as the only one that is watched."""
        one: Any = SimpleNamespace(process=self.process, is_training=trains, is_required=keep)
        return {self.process.pid: cast("WatchedProcess", one)}

    def close(self) -> None:
        """Give everything back."""
        for one in (self.tcp, self.mounts, self.process):
            one.close()


@pytest.fixture
def desk() -> Iterator[Desk]:
    """Return a desk."""
    made = Desk()
    yield made
    made.close()


def test_sockets_are_read_while_somebody_trains(desk: Desk) -> None:
    """Or is observed by `run`; else neither sockets nor mounts are looked at."""
    for trains, keep, looks in ((False, False, False), (True, False, True), (False, True, True)):
        desk.connections.follow(SECOND, desk.watched(trains=trains, keep=keep))
        assert (len(desk.tcp.owners) > 0) == looks
        assert (desk.tcp.read() is not None) == looks
        desk.tcp._next = 0.0
    assert len(desk.looked) == 1


@pytest.mark.parametrize(("device", "at_s", "looks"), [(42, 50, True), (42, 70, False), (8 << 8, 50, False)])
def test_who_moves_files_of_a_mount_may_train_without_a_library(
    desk: Desk, device: int, at_s: int, *, looks: bool
) -> None:
    """A trainer in C saves to NFS: what its client counts is read, for a minute after each save too."""
    clients = RemoteClientReader(KernelFs())
    connections = SocketOwnership(KernelFs(), [clients, desk.mounts])
    desk.mounts.mounts = (MountInfo(2, 0, 42, "/", "/ckpt", "nfs4", "far:/ckpt", "far", None),)
    connections.follow(0, desk.watched(trains=False))

    connections.record_files([activity(device=device)], SECOND)
    connections.follow(at_s * SECOND, desk.watched(trains=False))

    assert clients.is_enabled is looks
    clients.close()


def test_a_mount_that_nobody_is_found_behind_is_looked_for_ever_more_seldom(desk: Desk) -> None:
    """At once for a new one."""
    times = []
    for second in range(120):
        desk.connections.follow(second * SECOND, desk.watched())
        if len(desk.looked) > len(times):
            times.append(second)
    assert times == [0, 5, 15, 35, 75]
    desk.mounts.mounts = (SSHFS, MountInfo(2, 0, 42, "/", "/other", "fuse.rclone", "far:", None, None))
    desk.connections.follow(121 * SECOND, desk.watched())
    assert len(desk.looked) == 6
    assert MIN_PAUSE_NS == 5 * SECOND


def test_looking_takes_its_share_of_a_core(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host of ten thousand processes: 0.1 s of CPU is paid back by 50 s, however many mounts come."""
    spent = iter(range(0, 10**9, 10**8))
    monkeypatch.setattr("ckptprof.service.sampler.socket_ownership.time.thread_time_ns", lambda: next(spent))
    desk.connections.follow(SECOND, desk.watched())
    desk.mounts.mounts = (SSHFS, MountInfo(2, 0, 42, "/", "/other", "fuse.rclone", "far:", None, None))
    desk.connections.follow(50 * SECOND, desk.watched())
    assert len(desk.looked) == 1
    desk.connections.follow(52 * SECOND, desk.watched())
    assert len(desk.looked) == 2


def test_no_descriptor_left_is_survived(desk: Desk) -> None:
    """The loop of the sampler goes on."""

    def fails(*_: object) -> None:
        raise OSError(24, "Too many open files")

    desk.connections._daemons.find = fails  # type: ignore[method-assign]
    assert desk.connections.follow(SECOND, desk.watched()) == []


def test_where_sockets_cannot_be_read_nothing_is_looked_for(desk: Desk) -> None:
    """What is not there costs nothing."""
    alone = SocketOwnership(KernelFs(), [desk.mounts])
    assert alone.follow(SECOND, desk.watched()) == []
    assert desk.looked == []


def test_clients_of_mounts_are_told_what_is_mounted_and_whether_somebody_trains(desk: Desk) -> None:
    """Only then are their counters read."""
    clients = RemoteClientReader(KernelFs())
    connections = SocketOwnership(KernelFs(), [clients, desk.mounts])
    for trains in (True, False):
        connections.follow(SECOND, desk.watched(trains=trains))
        assert (clients.is_enabled, clients._mounts) == (trains, (SSHFS,))
    clients.close()
