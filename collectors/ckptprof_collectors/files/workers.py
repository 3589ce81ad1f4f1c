"""Work that may hang, in a few threads: a queue for each failure domain, so that what hangs holds up itself only.

All local file systems are one domain with a thread of its own. The other domains share the other threads; each has one
of them at a time.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

from ckptprof_collectors.mounts.failuredomains import LOCAL, FailureDomains

MAX_THREADS = 5  # one for what is local, the others for at most so many servers that hang at once
MAX_JOBS = 64  # of one domain
MAX_DOMAINS = 64
_IDLE_SECONDS = 60.0
_HUNG_NS = 1_500_000_000

Job = Callable[[], bool]  # does some tenths of a second of work, and returns whether there is more of it


class WorkerPool:
    """Bounded queues and bounded threads; a job too many is refused."""

    def __init__(self, *, limit: int = MAX_JOBS) -> None:
        """Take at most `limit` jobs a domain; threads start when there is work, and end when there is none."""
        self.mounts = FailureDomains()
        self._limit = limit
        self._changed = threading.Condition()
        self._queues: dict[str, deque[Job]] = {}
        self._running: dict[str, int] = {}  # domain to when its job began
        self._threads = {True: 0, False: 0}  # of what is local, and of what is apart
        self._idle = {True: 0, False: 0}
        self.failed = 0

    def put(self, domain: str, job: Job) -> bool:
        """Have a job done in a thread; return False if that domain has too many. Never waits for a file system."""
        local = domain == LOCAL
        with self._changed:
            queue = self._queues.get(domain)
            if queue is None:
                if len(self._queues) >= MAX_DOMAINS:
                    return False
                queue = self._queues[domain] = deque()
            if len(queue) >= self._limit:
                return False
            queue.append(job)
            ready = sum(1 for _ in self._ready(local=local))
            if ready > self._idle[local] and self._threads[local] < (1 if local else MAX_THREADS - 1):
                self._start(local=local)
            self._changed.notify_all()
        return True

    def _ready(self, *, local: bool) -> Iterator[str]:
        """Yield the domains with work that nobody works on."""
        return (domain for domain in self._queues if (domain == LOCAL) == local and domain not in self._running)

    def _start(self, *, local: bool) -> None:
        self._threads[local] += 1
        try:
            threading.Thread(target=self._work, args=(local,), name="worker", daemon=True).start()
        except RuntimeError:  # no more threads for this user, for the moment
            self._threads[local] -= 1

    def waiting(self) -> bool:
        """Return whether there is work to be done yet, leaving out what waits behind a call that hangs."""
        now_ns = time.monotonic_ns()
        with self._changed:
            hung = {domain for domain, began_ns in self._running.items() if domain and now_ns - began_ns > _HUNG_NS}
            free = len(hung) < MAX_THREADS - 1
            return any(domain not in hung and (free or domain == LOCAL) for domain in (*self._queues, *self._running))

    def _work(self, local: bool) -> None:  # noqa: FBT001 - an argument of a thread
        while (taken := self._take(local=local)) is not None:
            domain, job = taken
            more = False
            try:
                more = job()
            except Exception:  # noqa: BLE001 - the thread must outlive any job
                self.failed += 1
            with self._changed:
                del self._running[domain]
                if more:
                    self._queues.setdefault(domain, deque()).append(job)
                self._changed.notify_all()

    def _take(self, *, local: bool) -> tuple[str, Job] | None:
        """Wait for a job whose domain nobody works on; None once there has been none for long."""
        with self._changed:
            waited = False
            while (domain := next(self._ready(local=local), None)) is None:
                if waited:
                    self._threads[local] -= 1
                    return None
                self._idle[local] += 1
                waited = not self._changed.wait(_IDLE_SECONDS)
                self._idle[local] -= 1
            queue = self._queues.pop(domain)
            job = queue.popleft()
            if queue:
                self._queues[domain] = queue  # behind the others
            self._running[domain] = time.monotonic_ns()
            return domain, job


WORKERS = WorkerPool()  # of this process: threads that hang are the process's, too
