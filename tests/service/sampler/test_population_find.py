"""Finding processes: the list of /proc is read only when the kernel says that a task was born or ended."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
from tests.leftovers import own
from tests.patience import LIFETIME, wait_until

from ckptprof.service.sampler import population
from ckptprof.service.sampler.population import LIST_INTERVAL_NS, Population
from ckptprof_collectors import privileges
from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.processes import process
from ckptprof_collectors.processes.process import list_pids
from ckptprof_collectors.samples import ProcessExit, Sample, Unavailable

STAT = "{pid} (python) S {parent} 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 7 0 0"
IO = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\ncancelled_write_bytes: 0\n"


def add_process(proc: Path, pid: int, parent: int = 1, *, program: bytes = b"sleep") -> None:
    """Put an idle process into a tree of /proc."""
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "stat").write_text(STAT.format(pid=pid, parent=parent))
    (folder / "io").write_text(IO)
    (folder / "cmdline").write_bytes(program + b"\0")


def test_what_comes_and_goes_is_found_at_once() -> None:
    """A real child is known at the next look after its birth, and let go at the next look after its end."""
    people = Population(KernelFs(), frozenset({os.getpid()}), None)
    try:
        people.find(1, [])
        with subprocess.Popen(["sleep", LIFETIME]) as child:
            people.find(2, [])
            known = child.pid in people.known
            child.kill()
        people.find(3, [])

        assert known
        assert child.pid not in people.known
    finally:
        people.close()


@pytest.mark.parametrize("there", [False, True])
def test_what_was_written_before_its_process_was_met_is_looked_for(tmp_path: Path, *, there: bool) -> None:
    """Back to the look before, at which it was not there; not of one that was there when the watch began."""
    people = Population(KernelFs(), frozenset({os.getpid()}), None)
    script = "open('a.ckpt', 'wb').write(bytes(1 << 20)); print(flush=True); input()"
    try:
        if not there:
            people.find(1, [])
        command = [sys.executable, "-c", script]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path) as child:
            assert child.stdout is not None
            child.stdout.readline()
            people.find(2, [])
            watching = people.watched[child.pid]
            watching.sample_counters(2, 4096, [])
            question = watching.question_if_due(2, 0, lambda _: False)
            watching.sample_counters(3, 4096, [])
            again = watching.question_if_due(3, 0, lambda _: False)
            child.kill()

        assert again is None
        assert (question is None) == there
        if question is not None:
            assert question.since_ns <= 1
            assert os.fsencode(tmp_path) in question.unshared_folders
    finally:
        people.close()


@pytest.mark.parametrize(
    ("mask", "bounded", "said"),
    [
        (0, False, "need CAP_SYS_PTRACE"),
        (0, True, "need CAP_SYS_PTRACE, which root lacks in this container (--cap-add=SYS_PTRACE)"),
        (1 << 19, False, "CAP_SYS_PTRACE is effective, but"),
    ],
)
def test_who_may_not_be_read_is_told_as_it_is(
    mask: int, said: str, monkeypatch: pytest.MonkeyPatch, *, bounded: bool
) -> None:
    """One that has the capability is not told to get it, nor one to be root where root has it not."""
    monkeypatch.setattr(privileges, "are_in_bounding_set", lambda *_: not bounded)
    monkeypatch.setattr(privileges, "read_capabilities", lambda: privileges.Capabilities(mask, mask, 0))
    monkeypatch.setattr(population, "Process", Mock(side_effect=PermissionError))
    samples: list[Sample] = []
    people = Population(KernelFs(), frozenset(), None)
    people.find(1, samples)
    people.close()

    told = [one.reason for one in samples if isinstance(one, Unavailable)]
    assert [said in reason for reason in told] == [True]
    assert [reason.endswith("need CAP_SYS_PTRACE") for reason in told] == [not mask and not bounded]


def test_a_shell_that_becomes_a_script_is_watched_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last command takes its place: long after its own start, and no process is born by it."""
    monkeypatch.setattr(population, "EXEC_AFTER_START_NS", 100_000_000)
    people = Population(KernelFs(), frozenset({os.getpid()}), None)
    script = f"sleep 1; exec {sys.executable} -c 'import time; time.sleep({LIFETIME})'"
    try:
        with subprocess.Popen(["sh", "-c", script]) as child:
            wait_until(lambda: people.find(time.monotonic_ns(), []) or child.pid in people.watched)
            child.kill()
    finally:
        people.close()


