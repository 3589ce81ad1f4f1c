"""Progress in one line of a terminal; nothing in a pipe."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ckptprof.report.clean import clean, shorten_end

WAITING_SECONDS = 1.0  # then a waiting user needs a message
_PAUSE_SECONDS = 0.1  # between two lines
_NARROW = 80  # cells, if the terminal does not report its width
_ERASE = "\r\x1b[K"


class ProgressLine:
    """The line; `clear` removes it before other output."""

    def __init__(self, *, quiet: bool = False) -> None:
        """Write to stderr if that is a terminal, and not at all if `quiet`."""
        self.shown = not quiet and sys.stderr.isatty()
        self._next_at = 0.0
        self._dirty = False

    def show(self, text: str) -> None:
        """Replace the line, at most ten times a second."""
        now = time.monotonic()
        if not self.shown or now < self._next_at:
            return
        self._next_at = now + _PAUSE_SECONDS
        self._dirty = True
        self._write(_ERASE + shorten_end(clean(text), _width() - 1))

    def clear(self) -> None:
        """Remove the line; a second call does nothing."""
        if self._dirty:
            self._dirty = False
            self._write(_ERASE)

    def _write(self, text: str) -> None:
        encoding = sys.stderr.encoding or "ascii"
        with contextlib.suppress(OSError, ValueError):  # a closed terminal is no error
            sys.stderr.write(text.encode(encoding, "backslashreplace").decode(encoding))
            sys.stderr.flush()


@contextmanager
def show_while_waiting(text: str) -> Iterator[None]:
    """Show `text` if the block runs for longer than a second."""
    progress = ProgressLine()
    timer = threading.Timer(WAITING_SECONDS, progress.show, (text,))
    timer.daemon = True
    if progress.shown:
        timer.start()
    try:
        yield
    finally:
        if progress.shown:
            timer.cancel()
            timer.join(WAITING_SECONDS)
        progress.clear()


def _width() -> int:
    with contextlib.suppress(OSError, ValueError):
        return os.get_terminal_size(sys.stderr.fileno()).columns or _NARROW
    return _NARROW
