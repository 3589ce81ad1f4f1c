"""Walks with os.stat as oracle; links, users, namespaces and mounts that must not lead anywhere else."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.descriptors import held
from tests.leftovers import own
from tests.patience import LIFETIME, wait_until

from ckptprof_collectors.files.process_roots import (
    HOST_PROCESS,
    OWN_PROCESS,
    OtherDomain,
    ProcessKey,
    ProcessRoot,
    ProcessRoots,
    RootUnavailable,
)
from ckptprof_collectors.mounts.failure_domains import LOCAL
from silentfuse import silent

USER, GROUP, OTHER = 65534, 4322, 4321


def start_ticks(pid: int) -> int:
    """Return when a process began."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def key(root: ProcessRoot, path: Path | str, domain: str = LOCAL) -> tuple[int, int]:
    """Return the device and the inode at the end of a walk."""
    found = root.find(os.fsencode(path), domain)
    try:
        return found.status.device, found.status.inode
    finally:
        found.close()


def by_stat(path: Path | str) -> tuple[int, int]:
    """Return the same of os.stat."""
    status = Path(path).stat()
    return status.st_dev, status.st_ino


def line_of(point: Path) -> list[str]:
    """Return what mountinfo says of what is mounted there."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return next(line.split() for line in lines if f" {point} " in line)


@contextlib.contextmanager
def process(*prefix: str, user: int = 0, groups: tuple[int, ...] = ()) -> Iterator[int]:
    """Run a process that does nothing, and return its pid."""
    command = [*prefix, sys.executable, "-c", f"import time; print(flush=True); time.sleep({LIFETIME})"]
    if user:
        command = [*prefix, "sh", "-c", f"echo; exec sleep {LIFETIME}"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, user=user, group=user, extra_groups=groups, cwd="/"
    ) as started:
        assert started.stdout is not None
        started.stdout.readline()
        try:
            yield started.pid
        finally:
            started.kill()


@pytest.fixture
def place() -> Iterator[Path]:
    """Return a folder that every user may go to; tmp_path is closed to them."""
    made = Path(tempfile.mkdtemp(prefix=own("views-"), dir="/var/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


def test_a_walk_ends_where_stat_does(tmp_path: Path) -> None:
    """Links of both kinds, dots, slashes, above the root, the links of /proc; and it leaves no descriptor behind."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_bytes(b"1")
    (tmp_path / "relative").symlink_to("a/../a/b")
    (tmp_path / "absolute").symlink_to(tmp_path / "relative")
    (tmp_path / "loop").symlink_to("loop")
    before = held()
    with ProcessRoots().enter(OWN_PROCESS) as root:
        ends = ("", "relative", "absolute/file", "a/b/../b/", "absolute/..")
        for path in ("/", "//tmp/.", "/../..", "/dev/null", "/proc/1", *(f"{tmp_path}/{end}" for end in ends)):
            assert key(root, path) == by_stat(path), path
        for path, error in (("loop", OSError), ("none", FileNotFoundError), ("a/b/file/x", NotADirectoryError)):
            with pytest.raises(error):
                root.find(os.fsencode(tmp_path / path))
        (tmp_path / "magic").symlink_to(f"/proc/{os.getpid()}/root/etc")
        assert key(root, tmp_path / "magic") == by_stat("/etc")

    assert held() <= before


@pytest.mark.root
@pytest.mark.capabilities("SYS_PTRACE")
def test_nobody_leads_where_he_may_not_go(place: Path) -> None:
    """Neither by a link nor by a name; folders of his own, of his groups and of lists that name him are open to him."""
    for name, owner, mode in (("root", 0, 0o700), ("own", USER, 0o700), ("group", 0, 0o750), ("list", 0, 0o700)):
        (place / name / "in").mkdir(parents=True)
        os.chown(place / name, owner, GROUP)
        (place / name).chmod(mode)
    (place / "own" / "link").symlink_to(place / "root" / "in")
    os.lchown(place / "own" / "link", USER, USER)
    views = ProcessRoots()
    with process(user=USER, groups=(GROUP,)) as pid, views.enter(ProcessKey(pid, start_ticks(pid))) as root:
        assert key(root, place / "own" / "in") == by_stat(place / "own" / "in")
        assert key(root, place / "group" / "in") == by_stat(place / "group" / "in")
        for path in ("root/in", "root", "list", "own/link", "own/link/x"):
            with pytest.raises(PermissionError):
                root.find(os.fsencode(place / path))
        entries = ((0x01, 7, -1), (0x02, 5, USER), (0x04, 5, -1), (0x10, 7, -1), (0x20, 0, -1))
        acl = (2).to_bytes(4, "little")
        for tag, allowed, number in entries:
            acl += (
                tag.to_bytes(2, "little") + allowed.to_bytes(2, "little") + (number & 0xFFFFFFFF).to_bytes(4, "little")
            )
        os.setxattr(place / "list", "system.posix_acl_access", acl)
        assert key(root, place / "list" / "in") == by_stat(place / "list" / "in")
    with process(user=OTHER) as pid, views.enter(ProcessKey(pid, start_ticks(pid))) as root:
        for path in ("own/in", "group/in", "list/in"):
            with pytest.raises(PermissionError):
                root.find(os.fsencode(place / path))
    with views.enter(OWN_PROCESS) as root:  # of whoever asks no more is known than who made the link
        assert key(root, place / "root" / "in") == by_stat(place / "root" / "in")
        with pytest.raises(PermissionError):
            root.find(os.fsencode(place / "own" / "link"))