@pytest.mark.parametrize(
    ("loadavg", "at_ns", "found"),
    [
        pytest.param("0.1 0.1 0.1 3/99 500\n", 2, False, id="nothing was born or ended"),
        pytest.param("9.9 0.1 0.1 8/99 500\n", 2, False, id="only more of them run"),
        pytest.param("0.1 0.1 0.1 3/99 501\n", 2, True, id="a birth"),
        pytest.param("0.1 0.1 0.1 3/98 500\n", 2, True, id="an end"),
        pytest.param("", 2, True, id="empty"),
        pytest.param("\xff no slash", 2, True, id="nonsense"),
        pytest.param("0.1 0.1 0.1 3/99 500\n", 1 + LIST_INTERVAL_NS, True, id="long ago"),
    ],
)
def test_the_list_is_read_when_something_changed(tmp_path: Path, loadavg: str, at_ns: int, *, found: bool) -> None:
    """What /proc/loadavg says of tasks decides, and time, whatever it says."""
    (tmp_path / "loadavg").write_text("0.1 0.1 0.1 3/99 500\n")
    add_process(tmp_path, 11)
    people = Population(KernelFs(proc=tmp_path), frozenset(), None)
    people.find(1, [])
    add_process(tmp_path, 12)
    (tmp_path / "loadavg").write_text(loadavg)

    people.find(at_ns, [])

    assert set(people.known) == ({11, 12} if found else {11})
    people.close()


def test_what_the_sampler_starts_is_none_of_the_job(tmp_path: Path) -> None:
    """py-spy, though the process that adopts orphans of the job is the parent of both."""
    me, family = os.getpid(), os.getpid() + 1
    for pid, parent in ((family, 1), (me, family), (me + 2, family), (me + 3, me + 2), (me + 4, me)):
        add_process(tmp_path, pid, parent)
    people = Population(KernelFs(proc=tmp_path), frozenset({me, family}), me + 2)
    people.subreaper_pid = family

    people.find(1, [])

    assert set(people.known) == {me + 2, me + 3}
    people.close()


@pytest.mark.parametrize("changed", [False, True])
def test_of_a_newcomer_only_the_command_line_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, changed: bool
) -> None:
    """An interpreter is opened at once, others if they are there at the next look, whether or not others came."""
    opened: list[int] = []

    def open_process(fs: KernelFs, pid: int, *, keeps_open: bool) -> process.Process:
        opened.append(pid)
        return process.Process(fs, pid, keeps_open=keeps_open)

    monkeypatch.setattr(population, "Process", open_process)
    (tmp_path / "loadavg").write_text("0.1 0.1 0.1 3/99 500\n")
    add_process(tmp_path, 11)
    people = Population(KernelFs(proc=tmp_path), frozenset(), None)
    people.find(1, [], may_wait=True)
    for pid in (12, 13, 14, 15):
        add_process(tmp_path, pid, program=b"python3" if pid == 15 else b"sleep")
    (tmp_path / "loadavg").write_text("0.1 0.1 0.1 3/99 515\n")
    people.find(2, [], may_wait=True)
    at_once = opened.copy()
    people.watch_pid(13, 7, 2)
    (tmp_path / "14" / "cmdline").write_bytes(b"python3\0")
    if changed:
        shutil.rmtree(tmp_path / "12")
        add_process(tmp_path, 16)
        (tmp_path / "loadavg").write_text("0.1 0.1 0.1 3/99 516\n")
    people.find(3, [], may_wait=True)
    started_after = people.watched[14]._born_since_ns

    assert at_once == [11, 15]
    assert sorted(opened) == [11, *([] if changed else [12]), 13, 14, 15]
    assert set(people.watched) == {13, 14, 15}
    assert started_after == 1  # the look before it was first listed
    people.close()


def test_of_a_command_every_process_is_opened_at_once(tmp_path: Path) -> None:
    """Whoever belongs to it may save within half a second."""
    add_process(tmp_path, 11)
    people = Population(KernelFs(proc=tmp_path), frozenset(), 11)
    people.find(1, [], may_wait=True)
    add_process(tmp_path, 12, 11)

    people.find(2, [], may_wait=True)

    assert set(people.known) == {11, 12}
    people.close()


@pytest.mark.parametrize(("hosts", "found"), [(True, {11}), (None, {11}), (False, {12})])
def test_a_container_has_its_list_read_at_every_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: set[int], *, hosts: bool | None
) -> None:
    """An end in it and a birth outside leave /proc/loadavg as it was: its number of tasks is the host's."""
    monkeypatch.setattr(population, "has_host_pids", lambda _: hosts)
    (tmp_path / "loadavg").write_text("0.1 0.1 0.1 3/99 500\n")
    add_process(tmp_path, 11)
    people = Population(KernelFs(proc=tmp_path), frozenset(), None)
    people.find(1, [])
    shutil.rmtree(tmp_path / "11")
    add_process(tmp_path, 12)

    people.find(2, [])

    assert set(people.known) == found
    people.close()


