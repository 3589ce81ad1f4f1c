"""Who serves a FUSE mount: by the descriptor of /dev/fuse, by name, and with whom it has speak for it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest
from tests.collectors.processes.processtree import STAT, ProcessTree

from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.mounts.mountinfo import MountReader
from ckptprof_collectors.networks.unix_peers import find_peers
from ckptprof_collectors.processes.fuse_daemons import FuseDaemons, daemon_names
from ckptprof_collectors.samples import FuseDaemon, MountInfo

sys.path.append(str(Path(__file__).resolve().parents[2]))
from silentfuse import silent

PAGE = 4096


def nobody(_: Collection[int]) -> Mapping[int, int]:
    """Know of no other end."""
    return {}


def mount(minor: int, fs_type: str = "fuse.sshfs", source: str = "host:/x", point: str = "/mnt/a") -> MountInfo:
    """Return a mount."""
    return MountInfo(minor, 0, minor, "/", point, fs_type, source, None, None)


def found(daemons: FuseDaemons, *mounts: MountInfo, moving: Collection[int] = ()) -> list[FuseDaemon]:
    """Return who was found behind some mounts."""
    lacking = daemons.mounts_without_daemon(mounts)
    daemons.find(lacking, moving)
    return daemons.read(PAGE)


@pytest.fixture
def tree(tmp_path: Path) -> ProcessTree:
    """Return a /proc."""
    return ProcessTree(tmp_path)


def test_the_kernel_says_which_mount_a_descriptor_is_of(tree: ProcessTree) -> None:
    """Of two mounts by one program; who serves one that is not asked for is nobody's."""
    tree.process(50, "sshfs", "/dev/fuse", connection=60)
    tree.process(51, "sshfs", "/dev/fuse", connection=61)
    tree.process(52, "bash", "/dev/null")
    daemons = FuseDaemons(tree.fs, nobody)

    told = found(daemons, mount(61), mount(62, point="/mnt/b"))
    assert told == [FuseDaemon(0, 61, "sshfs", ((51, 510),), 6)]
    assert [one.minor for one in daemons.mounts_without_daemon([mount(61), mount(62)])] == [62]
    assert [one.pid for one in daemons.processes] == [51]


def test_an_older_kernel_leaves_it_to_names_and_arguments(tree: ProcessTree) -> None:
    """One mount of that name is its; of two that it names; else nobody knows."""
    tree.process(50, "sshfs", "/dev/fuse", arguments="sshfs host:/y /mnt/b")
    assert found(FuseDaemons(tree.fs, nobody), mount(60))[0].minor == 60
    pair = mount(60), mount(61, point="/mnt/b")
    assert found(FuseDaemons(tree.fs, nobody), *pair)[0].minor == 61
    other = mount(60), mount(61, point="/mnt/c")
    assert found(FuseDaemons(tree.fs, nobody), *other) == []


def test_who_moves_bytes_is_looked_at_whatever_its_name_is(tree: ProcessTree) -> None:
    """A file system of somebody's own."""
    tree.process(50, "python3", "/dev/fuse", connection=60)
    ours = mount(60, "fuse.mine", "mine")
    assert found(FuseDaemons(tree.fs, nobody), ours) == []
    assert found(FuseDaemons(tree.fs, nobody), ours, moving=[50])[0].name == "python3"


def test_those_who_speak_for_it_are_told_with_it(tree: ProcessTree) -> None:
    """Its children, and who has the other end of its sockets as standard input, as ssh has of sshfs."""
    tree.process(50, "sshfs", "/dev/fuse", "socket:[100]", "socket:[300]", connection=60, children="70 ")
    tree.process(60, "ssh", "socket:[101]", ticks=40)
    tree.process(61, "ssh", "socket:[102]")
    tree.process(70, "helper")
    asked: list[Collection[int]] = []

    def ends(inodes: Collection[int]) -> Mapping[int, int]:
        asked.append(set(inodes))
        return {100: 101}

    (told,) = found(FuseDaemons(tree.fs, ends), mount(60))
    assert told.processes == ((50, 500), (70, 700), (60, 600))
    assert told.cpu_ticks == 6 + 6 + 41
    assert asked == [{100, 300}]


def test_what_it_uses_is_told_when_it_changes_and_its_end_is_noticed(tree: ProcessTree) -> None:
    """Then it is looked for again."""
    tree.process(50, "sshfs", "/dev/fuse", connection=60)
    daemons = FuseDaemons(tree.fs, nobody)
    found(daemons, mount(60))
    assert daemons.read(PAGE) == []
    (tree.proc / "50/stat").write_text(STAT.format(pid=50, comm="sshfs", user=90, system=1, start=500))
    (now,) = daemons.read(PAGE)
    assert now.cpu_ticks == 91
    shutil.rmtree(tree.proc / "50")
    assert daemons.read(PAGE) == []
    assert daemons.mounts_without_daemon([mount(60)]) == [mount(60)]
    assert daemons.processes == []


