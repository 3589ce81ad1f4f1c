"""The screen of `run --live`, alongside a command whose output goes to a file; it never stops the command."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import termios
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import msgspec

from ckptprof.cli import output
from ckptprof.cli.shared.live_view import LiveView
from ckptprof.cli.shared.screen import Screen
from ckptprof.errors import CkptprofError
from ckptprof.model import Checkpoint
from ckptprof.report.clean import clean, shorten_end
from ckptprof.report.live.state import State
from ckptprof.report.table import paint
from ckptprof.service.commands.output_file import open_output
from ckptprof.service.live.following import DeviceRates
from ckptprof.service.recorder import messages
from ckptprof_collectors.abandoned import JOIN_SECONDS

if TYPE_CHECKING:
    from typing_extensions import Self

_REDRAW_SECONDS = 0.5
_TAIL_BYTES = 8192  # of the command's output: more than the screen shows
_LINES_PER_OUTPUT_LINE = 4  # one line of output for this many lines of screen
_MESSAGE_LINES = 2  # latest messages of ours
_NAMES = 100  # to try


def is_possible() -> bool:
    """Test for a terminal with us in its foreground; drawing in the background would stop us."""
    ends = sys.stdin, sys.stdout
    if not all(one.isatty() for one in ends) or os.environ.get("TERM", "dumb") == "dumb":
        return False
    with contextlib.suppress(OSError):
        return all(os.tcgetpgrp(one.fileno()) == os.getpgrp() for one in ends)
    return False


def _new_file() -> tuple[Path, int]:
    """Create an output file in this folder, and return its path and descriptor; raises CkptprofError.

    The name may exist: process ids repeat in containers. The file is opened for appending.
    """
    names = (f"ckptprof-run.{os.getpid()}{end}.out" for end in ("", *(f".{number}" for number in range(1, _NAMES))))
    for path in map(Path, names):
        with contextlib.suppress(FileExistsError):
            return path, open_output(path, 0o600, new=True, appends=True)
    raise CkptprofError(f"{path}: exists already", hint="change to another folder, or delete old files")


def _has_no_children() -> bool:
    """Test whether all processes of the command have ended; orphans become our children."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


class CommandScreen:
    """The screen, from the first `put` until `q` or exit; messages during it are printed afterwards."""

    def __init__(self, *, starts: bool, colour: bool) -> None:
        """Create the output file if a command `starts`; raises CkptprofError if that fails."""
        self._colour = colour
        self._screen = Screen(ends=())  # signals belong to the command
        self._viewing: LiveView | None = None
        self._thread: threading.Thread | None = None
        self._state = State(at_ns=0, host=None, level=None, since_ns=None)
        self._devices = DeviceRates()
        self._stderr, self._buffered = sys.stderr, io.StringIO()
        self._path: Path | None = None
        self.is_wanted = True
        self.streams: Mapping[int, int] = {}
        if starts:
            self._path, printed = _new_file()
            self.streams = {0: os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), 1: printed}
            if sys.stderr.isatty():
                self.streams[2] = printed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.is_wanted = False
        if self._viewing is not None and self._thread is not None:
            self._viewing.has_ended = True
            self._screen.wake()
            self._thread.join(JOIN_SECONDS)
            self._screen.__exit__(kind, error, at)
        if self._path is not None and os.fstat(self.streams[1]).st_size:
            messages.info(f"the output of the command is in {self._path}")
        elif self._path is not None and _has_no_children():  # a child may still write to it
            with contextlib.suppress(OSError):
                self._path.unlink()
        self._devices.close()
        for ours in {*self.streams.values()}:
            os.close(ours)

    def put(self, state: State) -> None:
        """Show a state; the first call is by the main thread."""
        self._state = state
        if self._viewing is not None:
            return
        self._viewing = LiveView(self._screen, self, _REDRAW_SECONDS, colour=self._colour, below=self._output_lines)
        try:
            self._screen.__enter__()
        except (OSError, termios.error) as error:
            self.is_wanted = False
            messages.warn(f"no screen: {error}")
            return
        if self._stderr.isatty():
            sys.stderr = self._buffered
        self._thread = threading.Thread(target=self._show, args=(self._viewing,), name="screen", daemon=True)
        self._thread.start()

    def state(self, _: int) -> State:
        """Return the newest state, with the latest messages."""
        lines = tuple(self._buffered.getvalue().splitlines()[-_MESSAGE_LINES:])
        return msgspec.structs.replace(self._state, devices=self._devices.read(), notes=lines)

    def checkpoint(self, one: Checkpoint) -> Checkpoint | None:
        """Return the checkpoint unchanged: it is complete."""
        return one

    def _show(self, viewing: LiveView) -> None:
        reason = ""
        try:
            viewing.run()
        except Exception as error:  # noqa: BLE001 - the command must outlive a fault of ours
            reason = f"{type(error).__name__}: {error}"
        continues, self.is_wanted = self.is_wanted, False
        self._screen.release()
        sys.stderr = self._stderr
        with contextlib.suppress(OSError):
            self._stderr.write(self._buffered.getvalue())
        if reason:
            messages.warn(f"the screen ended: {reason}")
        if continues:
            messages.info("the command continues without the screen")

    def _output_lines(self, width: int, height: int) -> list[str]:
        most = height // _LINES_PER_OUTPUT_LINE - 1
        lines = self._last_lines()[-most:] if most > 0 else []
        if not lines:
            return []
        columns = max(1, width - 2)
        title = paint(shorten_end(f"output in {self._path}", columns), "dim", colour=self._colour)
        return ["", *(f"  {line}" for line in (title, *(shorten_end(clean(line), columns) for line in lines)))]

    def _last_lines(self) -> list[str]:
        if self._path is None:
            return []
        with contextlib.suppress(OSError), self._path.open("rb") as stream:
            end = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, end - _TAIL_BYTES))
            code = "utf-8" if output.is_unicode() else "ascii"
            text = stream.read().decode(code, "backslashreplace")
            lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
            return [line for line in lines if line.strip()]
        return []
