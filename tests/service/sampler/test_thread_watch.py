"""Whose threads are looked at, and when: in bursts only, from a first look to a last one, at a bounded cost."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.patience import wait_until

from ckptprof.service.sampler import thread_sampling
from ckptprof.service.sampler.burst_sampling import LIMITS_INTERVAL_NS, MEMORY_INTERVAL_NS, ThrottleSampling
from ckptprof.service.sampler.thread_sampling import (
    DELETING_PAUSE_NS,
    IDLE_INTERVAL_NS,
    MAX_EACH,
    MAX_THREADS,
    RECENT_NS,
    ThreadSampling,
    descriptor_budget,
    ranks_of_same_jobs,
)
from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.processes.process import Process
from ckptprof_collectors.processes.thread_samples import ThreadReader, read_schedstat
from ckptprof_collectors.samples import ThreadSample

CHILD = """
import sys, threading, time
count = int(sys.argv[1])
never = threading.Event()
threads = [threading.Thread(target=never.wait, daemon=True) for _ in range(count - 1)]
def work():
    while True: sum(range(1000))
for thread in threads: thread.start()
while len(never._cond._waiters) < count - 1: time.sleep(0.001)
time.sleep(0.01) # all of them are at it, and nobody keeps the interpreter from them
threads.append(threading.Thread(target=work, daemon=True))
threads[-1].start()
print(*[thread.native_id for thread in threads], flush=True)
sys.stdin.read(1)
"""
TICK_NS = 40_000_000


class Activity:
    """Stands for what the sampler thinks of a process."""

    bursting = True
    moving = True

    def is_in_burst(self) -> bool:
        """Return whether a burst is going on."""
        return self.bursting

    def is_urgent(self, _now_ns: int) -> bool:
        """Return whether bytes move."""
        return self.moving


def watching(process: Any, *, rank: int | None = None, trains: bool = True) -> Any:
    """Return what the sampler keeps about a process."""
    return SimpleNamespace(
        process=process, activity=Activity(), traced=SimpleNamespace(movers={}), is_training=trains, rank=rank
    )


class Job:
    """A child with threads, the last of which works."""

    def __init__(self, threads: int) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.child.stdout is not None
        self.threads = [int(tid) for tid in self.child.stdout.readline().split()]
        self.pid = self.child.pid
        self.watching = watching(Process(KernelFs(), self.pid), trains=False)
        self.watched = {self.pid: self.watching}

    def end(self) -> None:
        """End it."""
        self.child.kill()
        self.child.wait()
        for stream in (self.child.stdin, self.child.stdout):
            assert stream is not None
            stream.close()
        self.watching.process.close()


def bursting(watched: dict[int, Any]) -> list[Any]:
    """Return those that are in a burst, as the sampler does."""
    return [one for one in watched.values() if one.activity.is_in_burst()]


@pytest.fixture(autouse=True)
def spent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the CPU time that looks have cost: what they do cost is not for a test to know."""
    made = [0]
    clock = SimpleNamespace(thread_time_ns=lambda: made[0], monotonic_ns=time.monotonic_ns)
    monkeypatch.setattr(thread_sampling, "time", clock)
    return made


@pytest.fixture
def job() -> Iterator[Job]:
    """Return a process of four threads."""
    made = Job(3)
    yield made
    made.end()


@pytest.fixture
def crowd() -> Iterator[Job]:
    """Return a process of many threads, one of which works."""
    made = Job(60)
    yield made
    made.end()


def test_nothing_is_looked_at_between_bursts(job: Job) -> None:
    """Not even a list of threads is read."""
    job.watching.activity.bursting = False
    looks = ThreadSampling(KernelFs(), 400)

    assert [looks.sample(tick * TICK_NS, bursting(job.watched), job.watched, traced=False) for tick in range(5)] == [
        []
    ] * 5
    assert not looks.is_busy


