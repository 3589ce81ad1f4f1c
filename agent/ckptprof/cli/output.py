"""Output: terminal size, colour, pager, and text for any encoding."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone, tzinfo
from typing import IO, TextIO, TypedDict, cast

from ckptprof import units
from ckptprof.report.pictures.chart import ASCII_BLOCKS, BLOCKS

NARROWEST = 40  # cells; below it lines wrap
WIDTH_OF_PIPES = 120
_SCREEN = (WIDTH_OF_PIPES, 24)  # without a terminal, or for one of unknown size
_PAGER = "less"
_LESS = "FRX"  # quit if it fits, keep colours, leave the text on the screen: as git sets it
# ASCII replacements for terminals without Unicode
_PLAIN = str.maketrans(
    {"…": "~", "│": "|", "└": "+", "─": "-", "┴": "+", "▓": "o", "░": "c", "·": "."}
    | dict(zip(BLOCKS, ASCII_BLOCKS, strict=True))
)


class Layout(TypedDict):
    """What text is rendered for."""

    width: int  # cells
    colour: bool


class LocalZone(tzinfo):
    """The zone of this process (TZ, /etc/localtime), with the offset of each instant."""

    def fromutc(self, dt: datetime) -> datetime:
        """Return the local time of a UTC instant, with its offset."""
        seconds = dt.replace(tzinfo=timezone.utc).timestamp()
        offset = timedelta(seconds=time.localtime(seconds).tm_gmtoff)
        return (dt.replace(tzinfo=None) + offset).replace(tzinfo=timezone(offset))

    def utcoffset(self, dt: datetime | None) -> timedelta:
        """Return the offset at a local time; None: now."""
        local = datetime.now(timezone.utc).astimezone() if dt is None else dt.replace(tzinfo=None).astimezone()
        return local.utcoffset() or timedelta(0)

    def dst(self, dt: datetime | None) -> timedelta | None:  # noqa: ARG002 # the interface's
        """Return None: unknown."""
        return None

    def tzname(self, dt: datetime | None) -> str | None:  # noqa: ARG002 # the interface's
        """Return None: offsets are printed, names are ambiguous."""
        return None


def terminal_width() -> int:
    """Return the columns: of COLUMNS or the terminal; 120 for a pipe."""
    return max(NARROWEST, shutil.get_terminal_size(_SCREEN).columns)


def terminal_height() -> int:
    """Return the lines: of LINES or the terminal."""
    return shutil.get_terminal_size(_SCREEN).lines


def fits(text: str) -> bool:
    """Test whether the text and a prompt below it fit on the screen."""
    return text.count("\n") < terminal_height()


def is_terminal() -> bool:
    """Test whether standard output is a terminal."""
    return sys.stdout.isatty()


def use_units() -> None:
    """Use the units of CKPTPROF_UNITS from now on; raises UsageError. Recorded text stays decimal."""
    units.choose(os.environ.get(units.VARIABLE))


def use_colour(stream: TextIO | None = None, *, off: bool = False) -> bool:
    """Decide on colour: by --no-color, NO_COLOR (no-color.org), CLICOLOR_FORCE, then by the terminal."""
    if off or os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("CLICOLOR_FORCE", "0") not in ("", "0"):
        return True
    out = sys.stdout if stream is None else stream
    return os.environ.get("TERM", "") != "dumb" and out.isatty()


def is_unicode(stream: TextIO | None = None) -> bool:
    """Test whether the stream can encode any character."""
    out = sys.stdout if stream is None else stream
    return (out.encoding or "").lower().replace("-", "").startswith(("utf", "ucs"))


def blocks() -> str:
    """Return the characters for charts."""
    return BLOCKS if is_unicode() else ASCII_BLOCKS


def write(text: str, stream: TextIO | None = None) -> None:
    r"""Write cleaned text; characters outside the encoding become ASCII or `\uNNNN`. Raises OSError."""
    out = sys.stdout if stream is None else stream
    if not is_unicode(out):
        text = text.translate(_PLAIN)
    encoding = out.encoding or "ascii"
    out.write(text.encode(encoding, "backslashreplace").decode(encoding))


def layout(stream: TextIO | None = None, *, no_color: bool) -> Layout:
    """Return what text for a stream is rendered for, and use the units of CKPTPROF_UNITS; raises UsageError."""
    use_units()
    return {"width": terminal_width(), "colour": use_colour(stream, off=no_color)}


def write_text(render: Callable[..., str], *, no_color: bool, pager: bool = False) -> bool:
    """Render and write a text, with the pager if that is allowed; return whether its first line can still be read."""
    text = render(**layout(no_color=no_color), zone=LocalZone())
    if page(text, off=not pager):
        return True
    write(text)
    return fits(text)


def page(text: str, *, off: bool = False) -> bool:
    """Write cleaned text through PAGER, or less, if it does not fit on a terminal; False: nothing was written."""
    try:
        program = shlex.split(os.environ.get("PAGER", _PAGER))
    except ValueError:  # an unmatched quote: treated as a missing program
        return False
    person = sys.stdin.isatty() and is_terminal() and os.environ.get("TERM", "dumb") != "dumb"
    if off or not person or fits(text) or not program or program[0] == "cat" or shutil.which(program[0]) is None:
        return False
    import subprocess  # noqa: PLC0415 # for this only

    sys.stdout.flush()
    environment = {"LESS": _LESS, "LV": "-c", **os.environ}
    with subprocess.Popen(program, stdin=subprocess.PIPE, env=environment) as pager:  # noqa: S603 # the user's choice
        with (
            contextlib.suppress(BrokenPipeError, KeyboardInterrupt),  # the pager was closed early
            io.TextIOWrapper(cast("IO[bytes]", pager.stdin), encoding=sys.stdout.encoding) as stream,
        ):
            write(text, stream)
        while pager.poll() is None:
            with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is the pager's
                pager.wait()
    return True
