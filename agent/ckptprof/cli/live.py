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
    from ckptprof.report.live.state import State
    from ckptprof.service.live.watching import Watching

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
    database is followed, and the screen says so. Arrows or j and k choose a checkpoint, Enter shows it, s sorts,
    f freezes, q ends. A progress with ~ is of the bytes of the job's last one. What was not seen is `-`.
    """
    output.use_units()
    is_screen = not (once or json) and output.is_terminal() and sys.stdin.isatty()
    with opened(db) as reader:
        from ckptprof.service.live.following import Follower  # noqa: PLC0415 # `--help` needs none of it
        from ckptprof.service.live.watching import Watching  # noqa: PLC0415

        watching = Watching(Follower(reader, job=job), job=job)
        try:
            if is_screen and os.environ.get("TERM", "dumb") != "dumb":
                return _watch(watching, interval, colour=output.use_colour(off=no_color))
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
    from ckptprof.cli.shared.viewing import look  # noqa: PLC0415 # as above
    from ckptprof.report import document  # noqa: PLC0415
    from ckptprof.report.live.frame import frame  # noqa: PLC0415

    if json:
        output.write(document.dump(document.state_document(state)))
        return
    lines = frame(state, look(output.terminal_width(), output.terminal_height(), colour=colour))[:-1]  # not the keys
    output.write("".join(f"{line}\n" for line in lines))


def _watch(watching: Watching, interval: float, *, colour: bool) -> int:
    """Show it until it is enough; return the exit code."""
    from ckptprof.cli.shared.screen import Screen  # noqa: PLC0415 # as above
    from ckptprof.cli.shared.viewing import Viewing  # noqa: PLC0415 # as above

    with Screen() as screen:
        Viewing(screen, watching, interval, colour=colour).run()
    return 0 if screen.ended_by is None else 128 + screen.ended_by
