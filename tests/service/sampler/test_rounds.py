"""Who is read when: whoever moves at each tick, of a crowd that stands still some in turn, at a bounded cost."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from standintrace import activity
from tests.patience import LIFETIME, wait_until

from ckptprof.service.sampler import population
from ckptprof.service.sampler import rounds as going_around
from ckptprof.service.sampler.population import LIST_INTERVAL_NS, Population
from ckptprof.service.sampler.rounds import QUIET_SHARE, SAVED_NS, SamplingRounds
from ckptprof.service.sampler.shares import CpuAllowance, UserTurns
from ckptprof.service.sampler.watched_process import AWAKE_AFTER_CHANGE_NS, SHARE, WatchedProcess
from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.processes import open_files
from ckptprof_collectors.processes.process import Process
from ckptprof_collectors.samples import MappedFile, PreviousRead, ProcessInfo, ProcessIo, Sample

SECOND_NS = 1_000_000_000
TICK_NS = SECOND_NS // 10
WRITER = """
import os, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
print("ready", flush=True)
while sys.stdin.read(1):
    os.write(file, bytes(1 << 20))
    print("done", flush=True)
"""


class Sleepers:
    """Real processes that do nothing."""

    def __init__(self, number: int) -> None:
        self.children = [subprocess.Popen(["sleep", LIFETIME]) for _ in range(number)]
        self.watched = {one.pid: WatchedProcess(Process(KernelFs(), one.pid), 0, keep=False) for one in self.children}

    def end(self) -> None:
        """End them."""
        for one in self.children:
            one.kill()
            one.wait()
        for watching in self.watched.values():
            watching.close()


@pytest.fixture
def sleepers() -> Iterator[Sleepers]:
    """Return twenty that have stood still since they were read last."""
    made = Sleepers(20)
    for one in made.children:
        wait_until(lambda one=one: psutil.Process(one.pid).status() == psutil.STATUS_SLEEPING)
    for watching in made.watched.values():
        watching.sample_counters(1, 4096, [])
    yield made
    made.end()


def rounds_of(watched: dict[int, WatchedProcess]) -> SamplingRounds:
    """Return rounds that all of them take part in."""
    made = SamplingRounds()
    for watching in watched.values():
        made.add(watching)
    return made


@pytest.fixture(autouse=True)
def spent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the CPU time that was spent, which only `read` adds to: what looks cost is not for a test to know."""
    made = [0]
    monkeypatch.setattr(going_around, "time", SimpleNamespace(thread_time_ns=lambda: made[0]))
    return made


def read(
    rounds: SamplingRounds, watched: dict[int, WatchedProcess], now_ns: int, spent: list[int], each_ns: int = 0
) -> list[int]:
    """Read who is due; each costs so much."""
    found = []
    for watching in rounds.due(now_ns, watched):
        watching.sample_counters(now_ns, 4096, [])
        spent[0] += each_ns
        found.append(watching.process.pid)
    return found


@pytest.mark.parametrize("pause_ns", [0, SECOND_NS])
def test_a_few_that_stand_still_are_all_read_at_each_tick(sleepers: Sleepers, spent: list[int], pause_ns: int) -> None:
    """Who waits beside a job is seen as soon as it moves; a trace wakes it, and the others are read each second."""
    few = dict(list(sleepers.watched.items())[:5])
    rounds = rounds_of(few)
    read(rounds, few, TICK_NS, spent)

    looks = [read(rounds, few, AWAKE_AFTER_CHANGE_NS + tick * SECOND_NS, spent) for tick in range(2, 6)]
    last_ns = AWAKE_AFTER_CHANGE_NS + 6 * SECOND_NS
    looks.append([one.process.pid for one in rounds.due(last_ns, few, pause_ns)])
    few[min(few)].alert(last_ns, mappings=False)

    assert [sorted(look) for look in looks] == [sorted(few)] * 5
    assert {one.process.pid for one in rounds.due(last_ns + TICK_NS, few)} == {min(few), *(() if pause_ns else few)}


