"""What hangs holds up itself only: failure domains by mountinfo, bounded threads, a FUSE mount that stands still."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE_SECONDS, wait_until

from ckptprof_collectors.files import workers as pool
from ckptprof_collectors.files.file_facts import FactFinder, FactQuery
from ckptprof_collectors.files.process_roots import OWN_PROCESS
from ckptprof_collectors.files.workers import MAX_HUNG, MAX_REMOTE_THREADS, URGENT, WorkerPool
from ckptprof_collectors.mounts.failure_domains import LOCAL, FailureDomains, mount_domain
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


def threads_of(workers: WorkerPool) -> int:
    """Return how many threads a pool has; this process may have those of others."""
    return sum(getattr(thread._target, "__self__", None) is workers for thread in threading.enumerate())  # type: ignore[attr-defined]


def told(done: threading.Event) -> bool:
    """Say that a job was done, and that there is no more of it."""
    done.set()
    return False


def test_what_is_local_shares_a_domain_and_what_hangs_together_another() -> None:
    """The mounts of one server are one; a FUSE mount has a process of its own behind it; unknown ones are apart."""
    points = {mount.mount_point: mount_domain(mount) for mount in parse(MOUNTINFO)}

    assert points[b"/"] == points[b"/shm"] == points[b"/home/local"] == LOCAL
    assert points[b"/home"] == points[b"/data"] == "nfs4 nas"
    assert len({LOCAL, "nfs4 nas", points[b"/mnt/a"], points[b"/mnt/b"], points[b"/auto"]}) == 5


def test_all_fuse_mounts_of_one_user_are_one_domain() -> None:
    """However many he makes that never answer, they hold up one thread; those of root are apart from each other."""
    line = "30 20 0:%d / /m/%d rw - fuse.evil x rw,user_id=%d,group_id=0,allow_other"
    mounts = parse("\n".join(line % (50 + n, n, user) for n, user in enumerate((1000, 1000, 1001, 0, 0))).encode())

    assert len({mount_domain(mount) for mount in mounts[:2]}) == 1
    assert len({mount_domain(mount) for mount in mounts}) == 4


def test_the_mounts_of_a_process_are_read_again_when_that_is_asked_for() -> None:
    """A number is given to another mount as soon as the first one is gone."""
    domains = FailureDomains()
    first, again = domains.mount_table(b"/proc/self"), domains.mount_table(b"/proc/self")
    fresh = domains.mount_table(b"/proc/self", since_ns=time.monotonic_ns())

    assert again is first is not fresh
    assert fresh.mounts_by_id.keys() == first.mounts_by_id.keys() != set()
    with pytest.raises(OSError, match="No such file"):
        domains.mount_table(b"/proc/4194305")


@pytest.mark.parametrize(("allowed", "most"), [(64, 8), (2, 3)])
def test_jobs_that_are_left_off_are_as_many_as_their_descriptors_allow(allowed: int, most: int) -> None:
    """Each may hold folders open; where few are allowed one goes on to its end before the next begins."""
    gate, done = threading.Event(), threading.Event()
    workers = WorkerPool(max_suspended_jobs=lambda: allowed)
    begun: set[int] = set()
    at_once: list[int] = []

    def job(number: int) -> bool:
        gate.wait(PATIENCE_SECONDS)
        turns[number] += 1
        begun.add(number)
        at_once.append(len(begun))
        if turns[number] < 3:
            return True
        begun.discard(number)
        if not begun and sum(turns) == 24:
            done.set()
        return False

    turns = [0] * 8
    for number in range(8):
        workers.put(LOCAL, functools.partial(job, number))
    gate.set()

    assert done.wait(PATIENCE_SECONDS)
    assert turns == [3] * 8
    assert max(at_once) == most


def test_jobs_that_hang_take_a_bounded_number_of_threads_and_none_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is local is done though every other thread hangs; what waits behind those is not waited for for ever."""
    monkeypatch.setattr(pool, "HUNG_NS", 10**18)
    gate, done = threading.Event(), threading.Event()
    workers = WorkerPool(limit=2)

    def hang() -> bool:
        gate.wait(PATIENCE_SECONDS)
        return False

    taken = [workers.put(f"server {number % 8}", hang) for number in range(32)]
    workers.put(LOCAL, lambda: told(done))

    assert done.wait(PATIENCE_SECONDS)
    assert 16 <= sum(taken) <= 20
    assert threads_of(workers) <= MAX_REMOTE_THREADS + 1
    monkeypatch.setattr(pool, "HUNG_NS", 0)
    wait_until(lambda: not workers.has_work())
    assert threads_of(workers) <= MAX_REMOTE_THREADS + MAX_HUNG + 1
    assert (workers.replaced, len(workers.hung_domains())) == (MAX_HUNG, 8)
    gate.set()


