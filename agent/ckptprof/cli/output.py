"""Where output goes: how wide the terminal is, whether it takes colour, a pager, text that it can always print."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import shutil
import sys
import time
from datetime import datetime, timedelta, timezone, tzinfo
from typing import IO, TextIO, cast

from ckptprof import units
from ckptprof.report.pictures.chart import ASCII_BLOCKS, BLOCKS

NARROWEST = 40  # cells; below it lines wrap
WIDTH_OF_PIPES = 120
_SCREEN = (WIDTH_OF_PIPES, 24)  # where there is no terminal, or one that does not tell its size
_PAGER = "less"
_LESS = "FRX"  # quit if it fits, keep colours, leave the text behind: as git sets it
# What the renderings use beyond ASCII, for a terminal that has no more
_PLAIN = str.maketrans(
    {"…": "~", "│": "|", "└": "+", "─": "-", "┴": "+", "▓": "o", "░": "c", "·": "."}
    | dict(zip(BLOCKS, ASCII_BLOCKS, strict=True))
)


class LocalZone(tzinfo):
    """The zone of this process (TZ, /etc/localtime), with the offset that held at each instant."""

    def fromutc(self, dt: datetime) -> datetime:
        """Return the local time of an instant given in UTC, carrying the offset of that instant."""
        seconds = dt.replace(tzinfo=timezone.utc).timestamp()
        offset = timedelta(seconds=time.localtime(seconds).tm_gmtoff)
        return (dt.replace(tzinfo=None) + offset).replace(tzinfo=timezone(offset))

    def utcoffset(self, dt: datetime | None) -> timedelta:
        """Return the offset at a local time, or the one of now."""
        local = datetime.now(timezone.utc).astimezone() if dt is None else dt.replace(tzinfo=None).astimezone()
        return local.utcoffset() or timedelta(0)

    def dst(self, dt: datetime | None) -> timedelta | None:  # noqa: ARG002 # the interface's
        """Return None: not told apart."""
        return None

    def tzname(self, dt: datetime | None) -> str | None:  # noqa: ARG002 # the interface's
        """Return None: offsets are printed, names are ambiguous."""
        return None


def terminal_width() -> int:
    """Return the cells of a line: COLUMNS, the terminal's, or for a pipe enough for every column but the longest."""
    return max(NARROWEST, shutil.get_terminal_size(_SCREEN).columns)


def terminal_height() -> int:
    """Return the lines of the screen: LINES, or the terminal's."""
    return shutil.get_terminal_size(_SCREEN).lines


def fits(text: str) -> bool:
    """Return whether so many lines, and the prompt below them, are on the screen at once: LINES, or the terminal's."""
    return text.count("\n") < terminal_height()


def is_terminal() -> bool:
    """Return whether a person reads what is printed."""
    return sys.stdout.isatty()


def use_units() -> None:
    """Give sizes from now on in the units of CKPTPROF_UNITS; raises UsageError. What is recorded stays decimal."""
    units.choose(os.environ.get(units.VARIABLE))


def use_colour(stream: TextIO | None = None, *, off: bool = False) -> bool:
    """Return whether to colour: --no-color, NO_COLOR (no-color.org), CLICOLOR_FORCE, then whether it is a terminal."""
    if off or os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("CLICOLOR_FORCE", "0") not in ("", "0"):
        return True
    out = sys.stdout if stream is None else stream
    return os.environ.get("TERM", "") != "dumb" and out.isatty()


def is_unicode(stream: TextIO | None = None) -> bool:
    """Return whether the stream takes any character."""
    out = sys.stdout if stream is None else stream
    return (out.encoding or "").lower().replace("-", "").startswith(("utf", "ucs"))


def blocks() -> str:
    """Return the characters that charts are drawn with here."""
    return BLOCKS if is_unicode() else ASCII_BLOCKS


def write(text: str, stream: TextIO | None = None) -> None:
    r"""Write cleaned text; what the stream's encoding has not is written plain, or as `\uNNNN`. Raises OSError."""
    out = sys.stdout if stream is None else stream
    if not is_unicode(out):
        text = text.translate(_PLAIN)
    encoding = out.encoding or "ascii"
    out.write(text.encode(encoding, "backslashreplace").decode(encoding))


def page(text: str, *, off: bool = False) -> bool:
    """Write cleaned text by the program in PAGER, or less; return whether that was done, False: nothing was written.

    Only for a text that does not fit, where a person sits at a terminal.
    """
    program = shlex.split(os.environ.get("PAGER", _PAGER))
    person = sys.stdin.isatty() and is_terminal() and os.environ.get("TERM", "dumb") != "dumb"
    if off or not person or fits(text) or not program or program[0] == "cat" or shutil.which(program[0]) is None:
        return False
    import subprocess  # noqa: PLC0415 # for this only

    sys.stdout.flush()
    environment = {"LESS": _LESS, "LV": "-c", **os.environ}
    with subprocess.Popen(program, stdin=subprocess.PIPE, env=environment) as pager:  # noqa: S603 # the user's choice
        with (
            contextlib.suppress(BrokenPipeError, KeyboardInterrupt),  # it was left before its end
            io.TextIOWrapper(cast("IO[bytes]", pager.stdin), encoding=sys.stdout.encoding) as stream,
        ):
            write(text, stream)
        while pager.poll() is None:
            with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is the pager's
                pager.wait()
    return True