def test_all_threads_of_a_small_process_are_looked_at_without_a_trace(job: Job) -> None:
    """From the first tick on; those that sleep less often."""
    looks = ThreadSampling(KernelFs(), 400)
    seen = [
        look
        for tick in range(1, 11)
        for look in looks.sample(tick * TICK_NS, bursting(job.watched), job.watched, traced=False)
    ]
    counts = {tid: sum(look.tid == tid for look in seen) for tid in (job.pid, *job.threads)}

    assert counts[job.threads[-1]] == 10
    assert 2 <= counts[job.threads[0]] <= 10 * TICK_NS // IDLE_INTERVAL_NS + 2
    assert {look.pid for look in seen} == {job.pid}
    looks.sample_last(11 * TICK_NS)


def test_the_trace_says_whose_threads_move_data(job: Job) -> None:
    """The main thread is looked at with them; who did nothing for a while is not, after a last look."""
    looks = ThreadSampling(KernelFs(), 400)
    now_ns, job.watching.is_training = 10 * RECENT_NS, True
    job.watching.traced.movers[job.threads[0]] = now_ns
    first = looks.sample(now_ns, bursting(job.watched), job.watched, traced=True)
    later = looks.sample(now_ns + RECENT_NS + 1, bursting(job.watched), job.watched, traced=True)
    after = looks.sample(now_ns + RECENT_NS + TICK_NS, bursting(job.watched), job.watched, traced=True)

    assert {look.tid for look in first} == {job.pid, job.threads[0]}
    assert job.threads[0] in {look.tid for look in later}
    assert job.threads[0] not in {look.tid for look in after}
    looks.sample_last(now_ns + 2 * RECENT_NS)


def test_a_burst_ends_with_a_look(job: Job) -> None:
    """So that the first and the last bracket it; then all descriptors are given back."""
    looks = ThreadSampling(KernelFs(), 400)
    looks.sample(TICK_NS, bursting(job.watched), job.watched, traced=False)
    job.watching.activity.bursting = False
    last = looks.sample(2 * TICK_NS, bursting(job.watched), job.watched, traced=False)

    assert {look.tid for look in last} == {job.pid, *job.threads}
    assert not looks.is_busy
    assert looks.sample(3 * TICK_NS, bursting(job.watched), job.watched, traced=False) == []


def test_a_trainer_that_sleeps_after_a_burst_is_looked_at_until_it_runs(job: Job) -> None:
    """Else nothing tells what it waited for before it gave its file a name; other threads of it may sleep for ever."""
    looks = ThreadSampling(KernelFs(), 400)
    job.watching.is_training = True
    looks.sample(TICK_NS, bursting(job.watched), job.watched, traced=False)
    job.watching.activity.bursting = False
    wait_ns = thread_sampling.IDLE_INTERVAL_NS
    for tick in range(1, 4):  # the first finds out that it has not run
        seen = looks.sample(TICK_NS + tick * wait_ns, bursting(job.watched), job.watched, traced=False)
    assert [look.tid for look in seen] == [job.pid]

    looks._groups[job.pid].followed[job.pid].word = "running"
    last = looks.sample(TICK_NS + 4 * wait_ns, bursting(job.watched), job.watched, traced=False)
    assert [look.tid for look in last] == [job.pid]
    assert not looks.is_busy


def test_while_a_file_is_only_held_open_nobody_is_looked_at(job: Job) -> None:
    """A log of a job keeps a burst open for minutes."""
    looks = ThreadSampling(KernelFs(), 400)
    looks.sample(TICK_NS, bursting(job.watched), job.watched, traced=False)
    job.watching.activity.moving = False
    assert len(looks.sample(2 * TICK_NS, bursting(job.watched), job.watched, traced=False)) == 1 + len(job.threads)

    assert looks.sample(3 * TICK_NS, bursting(job.watched), job.watched, traced=False) == []


