"""The sampler's loop, which another thread takes over where a process holds the one that reads of it.

See `ckptprof_collectors.holders` for how that can be. The thread that is held is told to end as soon as it can run
again (PyThreadState_SetAsyncExc), before it touches anything: so there is one loop at any time.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from ckptprof_collectors.abandoned import sleep_of
from ckptprof_collectors.holders import HOLDERS

LOOK_SECONDS = 0.25  # a thread that has slept in one read from one look to the next is held
CALM_LOOK_SECONDS = 1.0  # while no bytes move
MAX_RELIEVED = 8  # threads that are held at the same time; the recorder replaces who has more
RECENT_LOOKS = 40
MAX_SLOW_LOOKS = 8  # of those, at which the loop slept in reads of one user's processes
REFUSED_SECONDS = 30.0
# the beginnings of kernel functions in which a thread waits for a page of its own that was swapped out
_PAGES = ("folio_wait", "__folio_", "filemap_", "swap", "do_swap", "rq_qos_", "blk_mq_", "submit_bio_", "io_schedule")


class Abandoned(BaseException):
    """Raised in a loop that another thread has taken over."""


class Relieved(Protocol):
    """What is run in turns."""

    @property
    def calm(self) -> bool:
        """Whether no bytes move that would be missed while it is held."""

    def run(self) -> None:
        """Begin, and go on to the end."""

    def go_on(self) -> None:
        """Go on to the end after a relief."""

    def relieve(self) -> None:
        """Leave what the loop was at when it was held; nothing else runs meanwhile."""


class _Turn:
    """A thread that runs the loop."""

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


def _nothing() -> None:
    pass


class Relay:
    """Runs the loop in the thread that calls, and in another one whenever that is held."""

    def __init__(self, loop: Relieved, end: Callable[[int], None], *, begin: Callable[[], None] = _nothing) -> None:
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
        """Look now and then whether the loop sleeps in a read of a process."""
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
