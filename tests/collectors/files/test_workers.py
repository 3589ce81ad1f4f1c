"""What hangs holds up itself only: failure domains by mountinfo, bounded threads, a FUSE mount that stands still."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckptprof_collectors.files.facts import FactFinder, Question
from ckptprof_collectors.files.workers import MAX_THREADS, WorkerPool
from ckptprof_collectors.mounts.failuredomains import LOCAL, FailureDomains, domain_of_mount, longest
from ckptprof_collectors.mounts.mountinfo import parse

MOUNTINFO = b"""\
20 1 8:1 / / rw - ext4 /dev/sda1 rw
21 20 0:40 / /home rw - nfs4 nas:/home rw
22 20 0:41 / /data rw - nfs4 nas:/data rw
23 20 0:42 / /mnt/a rw - fuse.sshfs me@login:/a rw
24 20 0:43 / /mnt/b rw - fuse.sshfs me@login:/b rw
25 20 0:44 / /shm rw - tmpfs tmpfs rw
26 21 8:2 / /home/local rw - xfs /dev/sdb rw
27 20 0:45 / /auto rw - autofs systemd-1 rw
"""


def told(done: threading.Event) -> bool:
    """Say that a job was done, and that there is no more of it."""
    done.set()
    return False


def test_what_is_local_shares_a_domain_and_what_hangs_together_another() -> None:
    """The mounts of one server are one; a FUSE mount has a process of its own behind it; unknown ones are apart."""
    points = {mount.mount_point: domain_of_mount(mount) for mount in parse(MOUNTINFO)}

    assert longest(points, b"/var/x") == longest(points, b"/shm/x") == longest(points, b"/home/local/x") == LOCAL
    assert longest(points, b"/home") == longest(points, b"/data/x") == "nfs4 nas"
    assert longest(points, b"/homes") == LOCAL
    assert len({LOCAL, "nfs4 nas", *(longest(points, b"/" + at) for at in (b"mnt/a", b"mnt/b", b"auto"))}) == 5


def test_a_link_to_what_is_apart_is_apart(tmp_path: Path) -> None:
    """It is followed without a touch of its target, which need not be there."""
    proc = tmp_path / "proc" / "self"
    proc.mkdir(parents=True)
    (proc / "mountinfo").write_bytes(MOUNTINFO)
    (tmp_path / "ckpt").symlink_to("/home/me/ckpt")
    (tmp_path / "loop").symlink_to("loop")
    mounts = FailureDomains(os.fsencode(proc.parent))

    assert mounts.domain_of(b"", os.fsencode(tmp_path / "ckpt" / "step_1")) == "nfs4 nas"
    assert mounts.domain_of(b"", os.fsencode(tmp_path / "loop")) == LOCAL
    assert mounts.domain_of(b"", os.fsencode(tmp_path)) == LOCAL
    assert mounts.below(b"", b"/home") == {}
    assert sorted(mounts.below(b"", b"/mnt")) == [b"/mnt/a", b"/mnt/b"]


def test_jobs_that_hang_take_a_bounded_number_of_threads_and_none_from_others() -> None:
    """What is local is done though every other thread hangs; what waits behind those is not waited for for ever."""
    gate, done = threading.Event(), threading.Event()
    workers = WorkerPool(limit=2)

    def hang() -> bool:
        gate.wait(20)
        return False

    before = threading.active_count()
    taken = [workers.put(f"server {number % 8}", hang) for number in range(32)]
    workers.put(LOCAL, lambda: told(done))

    assert done.wait(10)
    assert 16 <= sum(taken) <= 20
    assert threading.active_count() - before <= MAX_THREADS
    assert workers.waiting()
    deadline = time.monotonic() + 10
    while workers.waiting() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not workers.waiting()
    gate.set()


def test_a_job_that_fails_ends_no_thread() -> None:
    """It is counted, and the next is done."""
    workers, done = WorkerPool(), threading.Event()
    workers.put(LOCAL, lambda: bool(1 // 0))
    workers.put(LOCAL, lambda: told(done))

    assert done.wait(10)
    assert workers.failed == 1


@pytest.fixture
def hung(tmp_path: Path) -> Iterator[Path]:
    """Return a FUSE mount whose server is stopped, and whatever it was asked before forgotten."""
    if shutil.which("bindfs") is None:
        pytest.skip("not installed: bindfs")
    below, place = tmp_path / "below", tmp_path / "place"
    (below / "step_1").mkdir(parents=True)
    (below / "step_1" / "model.pt").write_bytes(bytes(64))
    place.mkdir()
    with subprocess.Popen(["bindfs", "-f", below, place]) as server:
        try:
            deadline = time.monotonic() + 10
            while not place.is_mount():
                assert time.monotonic() < deadline
                time.sleep(0.01)
            server.send_signal(signal.SIGSTOP)
            yield place
        finally:
            server.send_signal(signal.SIGCONT)
            subprocess.run(["umount", "--lazy", place], check=False)
            server.terminate()


@pytest.mark.root
def test_facts_of_local_files_do_not_wait_for_a_mount_that_hangs(hung: Path, tmp_path: Path) -> None:
    """Asked for in one question, by a link, and with the mount below a folder; what hangs is not waited for."""
    local = tmp_path / "local"
    local.mkdir()
    (local / "a.pt").write_bytes(bytes(64))
    link = tmp_path / "link"
    link.symlink_to(hung)
    finder = FactFinder(workers=WorkerPool())
    files = tuple(os.fsencode(path) for path in (hung / "step_1" / "model.pt", link / "other", local / "a.pt"))
    folders = tuple(os.fsencode(path) for path in (link, hung / "step_1", tmp_path))
    started = time.monotonic()
    for _ in range(3):
        finder.ask(Question(7, 8, b"/proc/self/root", files, folders, 0))
    found: set[str] = set()
    while str(local / "a.pt") not in found and time.monotonic() - started < 10:
        found |= {fact.path for fact in finder.take()}
        time.sleep(0.005)
    seconds = time.monotonic() - started

    assert str(local / "a.pt") in found
    assert seconds < 1
    while finder.waiting and time.monotonic() - started < 10:
        finder.take()
        time.sleep(0.01)
    assert not finder.waiting
    finder.close()
