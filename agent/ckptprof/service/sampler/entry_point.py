"""The process of the sampler, from its command line to its end.

The thread that runs the loop is in the real-time scheduling class, so that ticks are on time on a busy host; a late
tick misses short saves. With three busy loops on two cores the 99th percentile of the lateness is 9 ms, and single
ticks are 0.4 s late, in the ordinary class; in the real-time class it is 1.1 ms, and 1.5 ms at most, for the same CPU
time. Threads and children that it starts are in the ordinary class. If a tick computes for long, the kernel sends
SIGXCPU (RLIMIT_RTTIME, setrlimit(2)), and the thread is ordinary for a while, so that a fault in the sampler takes no
CPU from training.

If reading about a process blocks the loop (`ckptprof_collectors.blocking_processes`), another thread takes it over. The
blocked thread ends as soon as it can run again (PyThreadState_SetAsyncExc), before it changes any state: so there is
one loop at any time.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import msgspec

from ckptprof.service.sampler.outputqueue import OutputQueue
from ckptprof.service.sampler.sampler_loop import Sampler
from ckptprof.service.sampler_options import SamplerOptions
from ckptprof.service.title import set_title
from ckptprof_collectors import heap, privileges
from ckptprof_collectors.abandoned import uninterruptible_sleep
from ckptprof_collectors.blocking_processes import BLOCKING_PROCESSES
from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.privileges import RAISED

CHECK_SECONDS = 0.25  # a thread that sleeps in the same read at two checks is blocked
CALM_CHECK_SECONDS = 1.0  # while no bytes move
MAX_BLOCKED_LOOPS = 8  # threads blocked at the same time; with more, the recorder replaces the sampler
RECENT_CHECKS = 40
MAX_SLOW_CHECKS = 8  # checks at which the loop slept in reads of one user's processes
REFUSED_SECONDS = 30.0
# prefixes of kernel functions in which a thread waits for a page of its own that was swapped out
_PAGE_WAITS = (
    "folio_wait",
    "__folio_",
    "filemap_",
    "swap",
    "do_swap",
    "rq_qos_",
    "blk_mq_",
    "submit_bio_",
    "io_schedule",
)
MAX_RUN_US = 20_000  # of CPU time without a sleep: a tick takes some milliseconds
ORDINARY_SECONDS = 10.0  # in the ordinary class after it ran longer
_LEAST_PRIORITY = 1


class LoopReplacedError(BaseException):
    """Raised in a loop that another thread has taken over."""


class _LoopThread:
    def __init__(self, ident: int, native_id: int) -> None:
        self.ident = ident
        self._native_id = native_id
        self.has_ended = False

    def current_sleep(self) -> bytes | None:
        """Identity of this sleep in the kernel; None if the thread runs, or waits for its own memory."""
        if (sleep := uninterruptible_sleep(self._native_id)) is None:
            return None
        try:
            with open(f"/proc/{self._native_id}/wchan", "rb", buffering=0) as file:
                return None if os.fsdecode(file.read(1024)).startswith(_PAGE_WAITS) else sleep
        except OSError:
            return None


class LoopRelay:
    """Runs the loop in the calling thread, and in a new one whenever that is blocked."""

    def __init__(
        self, loop: Sampler, end: Callable[[int], None], *, prepare_thread: Callable[[], None] = lambda: None
    ) -> None:
        """`end` exits this process with a code; `prepare_thread` is called by each thread before it runs the loop."""
        self._loop = loop
        self._end = end
        self._prepare_thread = prepare_thread
        self._thread = _LoopThread(0, 0)
        self._has_ended = threading.Event()
        self._slow_users: deque[int] = deque(maxlen=RECENT_CHECKS)

    def run(self) -> None:
        """Run until the loop ends."""
        self._thread = _LoopThread(threading.get_ident(), threading.get_native_id())
        threading.Thread(target=self._supervise, name="relay", daemon=True).start()
        self._run_loop(self._loop.run)
        self._has_ended.wait()  # another thread runs the loop, and ends this process

    def _run_loop(self, work: Callable[[], None]) -> None:
        thread = self._thread
        try:
            self._prepare_thread()
            work()
        except LoopReplacedError:
            thread.has_ended = True
        except BaseException:  # noqa: BLE001 - as at the end of an interpreter
            sys.excepthook(*sys.exc_info())
            self._end(1)
            self._has_ended.set()
        else:
            self._end(0)
            self._has_ended.set()

    def _supervise(self) -> None:
        last = None
        while not self._has_ended.wait(CALM_CHECK_SECONDS if last is None and self._loop.is_calm else CHECK_SECONDS):
            last = self._check(last)

    def _check(self, last: tuple[int, bytes] | None) -> tuple[int, bytes] | None:
        pid = BLOCKING_PROCESSES.reading
        sleep = self._sleep() if pid else None
        if sleep is None:
            self._slow_users.append(0)
            return None
        user = BLOCKING_PROCESSES.user_of(pid)
        self._slow_users.append(user)
        if self._slow_users.count(user) > MAX_SLOW_CHECKS:  # each read of this user's processes returns, but late
            BLOCKING_PROCESSES.refuse(user, REFUSED_SECONDS)
            self._slow_users.clear()
        if (pid, sleep) == last and len(BLOCKING_PROCESSES) < MAX_BLOCKED_LOOPS and BLOCKING_PROCESSES.reading == pid:
            self._replace_loop(pid)
            return None
        return pid, sleep

    def _sleep(self) -> bytes | None:
        return self._thread.current_sleep()

    def _replace_loop(self, pid: int) -> None:
        blocked = self._thread
        interrupt = ctypes.pythonapi.PyThreadState_SetAsyncExc
        if interrupt(ctypes.c_ulong(blocked.ident), ctypes.py_object(LoopReplacedError)) != 1:
            return
        BLOCKING_PROCESSES.add(pid, lambda: blocked.has_ended)
        BLOCKING_PROCESSES.reading = 0
        self._loop.release_loop()
        started = threading.Event()

        def take_over() -> None:
            self._thread = _LoopThread(threading.get_ident(), threading.get_native_id())
            started.set()
            self._run_loop(self._loop.resume)

        threading.Thread(target=take_over, name="loop", daemon=True).start()
        started.wait()


class RealTimeThread:
    """Puts the loop's thread into the real-time class, where the host allows that (LimitRTPRIO=, root)."""

    def __init__(self) -> None:
        """Set the limit of CPU time without a sleep; call in the main thread, which receives signals."""
        self._thread = 0
        self._allowed = self._is_within_budget = True
        signal.signal(signal.SIGXCPU, self._on_cpu_limit)
        hard = resource.getrlimit(resource.RLIMIT_RTTIME)[1]
        try:
            resource.setrlimit(resource.RLIMIT_RTTIME, (MAX_RUN_US, hard))
        except (OSError, ValueError):  # without the limit it stays in the ordinary class
            self._allowed = False

    def run(self) -> None:
        """Apply to the calling thread, which runs the loop from now on."""
        self._thread = threading.get_native_id()
        self._return()

    def set_within_budget(self, is_within: bool) -> None:  # noqa: FBT001 - a callback
        """Have the loop be an ordinary thread while the CPU budget is exceeded."""
        self._is_within_budget = is_within
        self._enter() if is_within else self._leave()

    def _enter(self) -> None:
        if self._allowed and self._is_within_budget:
            try:
                policy = os.SCHED_RR | os.SCHED_RESET_ON_FORK
                os.sched_setscheduler(self._thread, policy, os.sched_param(_LEAST_PRIORITY))
            except OSError:  # not allowed here
                self._allowed = False

    def _leave(self) -> None:
        with suppress(OSError):  # it has ended
            os.sched_setscheduler(self._thread, os.SCHED_OTHER, os.sched_param(0))

    def _return(self) -> None:
        RAISED.lower()  # a timer's thread starts with the capabilities of the loop's
        self._enter()

    def _on_cpu_limit(self, *_: object) -> None:
        self._leave()
        again = threading.Timer(ORDINARY_SECONDS, self._return)
        again.daemon = True
        again.start()


def main() -> None:
    """Run the sampler: options as JSON on the command line, control on standard input, frames on standard output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the recorder decides when we end
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    options = msgspec.json.decode(sys.argv[1], type=SamplerOptions)
    set_title("sampler")
    heap.limit_heap()
    privileges.forbid_ptrace()
    if options.witness_fd is not None:
        signal.set_wakeup_fd(options.witness_fd, warn_on_full_buffer=False)
        for number in options.witness_signals:
            signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # the recorder blocks signals that it handles
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    output = OutputQueue(os.dup(1))
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)  # nothing that prints may reach the stream of frames
    os.close(null)
    sampler = Sampler(options, KernelFs(), output, 0)
    sampler.drop_privileges()

    def end(code: int) -> None:
        output.close()  # first: a thread that waits for a file server cannot be ended, and would keep the pipe open
        os.closerange(0, 3)
        os._exit(code)

    thread = RealTimeThread()
    sampler.on_budget = thread.set_within_budget
    LoopRelay(sampler, end, prepare_thread=thread.run).run()


if __name__ == "__main__":
    main()
