"""Signals with their sender: received by a separate thread, and passed through a pipe that can be polled."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from ckptprof_collectors.abandoned import JOIN_SECONDS

_SI_KERNEL = 0x80  # include/uapi/asm-generic/siginfo.h: a key on the terminal, not a process
TWIN_SECONDS = 0.2  # within which a signal to the whole process group has reached all of it


class CaughtSignal(NamedTuple):
    """A received signal."""

    number: int
    from_terminal: bool  # then the whole foreground group has received it


class SignalTrap:
    """Blocks the given signals in every thread made after it, and collects them.

    Create it before any other thread: the kernel delivers a signal to any thread that does not block it, and one such
    thread is enough for a SIGTERM to end the process.
    """

    def __init__(self, numbers: set[signal.Signals], on_signal: Callable[[], None] = lambda: None) -> None:
        """Collect until `close`; `on_signal` is called for each signal, in a separate thread."""
        self._numbers, self._on_signal = numbers, on_signal
        self.mask_before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        self._read_fd, self._write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._caught: deque[CaughtSignal] = deque()
        self._closed = False
        self._thread = threading.Thread(target=self._collect, name="signals", daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._read_fd

    def _collect(self) -> None:
        while True:
            info = signal.sigwaitinfo(self._numbers)
            if self._closed:
                return
            self._caught.append(CaughtSignal(info.si_signo, info.si_code == _SI_KERNEL))
            with contextlib.suppress(BlockingIOError):  # a slow reader finds all of them in the queue
                os.write(self._write_fd, b"!")
            self._on_signal()

    def wait(self, timeout_seconds: float) -> list[CaughtSignal]:
        """Wait for a signal; return those received."""
        poll = select.poll()
        poll.register(self._read_fd, select.POLLIN)
        poll.poll(timeout_seconds * 1000)
        return self.pop_all()

    def pop_all(self) -> list[CaughtSignal]:
        """Return the signals received since the last call."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._read_fd, 4096)
        caught = []
        while self._caught:
            caught.append(self._caught.popleft())
        return caught

    def close(self) -> None:
        """Stop collecting and restore the signal mask; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        signal.pthread_kill(self._thread.ident or 0, next(iter(self._numbers)))
        self._thread.join(JOIN_SECONDS)
        os.close(self._read_fd)
        os.close(self._write_fd)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask_before)


class SignalRelay:
    """Forwards signals to the command, except those sent to its whole process group.

    `timeout`, a shell's `kill -- -PGID` and Slurm also signal the command: a forwarded signal would be its second one,
    and many programs abort their checkpoint on a second SIGTERM. The kernel does not show whether a signal was
    sent to a group, so a third process of the group (the sampler) reports whether it received it too.
    """

    def __init__(self, send: Callable[[int], None], witnessed: Callable[[], bytes]) -> None:
        """`witnessed` returns the numbers of the signals that the third process received since the last call."""
        self._send = send
        self._witnessed = witnessed
        self._witnessed_at: dict[int, float] = {}
        self._pending: list[tuple[int, float]] = []

    def ingest(self, caught: list[CaughtSignal]) -> None:
        """Ingest signals; those from the terminal went to the whole group."""
        now = time.monotonic()
        pending = [(one.number, now) for one in caught if one.number != signal.SIGCHLD and not one.from_terminal]
        self._pending += pending

    def turn(self) -> float | None:
        """Forward due signals; return the seconds until the next turn, None if none wait."""
        now = time.monotonic()
        for number in self._witnessed():
            self._witnessed_at[number] = now
        waiting = []
        for number, at in self._pending:
            if abs(self._witnessed_at.get(number, -1e9) - at) <= TWIN_SECONDS:
                continue
            if now - at > TWIN_SECONDS:
                self._send(number)
            else:
                waiting.append((number, at))
        self._pending = waiting
        return 0.02 if waiting else None
