"""Work that may hang, in a few threads: a queue for each failure domain, so that what hangs holds up itself only.

What is local has a thread of its own for what is long, and one for what is urgent. The other domains share the other
threads; each has one of them at a time. A thread that hangs is replaced, so that it holds up its own domain only, and
those are bounded in number: a call that the kernel cannot interrupt is never come back from.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator

from ckptprof_collectors.files.views import Views
from ckptprof_collectors.mounts.failuredomains import LOCAL

URGENT = "urgent"  # what is local, too, and done within a millisecond
MAX_APART = 4  # threads for all that is neither
MAX_HUNG = 4  # of each lane: threads that were replaced and have not come back
MAX_JOBS = 64  # of one domain
MAX_DOMAINS = 64
_IDLE_SECONDS = 60.0
HUNG_NS = 1_500_000_000
_ON_THE_MACHINE = frozenset((LOCAL, URGENT))
_APART = "apart"

Job = Callable[[], bool]  # does some tenths of a second of work, and returns whether there is more of it


class _Turn:
    """A job that a thread has begun."""

    __slots__ = ("began_ns", "domain", "hangs")

    def __init__(self, domain: str) -> None:
        self.domain = domain
        self.began_ns = time.monotonic_ns()
        self.hangs = False  # another thread has taken the place of this one


class WorkerPool:
    """Bounded queues and bounded threads; a job too many is refused and counted."""

    def __init__(self, *, limit: int = MAX_JOBS) -> None:
        """Take at most `limit` jobs a domain; threads start when there is work, and end when there is none."""
        self.views = Views()
        self._limit = limit
        self._changed = threading.Condition()
        self._queues: dict[str, deque[Job]] = {}
        self._running: set[_Turn] = set()
        self._threads: Counter[str] = Counter()  # by lane; those that hang are not counted
        self._idle: Counter[str] = Counter()
        self.failed = 0
        self.refused = 0
        self.replaced = 0

    def put(self, domain: str, job: Job) -> bool:
        """Have a job done in a thread; return False if that domain has too many. Never waits for a file system."""
        with self._changed:
            queue = self._queues.get(domain)
            if (queue is None and len(self._queues) >= MAX_DOMAINS) or (queue and len(queue) >= self._limit):
                self.refused += 1
                return False
            if queue is None:
                queue = self._queues[domain] = deque()
            queue.append(job)
            self._staff(_lane(domain))
            self._changed.notify_all()
        return True

    def tend(self) -> None:
        """Replace the threads that hang; to be called now and then by whoever puts jobs."""
        if not self._running:
            return
        now_ns = time.monotonic_ns()
        with self._changed:
            hung = Counter(_lane(turn.domain) for turn in self._running if turn.hangs)
            for turn in self._running:
                lane = _lane(turn.domain)
                if not turn.hangs and now_ns - turn.began_ns > HUNG_NS and hung[lane] < MAX_HUNG:
                    turn.hangs = True
                    hung[lane] += 1
                    self.replaced += 1
                    self._threads[lane] -= 1
                    self._staff(lane)

    def hung(self) -> list[str]:
        """Return the domains of the calls that do not come back, one for each, their threads replaced or not."""
        now_ns = time.monotonic_ns()
        with self._changed:
            return sorted(turn.domain for turn in self._running if now_ns - turn.began_ns > HUNG_NS)

    def _staff(self, lane: str) -> None:
        ready = sum(1 for _ in self._ready(lane))
        if ready > self._idle[lane] and self._threads[lane] < (1 if lane in _ON_THE_MACHINE else MAX_APART):
            self._threads[lane] += 1
            try:
                threading.Thread(target=self._work, args=(lane,), name="worker", daemon=True).start()
            except RuntimeError:  # no more threads for this user, for the moment
                self._threads[lane] -= 1

    def _ready(self, lane: str) -> Iterator[str]:
        """Yield the domains with work that nobody works on; of what is local, nobody but who hangs and was replaced."""
        busy = {turn.domain for turn in self._running if not (turn.hangs and turn.domain in _ON_THE_MACHINE)}
        return (domain for domain in self._queues if _lane(domain) == lane and domain not in busy)

    def waiting(self) -> bool:
        """Return whether there is work to be done yet, leaving out what waits behind a call that hangs."""
        self.tend()
        now_ns = time.monotonic_ns()
        with self._changed:
            late = [turn for turn in self._running if now_ns - turn.began_ns > HUNG_NS]
            stuck = {turn.domain for turn in late if not (turn.hangs and turn.domain in _ON_THE_MACHINE)}
            busy = {turn.domain for turn in self._running if turn not in late}
            free = sum(not turn.hangs and _lane(turn.domain) == _APART for turn in late) < MAX_APART
            return any(domain not in stuck and (free or domain in _ON_THE_MACHINE) for domain in (*self._queues, *busy))

    def _work(self, lane: str) -> None:
        while (taken := self._take(lane)) is not None:
            turn, job = taken
            more = False
            try:
                more = job()
            except Exception:  # noqa: BLE001 - the thread must outlive any job
                self.failed += 1
            with self._changed:
                self._running.discard(turn)
                if more:
                    self._queues.setdefault(turn.domain, deque()).append(job)
                self._changed.notify_all()
                if turn.hangs:  # another has its place by now
                    self._staff(lane)
                    return

    def _take(self, lane: str) -> tuple[_Turn, Job] | None:
        """Wait for a job whose domain nobody works on; None once there has been none for long."""
        with self._changed:
            waited = False
            while (domain := next(self._ready(lane), None)) is None:
                if waited:
                    self._threads[lane] -= 1
                    return None
                self._idle[lane] += 1
                waited = not self._changed.wait(_IDLE_SECONDS)
                self._idle[lane] -= 1
            queue = self._queues.pop(domain)
            job = queue.popleft()
            if queue:
                self._queues[domain] = queue  # behind the others
            turn = _Turn(domain)
            self._running.add(turn)
            return turn, job


def _lane(domain: str) -> str:
    return domain if domain in _ON_THE_MACHINE else _APART


WORKERS = WorkerPool()  # of this process: threads that hang are the process's, too