def test_a_sync_is_watched_to_its_end_though_the_burst_is_over(job: Job) -> None:
    """Of a file that was opened again for it: nothing moves, nothing is held open."""
    looks = ThreadSampling(KernelFs(), 400)
    looks.sample(TICK_NS, bursting(job.watched), job.watched, traced=False)
    job.watching.activity.bursting = False
    syncing = looks._groups[job.pid].followed[job.threads[0]]
    syncing.word = "sync"
    second = looks.sample(2 * TICK_NS, bursting(job.watched), job.watched, traced=False)

    assert {look.tid for look in second} == {job.pid, *job.threads}  # of the others the last look
    assert looks.is_busy
    assert (
        looks.sample(3 * TICK_NS, bursting(job.watched), job.watched, traced=False) != []
    )  # it is at a pipe by now, in truth
    assert not looks.is_busy


def test_who_is_at_a_file_when_it_is_looked_at_last_is_watched_on(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """As who closes what one call wrote: the burst is over once that call has ended."""
    looks = ThreadSampling(KernelFs(), 400)
    looks.sample(TICK_NS, bursting(job.watched), job.watched, traced=False)
    job.watching.activity.bursting = False
    with monkeypatch.context() as closing:
        closing.setattr(thread_sampling, "classify", lambda *_: "close")
        looks.sample(2 * TICK_NS, bursting(job.watched), job.watched, traced=False)
        third = looks.sample(3 * TICK_NS, bursting(job.watched), job.watched, traced=False)
    for tick in (4, 5):
        looks.sample(tick * TICK_NS, bursting(job.watched), job.watched, traced=False)

    assert {look.tid for look in third} == {job.pid, *job.threads}
    assert not looks.is_busy


def test_who_deletes_is_watched_though_it_is_met_at_other_things_between(job: Job) -> None:
    """Until it was not met deleting for a second; a tree is listed and looked at in turns."""
    looks = ThreadSampling(KernelFs(), 400)
    looks.sample(TICK_NS, bursting(job.watched), job.watched, traced=False)
    job.watching.activity.bursting = False
    looks._groups[job.pid].followed[job.threads[0]].deleted_ns = TICK_NS
    looks.sample(2 * TICK_NS, bursting(job.watched), job.watched, traced=False)
    later = looks.sample(TICK_NS + DELETING_PAUSE_NS, bursting(job.watched), job.watched, traced=False)

    assert {look.tid for look in later} == {job.threads[0]}
    assert looks.is_busy
    looks.sample(2 * TICK_NS + DELETING_PAUSE_NS, bursting(job.watched), job.watched, traced=False)
    assert not looks.is_busy


def test_of_many_threads_those_that_run_are_found(crowd: Job) -> None:
    """With the second tick."""
    looks = ThreadSampling(KernelFs(), 800)
    first = looks.sample(TICK_NS, bursting(crowd.watched), crowd.watched, traced=False)
    before = read_schedstat(crowd.watching.process, crowd.threads[-1])
    wait_until(lambda: read_schedstat(crowd.watching.process, crowd.threads[-1]) != before)
    second = looks.sample(2 * TICK_NS, bursting(crowd.watched), crowd.watched, traced=False)

    assert {look.tid for look in first} == {crowd.pid}
    assert crowd.threads[-1] in {look.tid for look in second}
    assert len({look.tid for look in second}) < MAX_EACH
    looks.sample_last(3 * TICK_NS)


def test_who_of_a_crowd_of_threads_works_is_asked_more_seldom_the_more_it_costs(
    crowd: Job, spent: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep of 5,000 takes some 10 ms of CPU."""
    listed = thread_sampling.list_threads

    def sweeps(cost_ns: int) -> int:
        """Return how many there are in ten seconds."""
        made: list[int] = []

        def costly(process: Process) -> list[int]:
            made.append(process.pid)
            spent[0] += cost_ns
            return listed(process)

        monkeypatch.setattr(thread_sampling, "list_threads", costly)
        group = thread_sampling._SampledThreads(crowd.watching)
        for tick in range(1, 251):
            group.due_threads(tick * TICK_NS, traced=False)
        return len(made)

    counts = [sweeps(cost_ns) for cost_ns in (1_000_000, 10_000_000)]

    assert counts == [11, 3]  # two at once, then each second, or as often as SWEEP_SHARE of a core allows


def test_of_thousands_of_threads_each_has_its_turn_and_who_works_is_kept(
    crowd: Job, spent: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of 3,000 work, one of them 3 s of every 30; a sweep reads no more than some hundred."""
    threads = [crowd.watching.process.pid, *range(10_000, 13_000)]
    reads: list[int] = []

    def used(_: Process, tid: int) -> bytes:
        reads.append(tid)
        saved = now_ns if now_ns % (750 * TICK_NS) < 75 * TICK_NS else 0
        return {10_005: b"%d" % saved, 12_900: b"%d" % now_ns}.get(tid, b"")

    monkeypatch.setattr(thread_sampling, "list_threads", lambda _: threads)
    monkeypatch.setattr(thread_sampling, "read_schedstat", used)
    group, most, found = thread_sampling._SampledThreads(crowd.watching), 0, set[int]()
    for tick in range(1, 750 * 4 + 75):
        now_ns = tick * TICK_NS
        if tick == 750 * 3:
            found.clear()  # by then each was met at work
        reads.clear()
        found.update(group.due_threads(now_ns, traced=False))
        most = max(most, len(reads))

    assert {10_005, 12_900} <= found
    assert most <= thread_sampling.MAX_SWEPT + 5 * MAX_EACH


def test_descriptors_are_bounded(crowd: Job) -> None:
    """However many threads move data."""
    crowd.watching.traced.movers.update(dict.fromkeys(crowd.threads, TICK_NS))
    looks = ThreadSampling(KernelFs(), 40)
    seen = looks.sample(TICK_NS, bursting(crowd.watched), crowd.watched, traced=True)

    assert len(seen) == 10
    looks.sample_last(2 * TICK_NS)
    whole = ThreadSampling(KernelFs(), descriptor_budget(1 << 20))
    assert len(whole.sample(TICK_NS, bursting(crowd.watched), crowd.watched, traced=True)) == MAX_EACH
    whole.sample_last(2 * TICK_NS)
    assert descriptor_budget(1024) == 128
    assert descriptor_budget(1 << 20) == 4 * MAX_THREADS


def test_a_process_that_ended_is_let_go(job: Job) -> None:
    """Whether or not it is still counted among the watched."""
    looks = ThreadSampling(KernelFs(), 400)
    looks.sample(TICK_NS, bursting(job.watched), job.watched, traced=False)
    job.child.kill()
    job.child.wait()

    assert looks.sample(2 * TICK_NS, bursting(job.watched), job.watched, traced=False) == []
    assert looks.sample(3 * TICK_NS, bursting({}), {}, traced=False) == []
    assert not looks.is_busy


def test_the_cost_is_bounded(crowd: Job, spent: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of time on a CPU, over what a burst may take at its begin; here each look costs a tenth of a millisecond."""
    crowd.watching.traced.movers.update(dict.fromkeys(crowd.threads, 1 << 62))
    look = ThreadReader.sample

    def costly(self: ThreadReader, at_ns: int) -> ThreadSample | None:
        spent[0] += 100_000
        return look(self, at_ns)

    monkeypatch.setattr(ThreadReader, "sample", costly)
    looks = ThreadSampling(KernelFs(), 800)
    seconds = 4
    for tick in range(1, seconds * 25 + 1):
        looks.sample(tick * TICK_NS, bursting(crowd.watched), crowd.watched, traced=True)

    least_ns = seconds * thread_sampling.SHARE * 1e9
    assert least_ns / 2 < spent[0] < least_ns + thread_sampling.SAVED_NS + MAX_EACH * 100_000
    looks.sample_last(seconds * 26 * TICK_NS)


def test_ranks_of_a_job_are_looked_at_together() -> None:
    """Those of the same launcher, but not their helpers, and not those of another job."""
    table = {100: 90, 101: 90, 102: 90, 110: 101, 200: 91}
    ranks = {100: 0, 101: 1, 102: 2, 110: 1, 200: 0}
    watched = {
        pid: watching(SimpleNamespace(pid=pid, parent_pid=parent), rank=ranks[pid]) for pid, parent in table.items()
    }
    watched[300] = watching(SimpleNamespace(pid=300, parent_pid=90), trains=False)

    found = ranks_of_same_jobs([watched[101]], watched)
    assert {mate.process.pid for mate in found} == {100, 101, 102}
    assert {mate.process.pid for mate in ranks_of_same_jobs([watched[110]], watched)} == {100, 101, 102}
    assert {mate.process.pid for mate in ranks_of_same_jobs([watched[200]], watched)} == {200}


def test_limits_are_looked_at_when_a_burst_begins(job: Job, tmp_path: Path) -> None:
    """And now and then while it lasts; nothing of them is kept of a process that has ended."""
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mountinfo").write_text(f"31 20 0:27 / {tmp_path} rw - cgroup2 cgroup2 rw\n")
    (tmp_path / str(job.pid)).mkdir()
    (tmp_path / str(job.pid) / "cgroup").write_text("0::/\n")
    (tmp_path / "io.max").write_text("8:0 wbps=1\n")
    limits = ThrottleSampling(KernelFs(proc=tmp_path))
    job.watching.activity.moving = False
    assert limits.sample(TICK_NS, bursting(job.watched), job.watched) == []
    job.watching.activity.moving = True
    first = limits.sample(2 * TICK_NS, bursting(job.watched), job.watched)
    (tmp_path / "io.max").write_text("8:0 wbps=2\n")
    soon = limits.sample(3 * TICK_NS, bursting(job.watched), job.watched)
    later = limits.sample(3 * TICK_NS + LIMITS_INTERVAL_NS, bursting(job.watched), job.watched)

    assert [(info.write_bytes_per_second, info.pid) for info in (*first, *soon, *later)] == [(1, job.pid), (2, job.pid)]
    assert limits.sample(4 * TICK_NS + LIMITS_INTERVAL_NS, bursting({}), {}) == []
    assert len(limits.sample(5 * TICK_NS + LIMITS_INTERVAL_NS, bursting(job.watched), job.watched)) == 1


def test_memory_of_limited_cgroups_is_read_at_intervals_while_bytes_are_transferred(job: Job, tmp_path: Path) -> None:
    """Not before the limits were looked for, and not of a cgroup without one."""
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mountinfo").write_text(f"31 20 0:27 / {tmp_path} rw - cgroup2 cgroup2 rw\n")
    (tmp_path / str(job.pid)).mkdir()
    (tmp_path / str(job.pid) / "cgroup").write_text("0::/\n")
    for name, text in (("max", "500"), ("current", "300"), ("stat", "active_file 20\ninactive_file 30\n")):
        (tmp_path / f"memory.{name}").write_text(text)
    limits = ThrottleSampling(KernelFs(proc=tmp_path))
    job.watching.activity.moving = True
    now_ns = LIMITS_INTERVAL_NS
    assert limits.sample_memory(now_ns, bursting(job.watched)) == []
    limits.sample(now_ns, bursting(job.watched), job.watched)
    found = [limits.sample_memory(now_ns + at * MEMORY_INTERVAL_NS // 2, bursting(job.watched)) for at in range(2, 6)]
    job.watching.activity.moving = False
    found.append(limits.sample_memory(now_ns + 4 * MEMORY_INTERVAL_NS, bursting(job.watched)))

    read = [[(one.limit_bytes, one.used_bytes) for one in each] for each in found]
    assert read == [[(500, 250)], [], [(500, 250)], [], []]