@pytest.mark.root
def test_a_link_stays_in_the_root_of_its_process(place: Path) -> None:
    """A process that lives in a folder has that for its root, whatever its links say."""
    (place / "etc").mkdir()
    (place / "link").symlink_to("/etc")
    (place / "up").symlink_to("../../../../etc")
    code = f"import os, time; os.chroot({str(place)!r}); print(flush=True); time.sleep({LIFETIME})"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as jailed:
        assert jailed.stdout is not None
        jailed.stdout.readline()
        with ProcessRoots().enter(ProcessKey(jailed.pid, start_ticks(jailed.pid))) as root:
            assert {key(root, path) for path in ("/etc", "/link", "/up", "/../etc")} == {by_stat(place / "etc")}
        jailed.kill()


@pytest.mark.root
@pytest.mark.namespaces
def test_a_process_that_has_ended_is_seen_through_who_shares_its_mounts_or_not_at_all() -> None:
    """Of one in our namespace the files are still there; those of one that had its own are gone with it."""
    views = ProcessRoots()
    with process() as pid:
        shared = views.record(pid, start_ticks(pid))
    with process("unshare", "--mount", "--fork") as parent:
        pid = int(Path(f"/proc/{parent}/task/{parent}/children").read_text().split()[0])
        private = views.record(pid, start_ticks(pid))
        with views.enter(private) as root:
            assert key(root, "/etc") == by_stat("/etc")
        os.kill(pid, 9)
    wait_until(lambda: not Path(f"/proc/{pid}").exists())

    with views.enter(shared) as root:
        assert key(root, "/etc") == by_stat("/etc")
    with pytest.raises(RootUnavailable), views.enter(private):
        pass
    with pytest.raises(RootUnavailable), views.enter(ProcessKey(os.getpid(), start_ticks(os.getpid()) + 1)):
        pass
    with views.enter(HOST_PROCESS) as root:
        assert key(root, "/proc/1") == by_stat("/proc/1")


@pytest.mark.root
@pytest.mark.fuse
def test_what_hangs_is_known_before_it_is_asked(place: Path) -> None:
    """The mount itself may be named, but nothing in it, and no link into it leads there."""
    (place / "link").symlink_to(place / "silent" / "x")
    with silent(place / "silent", USER) as mount, ProcessRoots().enter(OWN_PROCESS) as root:
        for path in ("silent", "silent/x", "link"):
            with pytest.raises(OtherDomain, match=f"fuse of user {USER}"):
                root.find(os.fsencode(place / path))
        asked = mount.asked  # none, as who asks it does not come back

        assert key(root, place / "silent", f"fuse of user {USER}") != by_stat(place)
    assert asked == 0


@pytest.mark.root
@pytest.mark.fuse
def test_a_mount_that_takes_the_number_of_another_is_not_taken_for_it(place: Path) -> None:
    """Mount and device numbers are given again at once; what was read of mounts before does not count."""
    at, views = place / "at", ProcessRoots()
    at.mkdir()

    def taken() -> bool:
        subprocess.run(["mount", "-t", "tmpfs", "none", at], check=True)
        with views.enter(OWN_PROCESS) as root:
            assert key(root, at) == by_stat(at)
            before = line_of(at)
            subprocess.run(["umount", at], check=True)
            with silent(at, USER) as mount:
                after = line_of(at)
                with pytest.raises(OtherDomain):
                    root.find(os.fsencode(at / "x"))
                assert mount.asked == 0
        return after[2] == before[2]

    wait_until(taken, "no mount took the number of the one before it")  # another test's may take it in between
