"""Owners of sockets: by the descriptors of those that matter."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.processes.process import Process
from ckptprof_collectors.processes.socket_owners import SocketOwners


def inode(end: socket.socket) -> int:
    """Return the inode of a socket."""
    return os.fstat(end.fileno()).st_ino


def test_a_socket_is_that_of_the_process_that_has_it() -> None:
    """Of this one, and of nobody else who is asked for."""
    this = Process(KernelFs(), os.getpid())
    owners = SocketOwners()
    owners.set_processes([this])
    with socket.socket() as one:
        assert owners.find([inode(one), 1]) == {inode(one): (this.pid, this.start_ticks)}
    this.close()
    assert (len(owners), owners.users, owners.turn) == (1, {os.geteuid()}, 1)


def test_of_those_that_share_it_the_oldest_has_it() -> None:
    """A worker that was forked off has the sockets of its parent."""
    with socket.socket() as one:
        one.set_inheritable(True)
        waits = [sys.executable, "-c", "input()"]
        with subprocess.Popen(waits, close_fds=False, stdin=subprocess.PIPE) as child:
            this, other = (Process(KernelFs(), pid) for pid in (os.getpid(), child.pid))
            owners = SocketOwners()
            owners.set_processes([other])
            assert owners.find([inode(one)]) == {inode(one): (other.pid, other.start_ticks)}
            owners = SocketOwners()
            owners.set_processes([other, this])
            assert owners.find([inode(one)]) == {inode(one): (this.pid, this.start_ticks)}
            this.close()
            other.close()
            child.communicate(b"\n")


def test_looking_for_them_has_its_share_of_a_core() -> None:
    """Too early is not the same as nobody."""
    now = [0.0]
    this = Process(KernelFs(), os.getpid())
    owners = SocketOwners(clock=lambda: now[0])
    owners.set_processes([this])
    assert owners.find([1]) == {}
    assert owners.find([1]) is None
    now[0] += 100
    assert owners.find([1]) == {}
    turn = owners.turn
    owners.set_processes([this])
    assert owners.turn == turn
    this.close()
    assert owners.find([1]) is None


def test_a_process_that_ended_has_nothing(tmp_path: Path) -> None:
    """Nor one whose descriptors may not be seen."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, cwd=tmp_path) as child:
        ended = Process(KernelFs(), child.pid)
        child.communicate(b"\n")
    owners = SocketOwners()
    owners.set_processes([ended])
    assert owners.find([1]) == {}
    ended.close()
