"""Watch what goes on: saves under way, what devices move, and the last checkpoints, on one screen."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from ckptprof.cli import filters, options, output
from ckptprof.cli.database import opened

if TYPE_CHECKING:
    from ckptprof.cli.shared.screen import Screen
    from ckptprof.report.live.frame import Look
    from ckptprof.report.live.state import State
    from ckptprof.service.live.watching import Watching
    from ckptprof.store.reader import StoreReader

EXAMPLES = """
# The host, once a second, until q
ckptprof live
# One look, for a script or a pipe
ckptprof live --once
# The same as a document
ckptprof live --json
"""
_ANSWER_SECONDS = 2.5  # in which an agent tells what goes on: it does once a second
_LOOK_SECONDS = 0.05

Once = Annotated[bool, typer.Option("--once", help="Print what goes on now, and end; so it is without a terminal.")]
Interval = Annotated[
    float,
    typer.Option(
        "--interval",
        metavar="SECONDS",
        parser=options.between("--interval", 0.2, 3600),
        help="Time between two looks.",
    ),
]


def command(
    *,
    db: options.Db = None,
    once: Once = False,
    interval: Interval = 1.0,
    job: filters.Job = None,
    json: options.Json = False,
    no_color: options.NoColor = False,
) -> int:
    """Watch what goes on: saves under way, what devices move, and the last checkpoints, on one screen.

    An agent on this host is asked by its socket, which its owner and the group ckptprof may read; without one the
    database is followed, and the screen says so. Arrows or j and k choose a checkpoint, Enter shows it, q ends. A
    progress with ~ is of the bytes of the job's last one. What was not seen is `-`.
    """
    output.use_units()
    is_screen = not (once or json) and output.is_terminal() and sys.stdin.isatty()
    with opened(db) as reader:
        from ckptprof.service.live.following import Follower  # noqa: PLC0415 # `--help` needs none of it
        from ckptprof.service.live.watching import Watching  # noqa: PLC0415

        watching = Watching(Follower(reader, job=job), job=job)
        try:
            if is_screen and os.environ.get("TERM", "dumb") != "dumb":
                return _watch(watching, reader, interval, colour=output.use_colour(off=no_color))
            _print(_now(watching), json=json, colour=output.use_colour(off=no_color))
        finally:
            watching.close()
    return 0


def _now(watching: Watching) -> State:
    """Return what goes on, once the agent, if there is one, has told it."""
    until = time.monotonic() + _ANSWER_SECONDS
    while not watching.is_told and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)
    return watching.state(time.time_ns())


def _print(state: State, *, json: bool, colour: bool) -> None:
    from ckptprof.report import document  # noqa: PLC0415 # as above
    from ckptprof.report.live.frame import frame  # noqa: PLC0415

    if json:
        output.write(document.dump(document.state_document(state)))
        return
    lines = frame(state, _look(output.terminal_width(), output.terminal_height(), colour=colour))[:-1]  # not the keys
    output.write("".join(f"{line}\n" for line in lines))


def _look(width: int, height: int, *, colour: bool, chosen: int | None = None) -> Look:
    from ckptprof.report.live.frame import Look  # noqa: PLC0415 # as above

    return Look(width, height, output.LocalZone(), chosen=chosen, colour=colour, unicode=output.is_unicode())


def _watch(watching: Watching, reader: StoreReader, interval: float, *, colour: bool) -> int:
    """Show it until it is enough; return the exit code."""
    from ckptprof.cli.shared.screen import Screen  # noqa: PLC0415 # as above

    with Screen() as screen:
        _Live(screen, watching, reader, interval, colour=colour).run()
    return 0 if screen.ended_by is None else 128 + screen.ended_by


class _Live:
    """What one looks at: the screen, or one checkpoint on it."""

    def __init__(
        self, screen: Screen, watching: Watching, reader: StoreReader, interval: float, *, colour: bool
    ) -> None:
        self._screen = screen
        self._watching = watching
        self._reader = reader
        self._interval = interval
        self._colour = colour
        self._chosen: int | None = None  # None: the newest
        self._page: list[str] | None = None  # of the checkpoint that is shown
        self._top = 0  # line of it
        self._is_over = False

    def run(self) -> None:
        """Look, draw and wait, again and again."""
        state = self._watching.state(time.time_ns())
        due = time.monotonic() + self._interval
        while not self._is_over and self._screen.ended_by is None:
            self._draw(state)
            for key in self._screen.wait(max(0.0, due - time.monotonic())):
                self._press(key, state)
            if time.monotonic() >= due:
                state = self._watching.state(time.time_ns())
                due = time.monotonic() + self._interval

    def _draw(self, state: State) -> None:
        from ckptprof.report.live.frame import frame  # noqa: PLC0415 # as above

        width, height = self._screen.size
        if self._page is not None:
            self._top = max(0, min(self._top, len(self._page) - height))
            self._screen.draw(self._page[self._top : self._top + height])
            return
        ids = [one.id for one in state.last]
        chosen = self._chosen if self._chosen in ids else next(iter(ids), None)
        self._screen.draw(frame(state, _look(width, height, colour=self._colour, chosen=chosen)))

    def _press(self, key: str, state: State) -> None:
        if self._page is not None:
            self._turn(key)
            return
        ids = [one.id for one in state.last]
        place = ids.index(self._chosen) if self._chosen in ids else 0
        step = {"up": -1, "down": 1, "page up": -10, "page down": 10}.get(key)
        if key == "quit":
            self._is_over = True
        elif ids and step is not None:
            self._chosen = ids[max(0, min(len(ids) - 1, place + step))]
        elif ids and key == "enter":
            self._page, self._top = self._shown(ids[place]), 0

    def _turn(self, key: str) -> None:
        height = self._screen.size[1]
        step = {"up": -1, "down": 1, "page up": 1 - height, "page down": height - 1}.get(key)
        if step is None:
            self._page = None
        else:
            self._top += step

    def _shown(self, identity: int) -> list[str] | None:
        """Return what `show --all` tells of a checkpoint; None if it is not kept any more."""
        from ckptprof.report import show  # noqa: PLC0415 # as above

        found = self._reader.checkpoint(identity)
        if found is None:
            return None
        width = self._screen.size[0]
        text = show.render(found, width=width, colour=self._colour, zone=output.LocalZone(), blocks=output.blocks())
        return text.splitlines()