def test_without_loadavg_every_look_reads_the_list(tmp_path: Path) -> None:
    """A host that hides it loses nothing but the saving."""
    add_process(tmp_path, 11)
    people = Population(KernelFs(proc=tmp_path), frozenset(), None)
    people.find(1, [])
    shutil.rmtree(tmp_path / "11")
    add_process(tmp_path, 12)

    people.find(2, [])

    assert set(people.known) == {12}
    people.close()


def test_a_new_root_is_looked_for_although_nothing_was_born(tmp_path: Path) -> None:
    """`ckptprof run` names its command after it has started."""
    (tmp_path / "loadavg").write_text("0.1 0.1 0.1 3/99 500\n")
    add_process(tmp_path, 11)
    people = Population(KernelFs(proc=tmp_path), frozenset(), -1)
    people.find(1, [])
    before = dict(people.known)
    people.root_pid = 11

    people.find(2, [])

    assert before == {}
    assert set(people.known) == {11}
    people.close()


def test_of_a_command_each_stranger_is_asked_for_its_parent_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And again after a while; whose parent has ended, or is of the family as it seems, at once."""
    asked: list[int] = []

    def parent_of(fs: KernelFs, pid: int) -> int | None:
        asked.append(pid)
        return process.read_parent(fs, pid)

    monkeypatch.setattr(population, "read_parent", parent_of)
    people = Population(KernelFs(proc=tmp_path), frozenset(), 11)
    for pid, parent in ((1, 0), (11, 1), (12, 1), (13, 11), (14, 12), (15, 12)):
        add_process(tmp_path, pid, parent)

    def look(at_ns: int) -> list[int]:
        asked.clear()
        people.find(at_ns, [])
        return asked.copy()

    assert sorted(look(1)) == [1, 11, 12, 13, 14, 15]
    assert set(people.known) == {11, 13}
    assert look(2) == []
    add_process(tmp_path, 16, 13)
    assert look(3) == [16]
    assert set(people.known) == {11, 13, 16}
    shutil.rmtree(tmp_path / "12")  # its children are init's now,
    for pid in (14, 15):
        (tmp_path / str(pid) / "stat").write_text(STAT.format(pid=pid, parent=1))
    assert sorted(look(4)) == [14, 15]
    add_process(tmp_path, 12, 11)  # and its pid another's
    assert look(5) == [12]
    assert set(people.known) == {11, 12, 13, 16}
    shutil.rmtree(tmp_path / "14")
    add_process(tmp_path, 14, 12)  # found out of turn, as the pid of a stranger that has ended
    assert sorted(look(6 + LIST_INTERVAL_NS)) == [1, 14, 15]
    assert set(people.known) == {11, 12, 13, 14, 16}
    people.close()


def test_a_failed_list_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that failed does not count as one, so that who came meanwhile is found at the next."""
    (tmp_path / "loadavg").write_text("0.1 0.1 0.1 3/99 500\n")
    add_process(tmp_path, 11)
    people = Population(KernelFs(proc=tmp_path), frozenset(), None)
    with monkeypatch.context() as patch:
        patch.setattr(population, "list_pids", lambda _: (_ for _ in ()).throw(OSError("no descriptor left")))
        with pytest.raises(OSError, match="descriptor"):
            people.find(1, [])
    gone: list[Sample] = []

    people.find(2, gone)

    assert set(people.known) == {11}
    assert not any(isinstance(sample, ProcessExit) for sample in gone)
    people.close()


@pytest.mark.root
@pytest.mark.parametrize("places", ["MAX_KNOWN", "MAX_WATCHED"])
@pytest.mark.capabilities("SYS_PTRACE")
def test_nobody_takes_the_places_of_others(places: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real processes: one user fills all places with sleepers, another's two interpreters are watched all the same."""
    monkeypatch.setattr(population, places, 8)
    with contextlib.ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix=own("crowd-"), dir="/var/tmp"))
        )  # that of pytest is for its own user only
        folder.chmod(0o755)
        python = shutil.copy("/bin/sleep", folder / "python3")

        def start(uid: int, number: int) -> set[int]:
            started = [subprocess.Popen([python, LIFETIME], user=uid) for _ in range(number)]
            for one in started:
                stack.enter_context(one)
                stack.callback(one.kill)
            return {one.pid for one in started}

        greedy = start(65534, 30)
        there = set(greedy)  # and nobody of other tests, who would have a share of the places
        monkeypatch.setattr(population, "list_pids", lambda fs: [pid for pid in list_pids(fs) if pid in there])
        people = Population(KernelFs(), frozenset(), None)
        stack.callback(people.close)
        people.find(1, [])
        full = set(people.watched)
        modest = start(65533, 2)
        there |= modest
        for look in range(2, 5):
            people.find(look * LIST_INTERVAL_NS, [])
        watched, known = set(people.watched), len(people.known)

    assert len(full) == 8
    assert full < greedy
    assert modest <= watched
    assert len(watched) <= 8
    assert known <= 8 or places == "MAX_WATCHED"
