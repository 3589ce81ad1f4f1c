"""The alternate screen of the terminal, restored on q, errors, Ctrl-C, Ctrl-Z, SIGTERM and SIGHUP."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

_ENTER = "\x1b[?1049h\x1b[?25l"  # the alternate screen, without a cursor
_LEAVE = "\x1b[?25h\x1b[?1049l"
_START, _END = "\x1b[?2026h\x1b[H", "\x1b[J\x1b[?2026l"  # synchronised update
_NEXT_LINE = "\x1b[K\r\n"
_KEYS = {
    b"q": "quit", b"\x1b[A": "up", b"\x1bOA": "up", b"k": "up", b"\x1b[B": "down", b"\x1bOB": "down", b"j": "down",
    b"\r": "enter", b"\n": "enter", b"\x1b[5~": "page up", b"\x1b[6~": "page down", b" ": "page down",
    b"s": "sort", b"f": "freeze",
}  # fmt: skip
_CHUNK = 1024
_ENDS = (signal.SIGTERM, signal.SIGHUP)


class Screen:
    """A context with the alternate screen of the terminal of standard input and output, for the main thread."""

    def __init__(self) -> None:
        """Leave the terminal unchanged until `__enter__`."""
        self._input, self._output = sys.stdin.fileno(), sys.stdout.fileno()
        self._before: list[Any] | None = None  # of termios, while the screen is ours
        self._handlers: dict[signal.Signals, Any] = {}
        self._woken, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.ended_by: int | None = None  # the signal that requested the end

    def __enter__(self) -> Self:
        for number in (*_ENDS, signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH):
            self._handlers[number] = signal.signal(number, self._handle_signal)
        try:
            self._acquire()
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._release()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.close(self._wake)
        os.close(self._woken)

    @property
    def size(self) -> tuple[int, int]:
        """The current columns and lines."""
        try:
            return os.get_terminal_size(self._output)
        except OSError:
            return shutil.get_terminal_size()

    def draw(self, lines: Sequence[str]) -> None:
        """Draw these lines; at most as many as the screen has."""
        if self._before is not None:
            self._write(_START + _NEXT_LINE.join(lines) + "\x1b[K" + _END)

    def wait(self, seconds: float) -> list[str]:
        """Wait for a key, a signal or the timeout; return the names of keys."""
        ready, _, _ = select.select([self._input, self._woken], [], [], seconds)
        if self._woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._woken, _CHUNK)
        return self._keys() if self._input in ready else []

    def _keys(self) -> list[str]:
        try:
            data = os.read(self._input, _CHUNK)
        except OSError:
            data = b""
        if not data:  # the terminal is gone
            return ["quit"]
        return keys_of(data)

    def _handle_signal(self, number: int, _: FrameType | None) -> None:
        if number in _ENDS:
            self.ended_by = number
        elif number == signal.SIGTSTP:
            self._stop()
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake, b"x")  # ends `wait`

    def _stop(self) -> None:
        """Restore the terminal, stop, and acquire the screen again on SIGCONT; in the background, end."""
        is_ours = self._before is not None
        self._release()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._handle_signal)
        if is_ours and self._is_in_front():
            self._acquire()
        elif is_ours:  # drawing in the background would stop it again
            self.ended_by = signal.SIGTSTP

    def _is_in_front(self) -> bool:
        try:
            return os.tcgetpgrp(self._output) == os.getpgrp()
        except OSError:  # not our controlling terminal: no process is stopped
            return True

    def _acquire(self) -> None:
        self._before = termios.tcgetattr(self._input)
        tty.setcbreak(self._input, termios.TCSADRAIN)
        self._write(_ENTER)

    def _release(self) -> None:
        """Restore the terminal; a second call does nothing."""
        if self._before is None:
            return
        before, self._before = self._before, None
        with contextlib.suppress(OSError):
            self._write(_LEAVE)
        with contextlib.suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(self._input, termios.TCSADRAIN, before)

    def _write(self, text: str) -> None:
        encoding = sys.stdout.encoding or "ascii"
        data = memoryview(text.encode(encoding, "backslashreplace"))
        while data:
            data = data[os.write(self._output, data) :]


def keys_of(data: bytes) -> list[str]:
    """Return the names of known keys in these bytes; others are ignored."""
    found = []
    while data:
        key = next((key for key in _KEYS if data.startswith(key)), None)
        if key is not None:
            found.append(_KEYS[key])
        data = data[len(key) if key is not None else 1 :]
    return found
