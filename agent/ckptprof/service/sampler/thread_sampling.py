"""When to look at which threads: those that move data now, while they do, and the main threads of ranks that wait.

Counters are cumulative, so that looks may be few: the first and the last bracket what lies between. All looks together
take at most `SHARE` of a core, those that are due longest first; nothing is looked at between bursts.
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
MAX_THREADS = 128  # of all
MAX_WAITING_RANKS = 64  # main threads of further ranks
RECENT_NS = 2_000_000_000  # so long after the trace told of a thread it may still be at it
IDLE_INTERVAL_NS = (
    250_000_000  # between looks at a thread that sleeps, but not over a file: an idle pool of them costs little
)
DELETING_PAUSE_NS = 1_000_000_000  # who deleted a file so lately goes on: a tree is listed and emptied in turns
MAX_CLEANUP_NS = 60_000_000_000  # after the last byte: who deletes for longer does not clean up after a save
REVIEW_INTERVAL_NS = 1_000_000_000  # who of many threads works, and who is of the same job, is found out so often
MAX_SWEPT = 512  # at a time
SWEEP_SHARE = 0.003  # of a core, to find out who of one process works: of thousands more seldom
SHARE = 0.006  # of a core
SAVED_NS = 12_000_000  # of CPU time, for the begin of a burst
_FIRST_COST_NS = 30_000
_NEVER_IDLE = FILE_WORDS | {"running"}
_DESCRIPTORS_PER_PROCESS = (
    7  # descriptors, kept for a process that is watched and trains; two for one that is only known
)
_SPARE_DESCRIPTORS = 48  # for the collectors, and what is open for a moment only
_TRACE_LINKS = ("anon_inode:bpf", "anon_inode:btf", "anon_inode:[perf_event]")


def descriptor_budget(limit: int | None) -> int:
    """Return how many of `limit` descriptors the looks may keep; None: there is no limit."""
    return (
        MAX_THREADS * DESCRIPTORS_PER_THREAD if limit is None else min(MAX_THREADS * DESCRIPTORS_PER_THREAD, limit // 8)
    )


class _FollowedThread:
    """What is kept about one thread: when it was looked at last, and what it was in."""

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
    """The threads of one process that are looked at; without a trace those that work are found by their counters."""

    def __init__(self, watching: WatchedProcess) -> None:
        self.watching = watching
        self.followed: dict[int, _FollowedThread] = {}
        self._threads: list[int] = []
        self._ran: dict[int, None] = {}  # those that ran in an earlier sweep, the latest first
        self._used: dict[int, bytes | None] = {}
        self._sweep_position = 0  # the first of those that are swept
        self._spent_ns = 0
        self._review_ns = 0
        self._urgent_ns = 0

    def due_threads(self, now_ns: int, *, traced: bool) -> list[int]:
        """Return the threads to look at now, the most important first."""
        watching = self.watching
        at_files = [tid for tid, thread in self.followed.items() if thread.is_at_files]
        if not watching.activity.is_in_burst() or not watching.activity.is_urgent(now_ns):
            # no bytes move: a sync of what was written goes on, old files are deleted, or nothing is done
            clears = now_ns - self._urgent_ns <= MAX_CLEANUP_NS
            deleting = (
                [tid for tid, one in self.followed.items() if now_ns - one.deleted_ns <= DELETING_PAUSE_NS]
                if clears
                else []
            )
            return list(dict.fromkeys((*at_files, *deleting)))
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
        """Return all threads if there are few, else those that have run since they were swept before.

        Of very many some are swept in turn, and each time those that were the last to have run.
        """
        if now_ns < self._review_ns:
            return self._threads
        start_ns = time.thread_time_ns()
        threads = list_threads(self.watching.process)
        if len(threads) <= MAX_EACH:
            self._threads = threads
            self._review_ns = now_ns + REVIEW_INTERVAL_NS
            return threads
        swept = dict.fromkeys(
            (*self._threads, *self._ran, *threads[self._sweep_position : self._sweep_position + MAX_SWEPT])
        )
        used = {tid: read_schedstat(self.watching.process, tid) for tid in swept}
        self._spent_ns += time.thread_time_ns() - start_ns
        known = self._used
        if known:
            is_whole = len(threads) <= MAX_SWEPT  # each was swept before: who was not is new, and has run
            running = (tid for tid in swept if used[tid] != known.get(tid, None if is_whole else used[tid]))
            self._threads = list(islice(running, MAX_EACH))
            self._ran = dict.fromkeys(islice(dict.fromkeys((*self._threads, *self._ran)), 4 * MAX_EACH))
            self._sweep_position = (
                self._sweep_position + MAX_SWEPT if self._sweep_position + MAX_SWEPT < len(threads) else 0
            )
            self._review_ns = now_ns + max(REVIEW_INTERVAL_NS, int(self._spent_ns / SWEEP_SHARE))
            self._spent_ns = 0
        else:
            self._threads = threads[:1]  # who works is seen at the next tick
        self._used = {tid: known[tid] for tid in threads if tid in known} | used
        return self._threads


class ThreadSampling:
    """Looks at the threads of all processes that are in a burst."""

    def __init__(self, fs: KernelFs, descriptors: int) -> None:
        """Keep no more descriptors than these."""
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
        """Whether threads are kept in view."""
        return bool(self._groups)

    def sample(
        self, now_ns: int, bursting: Sequence[WatchedProcess], watched: dict[int, WatchedProcess], *, traced: bool
    ) -> list[ThreadSample]:
        """Return what is seen of those that are due now."""
        if not bursting and not self._groups:
            return []
        started = time.thread_time_ns()
        samples = self._close_ended(now_ns, watched)
        wanted = self._due_threads(now_ns, bursting, watched, traced=traced)
        samples += self._drop(now_ns, wanted)
        fresh = list(self._open(wanted))
        samples += self._sample_threads(now_ns, fresh)
        due = [
            thread for group in self._groups.values() for thread in group.followed.values() if _is_due(thread, now_ns)
        ]
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
        """Look a last time at those who are done, so that their sums are bracketed; who is at a file by then stays."""
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
        """Look a last time at all that are kept, and close."""
        samples = [sample for group in self._groups.values() for sample in self._close(now_ns, group)]
        self._groups.clear()
        return samples


def _is_due(thread: _FollowedThread, now_ns: int) -> bool:
    return now_ns - thread.last_ns >= IDLE_INTERVAL_NS if thread.word == "idle" else thread.last_ns != now_ns


def ranks_of_same_jobs(bursting: Iterable[WatchedProcess], watched: dict[int, WatchedProcess]) -> list[WatchedProcess]:
    """Return the ranks of the jobs of these processes; of a rank's helpers none."""
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
    """Return the pid of the process that started the oldest one of a job that trains: all others descend from it."""
    visited = {watching.process.pid}
    while (parent := watched.get(watching.process.parent_pid)) is not None and parent.is_training:
        if parent.process.pid in visited:
            break
        visited.add(parent.process.pid)
        watching = parent
    parent_pid = watching.process.parent_pid
    return parent_pid if parent_pid > 1 else watching.process.pid


def max_retained_processes(processes: int) -> int:
    """Return of how many of these processes descriptors can be kept; the files of others are opened for each read."""
    limit = open_limit()
    if limit is None:
        return processes
    spare = _SPARE_DESCRIPTORS + descriptor_budget(limit) + _trace_descriptors()
    return max(0, min(processes, (limit - spare) // _DESCRIPTORS_PER_PROCESS))


def descriptor_shortage() -> str:
    """Return why nothing could be looked at beside this trace; nothing if there are descriptors for both."""
    limit, trace_descriptors = open_limit(), _trace_descriptors()
    if limit is None or limit >= trace_descriptors + _SPARE_DESCRIPTORS:
        return ""
    return f"it needs {trace_descriptors} of at most {limit} open files (LimitNOFILE=, ulimit -n)"


def open_limit() -> int | None:
    """Return how many descriptors this process may have; None: as many as it likes."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _trace_descriptors() -> int:
    """Return how many descriptors the trace holds: maps, programs, links, types, events."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the list's own descriptor is closed by now
            count += os.readlink(f"/proc/self/fd/{name}").startswith(_TRACE_LINKS)
    return count
