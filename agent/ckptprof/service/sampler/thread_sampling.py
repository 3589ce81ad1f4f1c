"""When which threads are sampled: those that transfer data, while they do, and the main threads of ranks that wait.

Counters are cumulative, so few samples are enough: the first and the last bracket the time between. All samples
together use at most `SHARE` of a core, the longest overdue first; nothing is sampled between bursts.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from ckptprof.service.sampler.shares import CpuAllowance
from ckptprof.service.sampler.watched_process import WatchedProcess
from ckptprof_collectors.blocking_processes import BLOCKING_PROCESSES
from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.processes.process import ProcessGone
from ckptprof_collectors.processes.syscalls import FILE_WORDS, classify
from ckptprof_collectors.processes.thread_samples import (
    DESCRIPTORS_PER_THREAD,
    ThreadGone,
    ThreadReader,
    has_delay_accounting,
    list_threads,
    read_schedstat,
)
from ckptprof_collectors.samples import ThreadSample

MAX_EACH = 32  # threads of a process
MAX_THREADS = 128  # of all processes
MAX_WAITING_RANKS = 64  # main threads of further ranks
RECENT_NS = 2_000_000_000  # after a trace event of a thread it may still be at work
IDLE_INTERVAL_NS = 250_000_000  # between samples of a thread that sleeps, but not in file I/O: of an idle pool
DELETING_PAUSE_NS = 1_000_000_000  # between deletions of one thread: a tree is listed and emptied in turns
MAX_CLEANUP_NS = 60_000_000_000  # after the last byte: longer deletion is no cleanup after a save
REVIEW_INTERVAL_NS = 1_000_000_000  # between searches for working threads, and for ranks of the same job
MAX_SWEPT = 512  # at a time
SWEEP_SHARE = 0.003  # of a core, to find the working threads of one process
SHARE = 0.006  # of a core
SAVED_NS = 12_000_000  # of CPU time, for the start of a burst
_FIRST_COST_NS = 30_000
_NEVER_IDLE = FILE_WORDS | {"running"}
_DESCRIPTORS_PER_PROCESS = 7  # descriptors retained for a watched training process; two for one that is only known
_SPARE_DESCRIPTORS = 48  # for the collectors, and for files that are open for a moment only
_TRACE_LINKS = ("anon_inode:bpf", "anon_inode:btf", "anon_inode:[perf_event]")


def descriptor_budget(limit: int | None) -> int:
    """Return how many of `limit` descriptors the samples may keep open; None: there is no limit."""
    most = MAX_THREADS * DESCRIPTORS_PER_THREAD
    return most if limit is None else min(most, limit // 8)


class _FollowedThread:
    """State of one sampled thread: its last sample, and the wait it was in."""

    __slots__ = ("deleted_ns", "last_ns", "reader", "used_ns", "word")

    def __init__(self, reader: ThreadReader) -> None:
        self.reader = reader
        self.last_ns = 0
        self.word = ""
        self.deleted_ns = -DELETING_PAUSE_NS
        self.used_ns: int | None = None

    def sample(self, now_ns: int) -> ThreadSample | None:
        thread_sample = self.reader.sample(time.monotonic_ns())
        self.last_ns = now_ns
        if thread_sample is not None:
            self.word = classify(thread_sample.state, thread_sample.call, thread_sample.wait)
            if thread_sample.on_cpu_ns == self.used_ns and self.word not in _NEVER_IDLE:
                self.word = "idle"
            if self.word == "unlink":
                self.deleted_ns = now_ns
            self.used_ns = thread_sample.on_cpu_ns
        return thread_sample

    @property
    def is_at_files(self) -> bool:
        return self.word in FILE_WORDS


class _SampledThreads:
    """The sampled threads of one process; without a trace, working threads are found by their counters."""

    def __init__(self, watching: WatchedProcess) -> None:
        self.watching = watching
        self.followed: dict[int, _FollowedThread] = {}
        self._threads: list[int] = []
        self._ran: dict[int, None] = {}  # threads that ran in an earlier sweep, the latest first
        self._used: dict[int, bytes | None] = {}
        self._sweep_position = 0  # index of the next thread to sweep
        self._spent_ns = 0
        self._review_ns = 0
        self._urgent_ns = 0

    def due_threads(self, now_ns: int, *, traced: bool) -> list[int]:
        """Return the threads to sample now, the most important first."""
        watching = self.watching
        at_files = [tid for tid, thread in self.followed.items() if thread.is_at_files]
        if not watching.activity.is_in_burst() or not watching.activity.is_urgent(now_ns):
            # no bytes are transferred: a sync is in progress, old files are deleted, it waits, or nothing is done
            clears = now_ns - self._urgent_ns <= MAX_CLEANUP_NS
            deleting = [tid for tid, one in self.followed.items() if now_ns - one.deleted_ns <= DELETING_PAUSE_NS]
            trainer = self.followed.get(watching.process.pid) if watching.is_training else None
            waits = trainer is not None and (trainer.word == "idle" or now_ns - self._urgent_ns <= IDLE_INTERVAL_NS)
            waiting = [watching.process.pid] if waits else []
            return list(dict.fromkeys((*at_files, *((*deleting, *waiting) if clears else ()))))
        self._urgent_ns = now_ns
        if traced:
            movers = watching.traced.movers
            movers_found = [tid for tid, last_ns in movers.items() if now_ns - last_ns <= RECENT_NS]
            movers_found.sort(key=movers.__getitem__, reverse=True)
        else:
            movers_found = self._workers(now_ns)
        main = [watching.process.pid] if watching.is_training else []
        return list(dict.fromkeys((*main, *at_files, *movers_found)))[:MAX_EACH]

    def _workers(self, now_ns: int) -> list[int]:
        """All threads if there are few, else those that have run since the last sweep.

        Of very many, a part is swept in turn, together with those that ran last.
        """
        if now_ns < self._review_ns:
            return self._threads
        start_ns = time.thread_time_ns()
        threads = list_threads(self.watching.process)
        if len(threads) <= MAX_EACH:
            self._threads = threads
            self._review_ns = now_ns + REVIEW_INTERVAL_NS
            return threads
        end = self._sweep_position + MAX_SWEPT
        swept = dict.fromkeys((*self._threads, *self._ran, *threads[self._sweep_position : end]))
        used = {tid: read_schedstat(self.watching.process, tid) for tid in swept}
        self._spent_ns += time.thread_time_ns() - start_ns
        known = self._used
        if known:
            is_whole = len(threads) <= MAX_SWEPT  # all were swept before: an unknown thread is new, and has run
            running = (tid for tid in swept if used[tid] != known.get(tid, None if is_whole else used[tid]))
            self._threads = list(islice(running, MAX_EACH))
            self._ran = dict.fromkeys(islice(dict.fromkeys((*self._threads, *self._ran)), 4 * MAX_EACH))
            self._sweep_position = end if end < len(threads) else 0
            self._review_ns = now_ns + max(REVIEW_INTERVAL_NS, int(self._spent_ns / SWEEP_SHARE))
            self._spent_ns = 0
        else:
            self._threads = threads[:1]  # the working threads are known at the next tick
        self._used = {tid: known[tid] for tid in threads if tid in known} | used
        return self._threads


class ThreadSampling:
    """Samples the threads of all processes that are in a burst."""

    def __init__(self, fs: KernelFs, descriptors: int) -> None:
        """`descriptors`: the most to keep open."""
        self._delays = has_delay_accounting(fs)
        self._max_threads = descriptors // DESCRIPTORS_PER_THREAD
        self._count = 0
        self._groups: dict[int, _SampledThreads] = {}
        self._waiting_ranks: list[WatchedProcess] = []
        self._ranks_reviewed_ns = 0
        self._allowance = CpuAllowance(SHARE, SAVED_NS)
        self._cost_ns = _FIRST_COST_NS

    @property
    def is_busy(self) -> bool:
        """Threads are being sampled."""
        return bool(self._groups)

    def sample(
        self, now_ns: int, bursting: Sequence[WatchedProcess], watched: dict[int, WatchedProcess], *, traced: bool
    ) -> list[ThreadSample]:
        """Return samples of the threads that are due."""
        if not bursting and not self._groups:
            return []
        started = time.thread_time_ns()
        samples = self._close_ended(now_ns, watched)
        wanted = self._due_threads(now_ns, bursting, watched, traced=traced)
        samples += self._drop(now_ns, wanted)
        fresh = list(self._open(wanted))
        samples += self._sample_threads(now_ns, fresh)
        followed = (thread for group in self._groups.values() for thread in group.followed.values())
        due = [one for one in followed if now_ns - one.last_ns >= (IDLE_INTERVAL_NS if one.word == "idle" else 1)]
        due.sort(key=lambda thread: thread.last_ns)
        capacity = max(0, self._allowance.left_ns(now_ns)) // self._cost_ns
        samples += self._sample_threads(now_ns, due[:capacity])
        spent = time.thread_time_ns() - started
        self._allowance.spend(spent)
        if samples:
            self._cost_ns = max(5_000, (7 * self._cost_ns + spent // len(samples)) // 8)
        return samples

    def _due_threads(
        self, now_ns: int, bursting: Sequence[WatchedProcess], watched: dict[int, WatchedProcess], *, traced: bool
    ) -> dict[int, list[int]]:
        wanted: dict[int, list[int]] = {}
        for watching in bursting:
            self._groups.setdefault(watching.process.pid, _SampledThreads(watching))
        for pid, group in self._groups.items():
            BLOCKING_PROCESSES.reading = pid
            threads = group.due_threads(now_ns, traced=traced)
            if threads:
                wanted[pid] = threads
        if wanted:
            if now_ns - self._ranks_reviewed_ns >= REVIEW_INTERVAL_NS:
                self._ranks_reviewed_ns = now_ns
                self._waiting_ranks = ranks_of_same_jobs([watched[pid] for pid in wanted], watched)
            for mate in self._waiting_ranks:
                pid = mate.process.pid
                if watched.get(pid) is mate:
                    self._groups.setdefault(pid, _SampledThreads(mate))
                    wanted.setdefault(pid, [pid])
        else:
            self._waiting_ranks, self._ranks_reviewed_ns = [], 0
        return wanted

    def _close_ended(self, now_ns: int, watched: dict[int, WatchedProcess]) -> list[ThreadSample]:
        samples: list[ThreadSample] = []
        for pid, group in list(self._groups.items()):
            if watched.get(pid) is not group.watching:
                samples += self._close(now_ns, group)
                del self._groups[pid]
        return samples

    def _drop(self, now_ns: int, wanted: dict[int, list[int]]) -> list[ThreadSample]:
        """Sample finished threads a last time, to bracket their sums; keep those that are in file I/O again."""
        samples: list[ThreadSample] = []
        for pid, group in list(self._groups.items()):
            keep = set(wanted.get(pid, ()))
            done = [thread for tid, thread in group.followed.items() if tid not in keep]
            samples += self._sample_threads(now_ns, done)
            for thread in done:
                if not thread.is_at_files:
                    self._close_thread(thread)
            if not keep and not group.followed and not group.watching.activity.is_in_burst():
                del self._groups[pid]
        return samples

    def _close(self, now_ns: int, group: _SampledThreads) -> list[ThreadSample]:
        threads = list(group.followed.values())
        samples = self._sample_threads(now_ns, threads)
        for thread in threads:
            self._close_thread(thread)
        return samples

    def _close_thread(self, thread: _FollowedThread) -> None:
        group = self._groups.get(thread.reader.process.pid)
        if group is not None and group.followed.pop(thread.reader.tid, None) is not None:
            self._count -= 1
        thread.reader.close()

    def _open(self, wanted: dict[int, list[int]]) -> Iterator[_FollowedThread]:
        for pid, tids in wanted.items():
            BLOCKING_PROCESSES.reading = pid
            group = self._groups[pid]
            for tid in tids:
                if tid in group.followed or self._count >= self._max_threads:
                    continue
                try:
                    thread = _FollowedThread(ThreadReader(group.watching.process, tid, delays=self._delays))
                except (ThreadGone, ProcessGone, OSError):  # ended already, or no descriptor is left
                    continue
                group.followed[tid] = thread
                self._count += 1
                yield thread

    def _sample_threads(self, now_ns: int, threads: Iterable[_FollowedThread]) -> list[ThreadSample]:
        samples = []
        for thread in threads:
            pid = thread.reader.process.pid
            if pid in BLOCKING_PROCESSES:
                self._close_thread(thread)
                continue
            BLOCKING_PROCESSES.reading = pid
            try:
                sample = thread.sample(now_ns)
            except ThreadGone:
                self._close_thread(thread)
                continue
            if sample is not None:
                samples.append(sample)
        return samples

    def sample_last(self, now_ns: int) -> list[ThreadSample]:
        """Sample all followed threads a last time, and close."""
        samples = [sample for group in self._groups.values() for sample in self._close(now_ns, group)]
        self._groups.clear()
        return samples


def ranks_of_same_jobs(bursting: Iterable[WatchedProcess], watched: dict[int, WatchedProcess]) -> list[WatchedProcess]:
    """Return the ranks of the jobs of these processes, without the helper processes of a rank."""
    families = {_job_root_pid(watching, watched) for watching in bursting}
    found = []
    for watching in watched.values():
        if not watching.is_training or (rank := watching.rank) is None:
            continue
        parent = watched.get(watching.process.parent_pid)
        if parent is not None and parent.is_training and parent.rank == rank:
            continue
        if _job_root_pid(watching, watched) in families:
            found.append(watching)
    return found[:MAX_WAITING_RANKS]


def _job_root_pid(watching: WatchedProcess, watched: dict[int, WatchedProcess]) -> int:
    """Pid of the parent of a job's oldest training process: all others descend from it."""
    visited = {watching.process.pid}
    while (parent := watched.get(watching.process.parent_pid)) is not None and parent.is_training:
        if parent.process.pid in visited:
            break
        visited.add(parent.process.pid)
        watching = parent
    parent_pid = watching.process.parent_pid
    return parent_pid if parent_pid > 1 else watching.process.pid


def max_retained_processes(processes: int) -> int:
    """Return for how many of these processes descriptors stay open; files of others are opened for each read."""
    limit = open_limit()
    if limit is None:
        return processes
    spare = _SPARE_DESCRIPTORS + descriptor_budget(limit) + _trace_descriptors()
    return max(0, min(processes, (limit - spare) // _DESCRIPTORS_PER_PROCESS))


def descriptor_shortage() -> str:
    """Return why the trace leaves no descriptors for sampling; empty if there are enough for both."""
    limit, trace_descriptors = open_limit(), _trace_descriptors()
    if limit is None or limit >= trace_descriptors + _SPARE_DESCRIPTORS:
        return ""
    return f"it needs {trace_descriptors} of at most {limit} open files (LimitNOFILE=, ulimit -n)"


def open_limit() -> int | None:
    """Return how many descriptors this process may have; None: there is no limit."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _trace_descriptors() -> int:
    """Count the open descriptors of the trace: maps, programs, links, types, events."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the descriptor of the listing is closed by now
            count += os.readlink(f"/proc/self/fd/{name}").startswith(_TRACE_LINKS)
    return count
