"""Work that may hang, in a few threads: a queue for each failure domain, so that a hung one blocks only itself.

Local work has one thread for long jobs, and one for urgent ones. The other domains share the other threads, each at
most one at a time. A thread that hangs is replaced, so that it blocks its own domain only. The number of hung threads
is bounded: a call that the kernel cannot interrupt may never return.
"""

from __future__ import annotations

import resource
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator

from ckptprof_collectors.blocking_processes import BLOCKING_PROCESSES, MAX_PER_USER
from ckptprof_collectors.files.process_roots import ProcessRoots
from ckptprof_collectors.mounts.failure_domains import LOCAL
from ckptprof_collectors.privileges import RAISED

URGENT = "urgent"  # local jobs of less than a millisecond
MAX_REMOTE_THREADS = 4  # for all other domains
MAX_HUNG = 4  # of each pool: threads that were replaced and have not returned
MAX_JOBS = 64  # of one domain
MAX_DESCRIPTORS = 6  # of a suspended job: the root, a folder and those above it
_SUSPENDED_SHARE = 4  # suspended jobs use at most 1/4 of the limit of open files
MAX_DOMAINS = 64
_IDLE_SECONDS = 60.0
HUNG_NS = 1_500_000_000
_LOCAL_POOLS = frozenset((LOCAL, URGENT))
_REMOTE_POOL = "apart"

Job = Callable[[], bool]  # works for some tenths of a second; returns True if there is more to do


class _RunningJob:
    __slots__ = ("domain", "is_replaced", "start_ns", "thread")

    def __init__(self, domain: str) -> None:
        self.domain = domain
        self.start_ns = time.monotonic_ns()
        self.is_replaced = False  # its thread hangs, and another one has replaced it
        self.thread = threading.get_ident()


