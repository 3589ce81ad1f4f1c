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
    """Blocks the given signals in every thread made after it, and collects them."""

    def __init__(self, numbers: set[signal.Signals]) -> None:
        """Begin to collect; what was blocked before is blocked again after `close`."""
        self._numbers = numbers
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        self._read_fd, self._write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._caught: deque[Caught] = deque()
        self._thread = threading.Thread(target=self._collect, name="signals", daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._read_fd

    def _collect(self) -> None:
        while True:
            info = signal.sigwaitinfo(self._numbers)
            self._caught.append(Caught(info.si_signo, info.si_code == _SI_KERNEL))
            try:
                os.write(self._write_fd, b"!")
            except BlockingIOError:
                continue  # the reader is far behind, and will find all of them
            except OSError:
                return

    def take(self) -> list[Caught]:
        """Return the signals that have come since the last call."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._read_fd, 4096)
        caught = []
        while self._caught:
            caught.append(self._caught.popleft())
        return caught
