"""The screen of `run --live`: beside a command that prints into a file meanwhile, and that it never stops."""

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
from ckptprof.cli.shared.screen import Screen
from ckptprof.cli.shared.viewing import Viewing
from ckptprof.errors import CkptprofError
from ckptprof.model import Checkpoint
from ckptprof.report.clean import clean, shorten_end
from ckptprof.report.live.state import State
from ckptprof.report.table import paint
from ckptprof.service.commands.target import open_target
from ckptprof.service.live.following import DeviceRates
from ckptprof.service.recorder import messages
from ckptprof_collectors.abandoned import JOIN_SECONDS

if TYPE_CHECKING:
    from typing_extensions import Self

_LOOK_SECONDS = 0.5
_TAIL_BYTES = 8192  # of what the command printed: more than there are lines for
_OF_SCREEN = 4  # every so many lines one is for what it printed
_NOTES = 2  # of what was said meanwhile
_NAMES = 100  # are tried


def is_possible() -> bool:
    """Return whether there is a terminal to draw on, and we are in its foreground: else drawing would stop us."""
    ends = sys.stdin, sys.stdout
    if not all(one.isatty() for one in ends) or os.environ.get("TERM", "dumb") == "dumb":
        return False
    with contextlib.suppress(OSError):
        return all(os.tcgetpgrp(one.fileno()) == os.getpgrp() for one in ends)
    return False


def _new_file() -> tuple[Path, int]:
    """Return a new file of this folder, and a descriptor of it; raises CkptprofError.

    Its name may be taken: in a container process ids come again. Who opens it once more appends to it, too.
    """
    names = (f"ckptprof-run.{os.getpid()}{end}.out" for end in ("", *(f".{number}" for number in range(1, _NAMES))))
    for path in map(Path, names):
        with contextlib.suppress(FileExistsError):
            return path, open_target(path, 0o600, new=True, appends=True)
    raise CkptprofError(f"{path}: exists already", hint="go to another folder, or delete what is not needed")


def _has_no_children() -> bool:
    """Return whether nothing that the command started is left, of which we are the parent then."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


class Beside:
    """Shown from the first state that it is told, until `q` or its end; what we say meanwhile is said afterwards."""

    def __init__(self, *, starts: bool, colour: bool) -> None:
        """Take a file for what a command prints, if one `starts`; raises CkptprofError if there is no place for it."""
        self._colour = colour
        self._screen = Screen(ends=())  # signals are the command's
        self._viewing: Viewing | None = None
        self._thread: threading.Thread | None = None
        self._state = State(at_ns=0, host=None, level=None, since_ns=None)
        self._devices = DeviceRates()
        self._stderr, self._said = sys.stderr, io.StringIO()
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
            self._viewing.is_over = True
            self._screen.wake()
            self._thread.join(JOIN_SECONDS)
            self._screen.__exit__(kind, error, at)
        if self._path is not None and os.fstat(self.streams[1]).st_size:
            messages.say(f"what the command printed is in {self._path}")
        elif self._path is not None and _has_no_children():  # else one of them may print into it yet
            with contextlib.suppress(OSError):
                self._path.unlink()
        self._devices.close()
        for ours in {*self.streams.values()}:
            os.close(ours)

    def put(self, state: State) -> None:
        """Show a state; the first one is put by the main thread."""
        self._state = state
        if self._viewing is not None:
            return
        self._viewing = Viewing(self._screen, self, _LOOK_SECONDS, colour=self._colour, below=self._printed)
        try:
            self._screen.__enter__()
        except (OSError, termios.error) as error:
            self.is_wanted = False
            messages.warn(f"there is no screen: {error}")
            return
        if self._stderr.isatty():
            sys.stderr = self._said
        self._thread = threading.Thread(target=self._show, args=(self._viewing,), name="screen", daemon=True)
        self._thread.start()

    def state(self, _: int) -> State:
        """Return the newest state, with what was said since it is shown."""
        notes = tuple(self._said.getvalue().splitlines()[-_NOTES:])
        return msgspec.structs.replace(self._state, devices=self._devices.read(), notes=notes)

    def checkpoint(self, one: Checkpoint) -> Checkpoint | None:
        """Return it as it is: nothing of it was left out."""
        return one

    def _show(self, viewing: Viewing) -> None:
        reason = ""
        try:
            viewing.run()
        except Exception as error:  # noqa: BLE001 - the command must outlive a fault of ours
            reason = f"{type(error).__name__}: {error}"
        goes_on, self.is_wanted = self.is_wanted, False
        self._screen.give_back()
        sys.stderr = self._stderr
        with contextlib.suppress(OSError):
            self._stderr.write(self._said.getvalue())
        if reason:
            messages.warn(f"the screen ended: {reason}")
        if goes_on:
            messages.say("the command goes on without the screen")

    def _printed(self, width: int, height: int) -> list[str]:
        most = height // _OF_SCREEN - 1
        lines = self._last_lines()[-most:] if most > 0 else []
        if not lines:
            return []
        room = max(1, width - 2)
        title = paint(shorten_end(f"printed into {self._path}", room), "dim", colour=self._colour)
        return ["", *(f"  {line}" for line in (title, *(shorten_end(clean(line), room) for line in lines)))]

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