@pytest.mark.parametrize("domain", [LOCAL, URGENT])
def test_a_thread_that_hangs_is_replaced_even_where_nothing_should(domain: str) -> None:
    """A disk that does not answer holds up one look, not all that come after it; at the bound, it is left at that."""
    gate, done = threading.Event(), threading.Event()
    workers = WorkerPool()
    for _ in range(MAX_HUNG):
        workers.put(domain, lambda: gate.wait(PATIENCE_SECONDS) and False)
    workers.put(domain, lambda: told(done))

    def told_beside_them() -> bool:
        workers.replace_hung()
        return done.is_set()

    wait_until(told_beside_them)
    assert workers.hung_domains() == [domain] * MAX_HUNG
    assert threads_of(workers) == MAX_HUNG + 1
    gate.set()
    wait_until(lambda: threads_of(workers) == 1)
    assert workers.hung_domains() == []


def test_work_of_one_pool_wakes_no_thread_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events of folders come fifty times a second, and a thread that wakes for nothing costs as much as the work."""
    workers, done = WorkerPool(), threading.Event()
    workers.put(LOCAL, functools.partial(told, done))
    assert done.wait(PATIENCE_SECONDS)
    wait_until(lambda: workers._idle[LOCAL] == 1)
    awake: Any = []
    monkeypatch.setattr(workers, "_ready", lambda name: awake.append(name) or WorkerPool._ready(workers, name))
    for _ in range(20):
        done.clear()
        workers.put(URGENT, functools.partial(told, done))
        assert done.wait(PATIENCE_SECONDS)
        wait_until(lambda: workers._idle[URGENT] == 1)

    assert set(awake) == {URGENT}


def test_a_job_that_fails_ends_no_thread() -> None:
    """It is counted, and the next is done."""
    workers, done = WorkerPool(), threading.Event()
    workers.put(LOCAL, lambda: bool(1 // 0))
    workers.put(LOCAL, lambda: told(done))

    assert done.wait(PATIENCE_SECONDS)
    assert workers.failed == 1


@pytest.fixture
def hung(tmp_path: Path) -> Iterator[Path]:
    """Return a FUSE mount whose server is stopped, and whatever it was asked before forgotten."""
    below, place = tmp_path / "below", tmp_path / "place"
    (below / "step_1").mkdir(parents=True)
    (below / "step_1" / "model.pt").write_bytes(bytes(64))
    place.mkdir()
    with subprocess.Popen(["bindfs", "-f", below, place]) as server:
        try:
            wait_until(lambda: place.is_mount() or server.poll() is not None)
            assert server.poll() is None
            server.send_signal(signal.SIGSTOP)
            yield place
        finally:
            server.send_signal(signal.SIGCONT)
            subprocess.run(["umount", "--lazy", place], check=False)
            server.terminate()


@pytest.mark.root
@pytest.mark.fuse
@pytest.mark.programs("bindfs")
def test_facts_of_local_files_do_not_wait_for_a_mount_that_hangs(
    hung: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked for in one question, by a link, and with the mount below a folder; what hangs is not waited for."""
    monkeypatch.setattr(pool, "HUNG_NS", 10**18)  # no thread takes the place of one that waits
    local = tmp_path / "local"
    local.mkdir()
    (local / "a.pt").write_bytes(bytes(64))
    link = tmp_path / "link"
    link.symlink_to(hung)
    finder = FactFinder(workers=WorkerPool())
    files = tuple(os.fsencode(path) for path in (hung / "step_1" / "model.pt", link / "other", local / "a.pt"))
    folders = tuple(os.fsencode(path) for path in (link, hung / "step_1", tmp_path))
    for _ in range(3):
        finder.request(FactQuery(7, 8, OWN_PROCESS, files, folders, 0))

    wait_until(lambda: str(local / "a.pt") in {fact.path for fact in finder.consume()})
    monkeypatch.undo()
    wait_until(lambda: finder.consume() is not None and not finder.waiting)
    finder.close()
