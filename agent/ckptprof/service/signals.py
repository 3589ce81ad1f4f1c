"""Signals with their sender: taken by a thread of its own, handed on through a pipe that can be waited for."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections import deque
from typing import NamedTuple

_SI_KERNEL = 0x80  # include/uapi/asm-generic/siginfo.h: a key on the terminal, not a process


class Caught(NamedTuple):
    """A signal that came."""

    number: int
    from_terminal: bool  # the whole foreground group has got it already


class SignalTrap:
    """Blocks the given signals in every thread made after it, and collects them.

    It is made before any other thread: the kernel gives a signal to whichever thread does not block it, and one thread
    that does not is enough for a SIGTERM to end the process.
    """

    def __init__(self, numbers: set[signal.Signals]) -> None:
        """Begin to collect, until `close`."""
        self._numbers = numbers
        self.mask_before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        self._read_fd, self._write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._caught: deque[Caught] = deque()
        self._closed = False
        self._thread = threading.Thread(target=self._collect, name="signals", daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._read_fd

    def _collect(self) -> None:
        while True:
            info = signal.sigwaitinfo(self._numbers)
            if self._closed:
                return
            self._caught.append(Caught(info.si_signo, info.si_code == _SI_KERNEL))
            with contextlib.suppress(BlockingIOError):  # the reader is far behind, and will find all of them
                os.write(self._write_fd, b"!")

    def take(self) -> list[Caught]:
        """Return the signals that have come since the last call."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._read_fd, 4096)
        caught = []
        while self._caught:
            caught.append(self._caught.popleft())
        return caught

    def close(self) -> None:
        """End collecting: from here on the signals do again what they did before; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        signal.pthread_kill(self._thread.ident or 0, next(iter(self._numbers)))
        self._thread.join()
        os.close(self._read_fd)
        os.close(self._write_fd)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask_before)