def test_nobody_goes_over_a_crowd_that_stands_still(sleepers: Sleepers, spent: list[int]) -> None:
    """Who wakes says so: a tick costs what moves, however many are watched."""

    class Crowd(dict[int, WatchedProcess]):
        def items(self) -> Any:
            raise AssertionError("all of them were gone over")

        values = keys = __iter__ = items

    crowd = Crowd(sleepers.watched)
    rounds = rounds_of(sleepers.watched)
    for tick in range(3):
        read(rounds, crowd, AWAKE_AFTER_CHANGE_NS + (1 + tick) * SECOND_NS, spent)
    assert not rounds.awake

    woken = next(iter(sleepers.watched.values()))
    woken.alert(AWAKE_AFTER_CHANGE_NS + 5 * SECOND_NS, mappings=False)
    read(rounds, crowd, AWAKE_AFTER_CHANGE_NS + 5 * SECOND_NS, spent)

    assert list(rounds.awake.values()) == [woken]


def test_a_crowd_that_stands_still_is_read_in_turn(sleepers: Sleepers, spent: list[int]) -> None:
    """No tick takes longer than what is allowed, and each has its turn."""
    rounds = rounds_of(sleepers.watched)
    read(rounds, sleepers.watched, AWAKE_AFTER_CHANGE_NS + 1, spent)
    seen: Counter[int] = Counter()
    most = 0

    for tick in range(100):
        look = read(rounds, sleepers.watched, AWAKE_AFTER_CHANGE_NS + SECOND_NS + tick * TICK_NS, spent, 500_000)
        most = max(most, len(look))
        seen.update(look)

    assert most < 20
    assert seen.keys() == sleepers.watched.keys()
    assert max(seen.values()) - min(seen.values()) <= 2  # one may still wake up
    assert sum(seen.values()) * 0.0005 <= QUIET_SHARE * 10 + 2 * SAVED_NS / 1e9


def test_who_is_costly_to_read_is_read_more_seldom(sleepers: Sleepers, spent: list[int]) -> None:
    """One process with tens of thousands of files cannot take more than its share, though it moves all the time."""
    pid, watching = next(iter(sleepers.watched.items()))
    rounds = rounds_of({pid: watching})
    looks = []
    for tick in range(200):
        watching.is_awake = True
        looks += read(rounds, {pid: watching}, tick * TICK_NS, spent, 10_000_000)

    assert 15 <= len(looks) <= 30  # 30 ms at first, then 10 ms for each second
    assert SHARE == 0.01


def test_mappings_that_cost_much_are_read_more_seldom_and_hide_nothing_else(
    sleepers: Sleepers, monkeypatch: pytest.MonkeyPatch, spent: list[int]
) -> None:
    """Counters and open files are read at each tick, of a process with 64,000 mappings as of any other."""
    pid = next(iter(sleepers.watched))
    now, reads = [0], [0]
    used = spent

    def read_mappings(_: Process) -> dict[bytes, MappedFile]:
        used[0] += 10_000_000
        reads[0] += 1
        return {}

    clock = SimpleNamespace(thread_time_ns=lambda: used[0], monotonic_ns=lambda: now[0])
    monkeypatch.setattr(open_files, "time", clock)
    monkeypatch.setattr(open_files, "read_mappings", read_mappings)
    one = sleepers.watched[pid]
    rounds = rounds_of({pid: one})
    samples: list[Sample] = []
    for tick in range(1, 201):
        now[0] = SECOND_NS + tick * TICK_NS
        one.is_awake = one.activity.has_mappings = True
        one.activity.fruitless_scans = 0
        for watching in rounds.due(now[0], {pid: one}):
            one.activity.burst_since_ns = one.activity.last_active_ns = now[0]
            watching.scan_if_due(now[0], samples)

    assert len(samples) == 200
    assert 11 <= reads[0] <= 15  # 30 ms at first, then 5 ms for each second


