"""Whose files and threads are followed: those of candidates always, of all others for a small share of a core."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import groupby, pairwise

import msgspec
import pytest
from standintrace import MIB, Desk, StandIn, activity, start_ticks
from tests.patience import LIFETIME, wait_until

from ckptprof.service.sampler.activity import QUIET_NS
from ckptprof.service.sampler.population import Population
from ckptprof.service.sampler.shares import CpuAllowance
from ckptprof.service.sampler.tracing import FOLLOWED, SELECT_INTERVAL_NS, WATCHED
from ckptprof.service.sampler.watched_process import OTHERS_SAVED_NS, RHYTHM_BURSTS, WatchedProcess, has_rhythm
from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.processes.process import Process
from ckptprof_collectors.samples import FileActivity, FileLifeEvent, ProcessInfo, ProcessIo

SECOND_NS = 1_000_000_000


@pytest.fixture
def population() -> Iterator[Population]:
    """Return a population of this host."""
    made = Population(KernelFs(), frozenset((os.getpid(),)), None)
    yield made
    made.close()


def info(pid: int, *runtimes: str, **environment: str) -> ProcessInfo:
    """Describe a process."""
    return ProcessInfo(pid, start_ticks(pid), 1, 0, "x", "x", runtimes, environment, None)


def watch(population: Population, pid: int) -> WatchedProcess:
    """Have a process watched."""
    watching = population.watch_pid(pid, start_ticks(pid), SECOND_NS)
    assert watching is not None
    return watching


@pytest.mark.parametrize(
    ("runtimes", "environment", "is_candidate"),
    [
        (("torch",), {}, True),
        (("gpu",), {}, True),
        ((), {"RANK": "3"}, True),
        ((), {"SLURM_PROCID": "0"}, True),
        ((), {"SLURM_JOB_ID": "17", "HOSTNAME": "node"}, False),
        ((), {}, False),
    ],
)
def test_a_candidate_is_one_by_what_it_runs(
    population: Population, sleeper: subprocess.Popen[bytes], runtimes: tuple[str, ...], environment: dict[str, str],
    *, is_candidate: bool,
) -> None:  # fmt: skip
    """A library for training, a GPU, or a rank; not the name of its program."""
    watching = watch(population, sleeper.pid)
    watching.info = info(sleeper.pid, *runtimes, **environment)

    watching.update_signs()

    assert watching.is_candidate is is_candidate


FAMILIES = {
    "below a shell": f"echo $$; setsid sh -c 'sleep {LIFETIME} & echo $!; wait' & wait",
    "in its pipeline": f"sleep {LIFETIME} & echo $!; sleep {LIFETIME} & echo $!; wait",
    "of another session": f"setsid sleep {LIFETIME} & echo $!; sleep {LIFETIME} & echo $!; wait",
}


@pytest.mark.parametrize("place", FAMILIES)
def test_what_works_for_a_candidate_is_one(population: Population, place: str) -> None:
    """`tar` below a shell of a trainer, or `gzip` at the other end of its pipe; it may have been found first."""
    with subprocess.Popen(["sh", "-c", FAMILIES[place]], stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        trainer, worker = (int(process.stdout.readline()) for _ in range(2))
        wait_until(lambda: os.getpgid(trainer) != os.getpgid(worker) or place == "in its pipeline")
        population.find(0, [])
        working = watch(population, worker)
        found_first = working.is_candidate
        training = watch(population, trainer)
        training.info = info(trainer, "torch")
        training.update_signs()
        population.sweep(SECOND_NS, [], {})
        os.kill(worker, 9)
        os.killpg(process.pid, 9)
        if place == "of another session":
            os.kill(trainer, 9)

    assert not found_first
    assert working.is_candidate is (place != "of another session")


@pytest.mark.parametrize(
    ("bursts", "is_steady"),
    [
        ([(0, 100), (60, 100), (121, 90)], True),
        ([(0, 1), (7, 900), (60, 100), (121, 100), (180, 120)], True),
        ([(0, 100), (60, 100)], False),
        ([(0, 100), (60, 100), (70, 100)], False),
        ([(0, 100), (60, 500), (120, 100)], False),
    ],
)
def test_a_rhythm_is_three_bursts_alike_at_intervals_alike(bursts: list[tuple[int, int]], *, is_steady: bool) -> None:
    """As an unknown framework saves; a package manager writes as it comes."""
    assert has_rhythm(bursts[-RHYTHM_BURSTS:]) is is_steady


def burst(watching: WatchedProcess, now_ns: int, path: str, size_bytes: int) -> tuple[bool, bool]:
    """Let it write a file and end its burst; return whether that was asked for, and by the second sample."""
    watching.alert(now_ns, mappings=False)
    watching.ingest(activity(watching.process.pid, path, size_bytes, closed_ns=now_ns, session=str(now_ns)))
    watching.apply_traced()
    ended_ns = now_ns + QUIET_NS
    asked = [
        watching.question_if_due(at_ns, 0, lambda _: True) is not None for at_ns in (ended_ns, ended_ns + 2 * SECOND_NS)
    ]
    return asked[0], asked[1]


def test_who_writes_large_files_at_a_rhythm_becomes_a_candidate(sleeper: subprocess.Popen[bytes]) -> None:
    """Whatever it is; not who writes small ones."""
    watching = WatchedProcess(Process(KernelFs(), sleeper.pid), 0, keep=False)
    small = WatchedProcess(Process(KernelFs(), sleeper.pid), 0, keep=False)
    for number in range(1, 4):
        assert not watching.is_candidate
        burst(watching, number * 60 * SECOND_NS, f"/data/model_{number}.bin", 2 * MIB)
        burst(small, number * 60 * SECOND_NS, f"/data/log_{number}", 1000)

    assert watching.is_candidate
    assert not small.is_candidate
    watching.close()
    small.close()


def test_a_process_found_before_its_exec_is_an_interpreter_later() -> None:
    """A launcher forks, and becomes the program that trains: its Python stacks are worth sampling."""
    script = f"read go; exec {sys.executable} -c 'import time; print(flush=True); time.sleep({LIFETIME})'"
    with subprocess.Popen(["/bin/sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        watching = WatchedProcess(Process(KernelFs(), child.pid), 0, keep=True)
        watching.describe(0, [])
        before = watching.is_interpreter
        child.stdin.write(b"\n")
        child.stdin.flush()
        child.stdout.readline()
        watching.describe(SECOND_NS, [])
        child.kill()

    assert (before, watching.is_interpreter) == (False, True)
    watching.close()


@pytest.mark.parametrize(("write_bytes", "is_candidate"), [(1 << 20, True), (12_000, False)])
def test_a_rhythm_of_large_writes_shows_in_the_counters(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, *, write_bytes: int, is_candidate: bool
) -> None:
    """While its files are not followed; a tree of small files is written at a rhythm, too."""
    process = Process(KernelFs(), sleeper.pid)
    watching = WatchedProcess(process, 0, keep=False)
    monkeypatch.setattr(Process, "read_io", lambda _: True)
    monkeypatch.setattr(Process, "read_stat", lambda *_: False)
    written = 0
    for second in range(1, 40):
        for tenth in range(10):
            written += 10 * MIB if second % 10 == 0 and tenth < 3 else 0
            process.io = ProcessIo(process.pid, 1, 0, written, 0, written // write_bytes, 0, written, 0)
            now_ns = second * SECOND_NS + tenth * SECOND_NS // 10
            watching.sample_counters(now_ns, 4096, [])
            watching.question_if_due(now_ns, 0, lambda _: True)

    assert watching.is_candidate is is_candidate
    watching.close()


def test_others_share_an_allowance_and_candidates_have_their_own(sleeper: subprocess.Popen[bytes]) -> None:
    """Above it nothing is asked for them, and that is counted; a candidate is asked for after each burst."""
    others = CpuAllowance(0.01, OTHERS_SAVED_NS)
    other, candidate = (
        WatchedProcess(Process(KernelFs(), sleeper.pid), 0, keep=keep, others=others) for keep in (False, True)
    )
    at_first = burst(other, 10 * SECOND_NS, "/data/a", 2 * MIB)
    other.payer.spend(OTHERS_SAVED_NS + SECOND_NS)
    candidate.payer.spend(SECOND_NS)
    then = burst(other, 20 * SECOND_NS, "/data/b", 2 * MIB), burst(candidate, 20 * SECOND_NS, "/data/c", 2 * MIB)
    refused = others.refused
    later = burst(other, 200 * SECOND_NS, "/data/d", 2 * MIB)

    assert at_first == (True, True)
    assert then == ((False, False), (True, True))
    assert refused == 2
    assert later == (True, True)
    other.close()
    candidate.close()


def test_each_user_has_an_allowance(population: Population, sleeper: subprocess.Popen[bytes]) -> None:
    """One who unpacks without end does not hide what another saves."""
    watching = watch(population, sleeper.pid)
    stranger = activity(1, "/tree/x", MIB)
    population.charge_others([activity(sleeper.pid, "/tree/y", MIB)] * 3 + [stranger], 4 * OTHERS_SAVED_NS)

    assert not watching.is_followed(SECOND_NS)
    assert population.others_of(os.getuid()).left_ns(SECOND_NS) < -2 * OTHERS_SAVED_NS + SECOND_NS
    idle = population.others_of(os.getuid() + 1)
    assert idle.left_ns(10_000 * SECOND_NS) == OTHERS_SAVED_NS < 7_000 * 20_000, "a package has 7,000 files, of 20 us"


def test_within_a_burst_a_candidate_is_asked_for_as_far_as_its_allowance_goes(sleeper: subprocess.Popen[bytes]) -> None:
    """Those questions come again anyway."""
    watching = WatchedProcess(Process(KernelFs(), sleeper.pid), 0, keep=True)
    asked = []
    for second in range(1, 40):
        watching.alert(second * SECOND_NS, mappings=False)
        watching.ingest(activity(watching.process.pid, "/data/a", 2 * MIB))
        watching.apply_traced()
        question = watching.question_if_due(second * SECOND_NS, 0, lambda _: True)
        if question is not None:
            question.spend(100_000_000)  # each costs ten seconds of a hundredth of a core
            asked.append(second)
    watching.close()

    assert len(asked) == 4
    assert all(later - earlier >= 8 for earlier, later in pairwise(asked))


def test_small_files_are_reported_of_those_that_are_followed(
    desk: Callable[..., Desk], sleeper: subprocess.Popen[bytes]
) -> None:
    """Of a process that unpacks a tree they stay sums in the kernel once that has cost its share."""
    large = activity(sleeper.pid, "/tree/large", 2 * MIB, closed_ns=1)
    small = activity(sleeper.pid, "/tree/small", 1000, closed_ns=1)
    created = FileLifeEvent(1, "created", sleeper.pid, start_ticks(sleeper.pid), 1, 1, 1, None, "/tree/small")
    trace = StandIn([[large]])
    one, now_ns = desk(trace), SECOND_NS
    one.tick(now_ns)
    population = one.sampler._population
    population.others_of(os.getuid()).spend(100 * SECOND_NS)
    told = []
    opened = activity(sleeper.pid, "/tree/open", 70_000)
    for candidate, read in (
        (False, [created, small, large]), (False, [opened]), (False, [msgspec.structs.replace(opened, closed_ns=9)]),
        (False, []), (True, [created, small, large]),
    ):  # fmt: skip
        now_ns += 2 * SELECT_INTERVAL_NS
        population.watched[sleeper.pid].is_candidate = candidate
        trace.reads = [read]
        told.append([s for s in one.tick(now_ns) if isinstance(s, FileActivity | FileLifeEvent)])

    assert [len(some) for some in told] == [1, 1, 1, 0, 3]
    assert told[0] == [large]
    said = [processes[sleeper.pid] for processes, _ in trace.attended if sleeper.pid in processes]
    levels = [level for level, _ in groupby(said)]  # said again where others come and go
    assert levels == [FOLLOWED, WATCHED, FOLLOWED]  # the end of a large file is reported, whoever has it open
