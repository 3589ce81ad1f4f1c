"""The process of the sampler, from its command line to its end.

The thread of its loop is in the real-time class, so that ticks come in time beside whatever keeps the CPUs busy: one
that comes late misses what it exists to see. Beside three busy loops on two cores the 99th percentile of the lateness
is 9 ms, and single ticks come 0.4 s late, in the ordinary class; in the real-time class it is 1.1 ms, and 1.5 ms at
most. It takes no more CPU for that. Threads and children that it starts are ordinary ones. If a tick computes for long,
the kernel sends SIGXCPU (RLIMIT_RTTIME, setrlimit(2)), and the thread is an ordinary one for a while, so that no fault
of ours takes the CPU from those who train.

Another thread takes the loop over where a process holds the one that reads of it (`ckptprof_collectors.holders` says
how that can be). The thread that is held is told to end as soon as it can run again (PyThreadState_SetAsyncExc), before
it touches anything: so there is one loop at any time.
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

from ckptprof.service.options import SamplerOptions
from ckptprof.service.sampler.main import Sampler
from ckptprof.service.sampler.outputqueue import OutputQueue
from ckptprof.service.title import set_title
from ckptprof_collectors import heap, privileges
from ckptprof_collectors.abandoned import sleep_of
from ckptprof_collectors.holders import HOLDERS
from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.privileges import RAISED

LOOK_SECONDS = 0.25  # a thread that has slept in one read from one look to the next is held
CALM_LOOK_SECONDS = 1.0  # while no bytes move
MAX_RELIEVED = 8  # threads that are held at the same time; the recorder replaces who has more
RECENT_LOOKS = 40
MAX_SLOW_LOOKS = 8  # of those, at which the loop slept in reads of one user's processes
REFUSED_SECONDS = 30.0
# the beginnings of kernel functions in which a thread waits for a page of its own that was swapped out
_PAGES = ("folio_wait", "__folio_", "filemap_", "swap", "do_swap", "rq_qos_", "blk_mq_", "submit_bio_", "io_schedule")
LONGEST_US = 100_000  # of CPU time without a sleep
ORDINARY_SECONDS = 10.0  # so long after it took longer it is an ordinary thread
_LEAST_PRIORITY = 1


class Abandoned(BaseException):
    """Raised in a loop that another thread has taken over."""


class _Turn:
    def __init__(self, ident: int, native_id: int) -> None:
        self.ident = ident
        self._native_id = native_id
        self.over = False

    def sleep(self) -> bytes | None:
        """Return what tells this sleep in the kernel from any other; None if it runs, or waits for its own memory."""
        if (sleep := sleep_of(self._native_id)) is None:
            return None
        try:
            with open(f"/proc/{self._native_id}/wchan", "rb", buffering=0) as file:
                return None if os.fsdecode(file.read(1024)).startswith(_PAGES) else sleep
        except OSError:
            return None


class Relay:
    """Runs the loop in the thread that calls, and in another one whenever that is held."""

    def __init__(self, loop: Sampler, end: Callable[[int], None], *, begin: Callable[[], None] = lambda: None) -> None:
        """Take what to run, what ends this process with a code, and what each thread does before it runs the loop."""
        self._loop = loop
        self._end = end
        self._begin = begin
        self._turn = _Turn(0, 0)
        self._over = threading.Event()
        self._slow: deque[int] = deque(maxlen=RECENT_LOOKS)

    def run(self) -> None:
        """Run until the end."""
        self._turn = _Turn(threading.get_ident(), threading.get_native_id())
        threading.Thread(target=self._attend, name="relay", daemon=True).start()
        self._take_turn(self._loop.run)
        self._over.wait()  # another thread is at it, and ends this process

    def _take_turn(self, work: Callable[[], None]) -> None:
        turn = self._turn
        try:
            self._begin()
            work()
        except Abandoned:
            turn.over = True
        except BaseException:  # noqa: BLE001 - as at the end of an interpreter
            sys.excepthook(*sys.exc_info())
            self._end(1)
            self._over.set()
        else:
            self._end(0)
            self._over.set()

    def _attend(self) -> None:
        last = None
        while not self._over.wait(CALM_LOOK_SECONDS if last is None and self._loop.calm else LOOK_SECONDS):
            last = self._look(last)

    def _look(self, last: tuple[int, bytes] | None) -> tuple[int, bytes] | None:
        pid = HOLDERS.reading
        sleep = self._sleep() if pid else None
        if sleep is None:
            self._slow.append(0)
            return None
        user = HOLDERS.user_of(pid)
        self._slow.append(user)
        if self._slow.count(user) > MAX_SLOW_LOOKS:  # each read of his comes back, but late
            HOLDERS.refuse(user, REFUSED_SECONDS)
            self._slow.clear()
        if (pid, sleep) == last and len(HOLDERS) < MAX_RELIEVED and HOLDERS.reading == pid:
            self._relieve(pid)
            return None
        return pid, sleep

    def _sleep(self) -> bytes | None:
        return self._turn.sleep()

    def _relieve(self, pid: int) -> None:
        held = self._turn
        if ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(held.ident), ctypes.py_object(Abandoned)) != 1:
            return
        HOLDERS.add(pid, lambda: held.over)
        HOLDERS.reading = 0
        self._loop.relieve()
        started = threading.Event()

        def take_over() -> None:
            self._turn = _Turn(threading.get_ident(), threading.get_native_id())
            started.set()
            self._take_turn(self._loop.go_on)

        threading.Thread(target=take_over, name="loop", daemon=True).start()
        started.wait()


class Punctual:
    """Puts the thread that runs the loop into the real-time class, where the host allows that (LimitRTPRIO=, root)."""

    def __init__(self) -> None:
        """Bound what it may take at once; to be made by the main thread, which takes signals."""
        self._thread = 0
        self._allowed = True
        signal.signal(signal.SIGXCPU, self._took_long)
        hard = resource.getrlimit(resource.RLIMIT_RTTIME)[1]
        try:
            resource.setrlimit(resource.RLIMIT_RTTIME, (LONGEST_US, hard))
        except (OSError, ValueError):  # without the bound it does not take what it could not give back
            self._allowed = False

    def run(self) -> None:
        """Have the calling thread be the one that runs the loop, from now on."""
        self._thread = threading.get_native_id()
        self._enter()

    def _enter(self) -> None:
        RAISED.lower()  # a timer's thread begins as the loop was when it was set
        if self._allowed:
            try:
                policy = os.SCHED_RR | os.SCHED_RESET_ON_FORK
                os.sched_setscheduler(self._thread, policy, os.sched_param(_LEAST_PRIORITY))
            except OSError:  # not allowed here
                self._allowed = False

    def _took_long(self, *_: object) -> None:
        with suppress(OSError):  # it has ended
            os.sched_setscheduler(self._thread, os.SCHED_OTHER, os.sched_param(0))
        again = threading.Timer(ORDINARY_SECONDS, self._enter)
        again.daemon = True
        again.start()


def main() -> None:
    """Take options as JSON from the command line, control from standard input; send frames to standard output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the recorder decides when we end
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    options = msgspec.json.decode(sys.argv[1], type=SamplerOptions)
    set_title("sampler")
    heap.hold_small()
    privileges.hide()
    if options.witness_fd is not None:
        signal.set_wakeup_fd(options.witness_fd, warn_on_full_buffer=False)
        for number in options.witness_signals:
            signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # the recorder blocks those that it takes itself
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
        output.close()  # before what the kernel cannot end, a thread that waits for a file server, keeps them open
        os.closerange(0, 3)
        os._exit(code)

    Relay(sampler, end, begin=Punctual().run).run()


if __name__ == "__main__":
    main()