@pytest.mark.parametrize("pause", [1, 8])
def test_after_a_loss_of_the_trace_folders_are_listed_for_a_while_only(
    writer: subprocess.Popen[str], pause: int
) -> None:
    """However long a burst goes on, and however soon one follows another; what was lost may be beside what it wrote."""
    watching, listed = WatchedProcess(Process(KernelFs(), writer.pid), 0, keep=False), []
    for tick in range(10, 600):
        now_ns, lost_ns = tick * TICK_NS, 20 * SECOND_NS if tick >= 200 else -1
        watching.sample_counters(now_ns, 4096, [])
        if tick % pause == 0:
            watching.alert(now_ns, mappings=False)
            watching.ingest(activity(writer.pid, "/somewhere/run/file.bin", 4_000, closed_ns=now_ns))
            watching.apply_traced()
        question = watching.question_if_due(now_ns, 0, lambda since_ns, lost_ns=lost_ns: since_ns > lost_ns)
        if question is not None and (question.folders or question.unshared_folders):
            listed.append(tick)
    watching.close()

    assert listed
    assert min(listed) >= 200
    assert max(listed) <= 240


def test_users_take_turns() -> None:
    """A user with two processes is served as often as one with a thousand, wherever the time ran out."""
    turns = UserTurns()
    for pid in range(1000):
        turns.add(pid, 1)
    turns.add(5000, 2)
    turns.add(5001, 2)
    served: Counter[int] = Counter()

    for _ in range(30):
        for count, pid in enumerate(turns.in_turn()):
            served[2 if pid >= 5000 else 1] += 1
            if count == 2:
                break

    assert served == {1: 45, 2: 45} or abs(served[1] - served[2]) <= 3
    assert sorted(turns.in_turn()) == [*range(1000), 5000, 5001]


def test_an_allowance_is_paid_back() -> None:
    """Whoever took more than there was waits until as much has come in."""
    allowance = CpuAllowance(0.1, 100)

    allowance.spend(150)

    assert allowance.left_ns(0) == -50
    assert allowance.left_ns(600) == 10
    assert allowance.left_ns(10_000_000) == 100


@pytest.fixture
def writer(tmp_path: Any) -> Iterator[subprocess.Popen[str]]:
    """Return a process that writes a megabyte for each character that it is sent."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "out")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        wait_until(lambda: psutil.Process(child.pid).status() == psutil.STATUS_SLEEPING)
        yield child
        child.kill()


def write(child: subprocess.Popen[str]) -> None:
    """Let it write, and wait until it has."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write("x")
    child.stdin.flush()
    child.stdout.readline()


def test_what_was_read_long_before_is_told_with_the_change(writer: subprocess.Popen[str]) -> None:
    """Who was passed over may have begun to write at any time since: a frame says from when on."""
    watching = WatchedProcess(Process(KernelFs(), writer.pid), 0, keep=False)
    first: list[Sample] = []
    watching.sample_counters(TICK_NS, 4096, first)
    write(writer)
    late: list[Sample] = []
    watching.sample_counters(9 * TICK_NS, 4096, late, previous_ns=8 * TICK_NS)
    write(writer)
    soon: list[Sample] = []
    watching.sample_counters(10 * TICK_NS, 4096, soon, previous_ns=9 * TICK_NS)
    watching.close()

    assert [one for one in late if isinstance(one, PreviousRead)] == [
        PreviousRead(writer.pid, watching.process.start_ticks, TICK_NS)
    ]
    assert any(isinstance(one, ProcessIo) for one in soon)
    assert not any(isinstance(one, PreviousRead) for one in [*first, *soon])


