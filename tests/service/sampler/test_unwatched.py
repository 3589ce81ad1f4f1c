"""Who is busy among those who are not watched: told by the trace, without a look at anybody."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from standintrace import MIB, activity
from tests.patience import LIFETIME

from ckptprof.service.sampler import population
from ckptprof.service.sampler.population import PROGRAM_LOAD_BYTES, Population
from ckptprof.service.sampler.traced_activity import MAX_PROCESSES, MAX_SESSIONS, UnwatchedBytes
from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.processes.process import Process

SECOND_NS = 1_000_000_000


@pytest.fixture
def sleepers() -> Iterator[list[int]]:
    """Return the pids of twenty processes that polling would never take note of."""
    children = [subprocess.Popen(["sleep", LIFETIME]) for _ in range(20)]
    yield [one.pid for one in children]
    for one in children:
        one.kill()
        one.wait()


@pytest.fixture
def people() -> Iterator[Population]:
    """Return the processes of this host."""
    made = Population(KernelFs(), frozenset(), None)
    made.find(SECOND_NS, [])
    yield made
    made.close()


def test_what_a_session_moved_is_added_up_once() -> None:
    """Each sample tells the sum of its session so far."""
    unwatched = UnwatchedBytes()
    for moved in (10, 25, 25):
        unwatched.ingest(activity(1, "/a", moved))
    unwatched.ingest(activity(1, "/b", 7, closed_ns=1))
    assert unwatched.consume() == {(1, activity(1, "/a", 0).start_ticks): 32}
    unwatched.ingest(activity(1, "/a", 40, closed_ns=2))
    assert list(unwatched.consume().values()) == [15]
    assert unwatched.consume() == {}


def test_it_keeps_no_more_than_it_may() -> None:
    """Of sessions the latest, of processes the first."""
    unwatched = UnwatchedBytes()
    for number in range(MAX_SESSIONS + 5):
        unwatched.ingest(activity(10**7 + number, f"/{number}", 1))
    assert (len(unwatched._sessions), len(unwatched.consume())) == (MAX_SESSIONS, MAX_PROCESSES)


def test_nobodys_counters_are_read_while_the_trace_tells_who_is_busy(
    sleepers: list[int], people: Population, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who moves much in many small files is watched; who moves little, and is no interpreter, is not."""
    read: list[int] = []
    monkeypatch.setattr(Process, "read_io", lambda self: read.append(self.pid))
    people.sweep(2 * SECOND_NS, [], {})
    for number in range(40):
        people.unwatched.ingest(activity(sleepers[0], f"/{number}", MIB // 10, closed_ns=1))
    people.unwatched.ingest(activity(sleepers[1], "/log", PROGRAM_LOAD_BYTES + 1))
    people.unwatched.ingest(activity(sleepers[2], "/log", 4 * MIB, start_ticks=1))  # another one, of its pid
    people.sweep(3 * SECOND_NS, [], {sleepers[3]: PROGRAM_LOAD_BYTES})

    assert [pid for pid in sleepers if pid in people.watched] == [sleepers[0]]
    assert read == []


def test_who_turned_into_an_interpreter_is_watched(
    sleepers: list[int], people: Population, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script of a shell that became the training script at its end: what it reads to start tells of it."""
    folders = {b"/proc/%d" % pid for pid in sleepers}
    monkeypatch.setattr(population, "runs_interpreter", lambda folder: folder in folders)
    people.unwatched.ingest(activity(sleepers[0], "/usr/lib/os.pyc", PROGRAM_LOAD_BYTES + 1))
    people.unwatched.ingest(activity(sleepers[1], "/usr/lib/os.pyc", PROGRAM_LOAD_BYTES))
    people.sweep(2 * SECOND_NS, [], {})

    assert [pid for pid in sleepers if pid in people.watched] == [sleepers[0]]