def max_suspended() -> int:
    """Compute how many jobs may be suspended at a time, from the limit of open files."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MAX_JOBS * MAX_DOMAINS if limit == resource.RLIM_INFINITY else limit // _SUSPENDED_SHARE // MAX_DESCRIPTORS


class WorkerPool:
    """Bounded queues and bounded threads; a job too many is refused and counted."""

    def __init__(self, *, limit: int = MAX_JOBS, max_suspended_jobs: Callable[[], int] = max_suspended) -> None:
        """`limit`: jobs queued per domain. Threads start when there is work, and end when there is none."""
        self._max_suspended = max_suspended_jobs
        self.views = ProcessRoots()
        self._limit = limit
        self._lock = threading.Lock()
        self._changed = {pool: threading.Condition(self._lock) for pool in (*_LOCAL_POOLS, _REMOTE_POOL)}
        self._queues: dict[str, deque[Job]] = {}
        self._running: set[_RunningJob] = set()
        self._suspended: set[Job] = set()  # to be continued in their turn
        self._threads: Counter[str] = Counter()  # by pool, without hung ones
        self._idle: Counter[str] = Counter()
        self.failed = 0
        self.refused = 0
        self.replaced = 0

    def put(self, domain: str, job: Job) -> bool:
        """Queue a job; return False if that domain has too many. Never waits for a file system."""
        with self._lock:
            queue = self._queues.get(domain)
            if (queue is None and len(self._queues) >= MAX_DOMAINS) or (queue and len(queue) >= self._limit):
                self.refused += 1
                return False
            self._queues.setdefault(domain, deque()).append(job)
            self._start_threads(_pool(domain))
            self._changed[_pool(domain)].notify()
        return True

    def replace_hung(self) -> None:
        """Replace hung threads; callers of `put` call this from time to time."""
        if not self._running:
            return
        now_ns = time.monotonic_ns()
        with self._lock:
            hung = Counter(_pool(turn.domain) for turn in self._running if turn.is_replaced)
            for turn in self._running:
                pool = _pool(turn.domain)
                if not turn.is_replaced and now_ns - turn.start_ns > HUNG_NS and hung[pool] < MAX_HUNG:
                    turn.is_replaced = True
                    hung[pool] += 1
                    self.replaced += 1
                    self._threads[pool] -= 1
                    self._start_threads(pool)
                    self._record_blocking(turn)

    def _record_blocking(self, turn: _RunningJob) -> None:
        """Stop reading a user's processes if one blocks a thread that opened its root: there are few threads."""
        pid = self.views.entering.get(turn.thread)
        if pid:
            BLOCKING_PROCESSES.add(pid, lambda: turn not in self._running, counts=MAX_PER_USER)

    def hung_domains(self) -> list[str]:
        """Domains of the calls that do not return, one for each call, replaced threads included."""
        now_ns = time.monotonic_ns()
        with self._lock:
            return sorted(turn.domain for turn in self._running if now_ns - turn.start_ns > HUNG_NS)

    def _start_threads(self, pool: str) -> None:
        ready = sum(1 for _ in self._ready(pool))
        if ready > self._idle[pool] and self._threads[pool] < (1 if pool in _LOCAL_POOLS else MAX_REMOTE_THREADS):
            self._threads[pool] += 1
            try:
                threading.Thread(target=self._run, args=(pool,), name="worker", daemon=True).start()
            except RuntimeError:  # no more threads for this user, for the moment
                self._threads[pool] -= 1

    def _ready(self, pool: str) -> Iterator[str]:
        """Yield the domains with queued work and no thread; for local work, hung and replaced threads do not count."""
        busy = {turn.domain for turn in self._running if not (turn.is_replaced and turn.domain in _LOCAL_POOLS)}
        return (domain for domain in self._queues if _pool(domain) == pool and domain not in busy)

    def has_work(self) -> bool:
        """Test for work to do, except jobs behind a hung call."""
        self.replace_hung()
        now_ns = time.monotonic_ns()
        with self._lock:
            hung = [turn for turn in self._running if now_ns - turn.start_ns > HUNG_NS]
            stuck = {turn.domain for turn in hung if not (turn.is_replaced and turn.domain in _LOCAL_POOLS)}
            busy = {turn.domain for turn in self._running if turn not in hung}
            free = (
                sum(not turn.is_replaced and _pool(turn.domain) == _REMOTE_POOL for turn in hung) < MAX_REMOTE_THREADS
            )
            return any(domain not in stuck and (free or domain in _LOCAL_POOLS) for domain in (*self._queues, *busy))

    def _run(self, pool: str) -> None:
        RAISED.lower()  # a thread starts with the capabilities of the tick that started it
        while (claimed := self._claim(pool)) is not None:
            turn, job = claimed
            more = False
            try:
                with RAISED:
                    more = job()
            except Exception:  # noqa: BLE001 - the thread must outlive any job
                self.failed += 1
            with self._lock:
                self._running.discard(turn)
                self._suspend(turn.domain, job) if more else self._suspended.discard(job)
                self._changed[pool].notify()
                if turn.is_replaced:  # another thread has its place
                    self._start_threads(pool)
                    return

    def _suspend(self, domain: str, job: Job) -> None:
        """Suspend a job for the next ones, unless the suspended jobs have too many descriptors."""
        queue = self._queues.setdefault(domain, deque())
        self._suspended.add(job)
        if len(self._suspended) > self._max_suspended():
            queue.appendleft(job)
        else:
            queue.append(job)

    def _claim(self, pool: str) -> tuple[_RunningJob, Job] | None:
        """Wait for a job of a domain without a thread; None after a long time without one."""
        with self._lock:
            waited = False
            while (domain := next(self._ready(pool), None)) is None:
                if waited:
                    self._threads[pool] -= 1
                    return None
                self._idle[pool] += 1
                waited = not self._changed[pool].wait(_IDLE_SECONDS)
                self._idle[pool] -= 1
            queue = self._queues.pop(domain)
            job = queue.popleft()
            if queue:
                self._queues[domain] = queue  # behind the others
            turn = _RunningJob(domain)
            self._running.add(turn)
            return turn, job


def _pool(domain: str) -> str:
    return domain if domain in _LOCAL_POOLS else _REMOTE_POOL


WORKERS = WorkerPool()  # one for this process, as its hung threads are