def test_who_did_nothing_is_described_once(writer: subprocess.Popen[str]) -> None:
    """Its mappings cannot have changed; as soon as it runs again it is described again."""
    watching = WatchedProcess(Process(KernelFs(), writer.pid), 0, keep=False)
    told: list[Sample] = []

    def at(now_ns: int) -> int:
        watching.sample_counters(now_ns, 4096, [])
        due = watching.describe_due(now_ns)
        if due:
            watching.describe(now_ns, told)
        return due

    wait_until(lambda: psutil.Process(writer.pid).status() == psutil.STATUS_SLEEPING)  # in its read
    due = [at(second * SECOND_NS) for second in range(1, 60)]
    write(writer)
    later = at(61 * SECOND_NS)
    watching.close()

    assert due.count(True) == 1
    assert later
    assert sum(isinstance(one, ProcessInfo) and one.pid == writer.pid for one in told) == 1


def test_of_a_crowd_that_is_not_watched_the_busy_ones_are_found(
    writer: subprocess.Popen[str], sleepers: Sleepers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who stands still is read in turn, and still whoever begins to move bytes comes to be watched."""
    monkeypatch.setattr(population, "SWEEP_SHARE", 1e-4)
    monkeypatch.setattr(population, "SWEEP_SAVED_NS", 100_000)  # some of them
    monkeypatch.setattr(population, "runs_interpreter", lambda _: False)
    monkeypatch.setattr(population, "list_pids", lambda _: [*sleepers.watched, writer.pid])
    clock = itertools.count(0, 50_000)
    monkeypatch.setattr(population, "time", SimpleNamespace(thread_time_ns=lambda: next(clock)))
    people = Population(KernelFs(), frozenset(), None)
    people.find(1, [])
    sweeps = 0
    try:
        while writer.pid not in people.watched and sweeps < 2 * len(people.known):
            sweeps += 1
            for _ in range(8):
                write(writer)
            people.sweep(LIST_INTERVAL_NS + sweeps * SECOND_NS, [])

        assert writer.pid in people.watched
        assert sweeps > 1
    finally:
        people.close()


def test_a_scan_does_not_end_what_the_trace_says_is_held_open(writer: subprocess.Popen[str]) -> None:
    """Where nvidia-fs moves data past all calls, both are asked: what cuFile opened, and what is being synced."""
    watching = WatchedProcess(Process(KernelFs(), writer.pid), 0, keep=False)
    watching.sample_counters(TICK_NS, 4096, [])
    watching.alert(2 * TICK_NS, mappings=False)
    watching.ingest(activity(writer.pid, "/somewhere/run/model.pt", 4_000_000))
    watching.sample_counters(3 * TICK_NS, 4096, [], previous_ns=2 * TICK_NS)
    watching.apply_traced()
    watching.scan_if_due(3 * TICK_NS, [])
    question = watching.question_if_due(20 * TICK_NS, 0, lambda _: True)
    lasts = watching.activity.is_in_burst()
    watching.close()

    assert (question, lasts) == (None, True)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("written_bytes", [4_000, 4_000_000])
def test_what_is_beside_small_files_is_asked_where_not_each_was_named(
    writer: subprocess.Popen[str], written_bytes: int, *, named: bool
) -> None:
    """The trace names each file that was written; logs and results of builds are no reason to list folders."""
    watching = WatchedProcess(Process(KernelFs(), writer.pid), 0, keep=False)
    path = "/somewhere/run/file.bin"
    watching.sample_counters(TICK_NS, 4096, [])
    watching.alert(2 * TICK_NS, mappings=False)
    watching.ingest(activity(writer.pid, path, written_bytes, closed_ns=2 * TICK_NS))
    watching.sample_counters(3 * TICK_NS, 4096, [], previous_ns=2 * TICK_NS)
    watching.apply_traced()
    question = watching.question_if_due(20 * TICK_NS, 0, lambda _: named)
    watching.close()

    assert question is not None
    assert question.files == (path.encode(),)
    asked = not named or written_bytes > 1_000_000
    assert (b"/somewhere/run" in question.folders) == asked
    assert bool(question.folders or question.unshared_folders) == asked