def test_only_mounts_that_a_process_may_serve_are_looked_for(tree: ProcessTree) -> None:
    """Not of a hypervisor, nor on a disk; a mount that is gone is forgotten."""
    disk = MountInfo(8, 8, 1, "/", "/", "fuseblk", "/dev/sda1", "sda1", None)
    daemons = FuseDaemons(tree.fs, nobody)
    assert daemons.mounts_without_daemon([disk, mount(9, "virtiofs", "tag"), mount(10, "ext4", "/dev/vda")]) == []
    tree.process(50, "sshfs", "/dev/fuse", connection=60)
    found(daemons, mount(60))
    assert daemons.mounts_without_daemon([]) == []
    assert daemons.processes == []


def test_names_are_those_of_the_programs() -> None:
    """As far as the mount says them; of a long one the kernel keeps 15 bytes."""
    assert daemon_names(mount(1, "fuse.JuiceFS")) == {b"JuiceFS", b"juicefs"}
    assert b"mount-s3" in daemon_names(mount(1, "fuse", "mountpoint-s3"))
    assert daemon_names(mount(1, "fuse.a-very-long-name-of-it")) == {b"a-very-long-nam"}
    assert daemon_names(mount(1, "fuse", "")) == frozenset()


def test_hostile_files_are_survived(tree: ProcessTree) -> None:
    """Names and numbers that make no sense: what cannot be a mount is as if it were not said."""
    tree.process(50, "sshfs", "/dev/fuse", "socket:[x]", "socket:[" + "9" * 30 + "]", children="-1 x 99999999 ")
    (tree.proc / "50/fdinfo/0").write_bytes(b"fuse_connection:\t" + b"9" * 40 + b"\n\xff")
    assert found(FuseDaemons(tree.fs, find_peers), mount(60))[0].processes == ((50, 500),)
    (tree.proc / "50/fdinfo/0").write_bytes(b"fuse_connection:\t4294967295\n")
    assert found(FuseDaemons(tree.fs, find_peers), mount(60)) == []
    (tree.proc / "50/stat").write_bytes(b"garbage")
    assert found(FuseDaemons(tree.fs, find_peers), mount(60)) == []


def test_the_other_end_of_a_local_socket_is_known() -> None:
    """Of a pair, in both directions; other sockets have none."""
    ours, theirs = socket.socketpair()
    with ours, theirs, socket.socket() as far:
        inodes = [os.fstat(one.fileno()).st_ino for one in (ours, theirs, far)]
        assert find_peers(inodes) == {inodes[0]: inodes[1], inodes[1]: inodes[0]}
    assert find_peers([]) == {}


@pytest.mark.root
@pytest.mark.fuse
def test_the_server_of_a_mount_that_hangs_is_found_without_a_touch(tmp_path: Path) -> None:
    """The file system is never asked, so that nobody hangs."""
    with silent(tmp_path / "place") as made:
        pid = made._server.pid
        mounts = MountReader(KernelFs())
        mounts.read()
        (ours,) = [one for one in mounts.mounts if one.mount_point == str(made.place)]
        told = found(FuseDaemons(KernelFs(), find_peers), ours, moving=[pid])
        mounts.close()
        assert made.asked == 0
    if told:  # since 6.16 the kernel says it
        assert told[0].processes[0][0] == pid


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.fuse
@pytest.mark.programs("sshfs", "socat")
def test_sshfs_and_its_ssh_are_found(tmp_path: Path) -> None:
    """One that speaks for itself, and one that has `ssh` speak for it, which here is a program that copies."""
    behind, place = tmp_path / "behind", tmp_path / "place"
    behind.mkdir()
    place.mkdir()
    speaks = tmp_path / "speaks"
    speaks.write_text("#!/bin/sh\nexec socat STDIO EXEC:/usr/lib/openssh/sftp-server\n")
    speaks.chmod(0o755)
    subprocess.run(["sshfs", f"host:{behind}", place, "-o", f"ssh_command={speaks}"], check=True)
    try:
        mounts = MountReader(KernelFs())
        mounts.read()
        (ours,) = [one for one in mounts.mounts if one.mount_point == str(place)]
        (told,) = found(FuseDaemons(KernelFs(), find_peers), ours)
        mounts.close()
        comms = [Path(f"/proc/{pid}/comm").read_text().strip() for pid, _ in told.processes]
    finally:
        subprocess.run(["fusermount3", "-u", place], check=False)
    assert (told.name, comms) == ("sshfs", ["sshfs", "socat"])
