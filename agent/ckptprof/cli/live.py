"""Watch what goes on: saves under way, what devices move, and the last checkpoints, on one screen."""

from __future__ import annotations

import os
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from ckptprof.cli import filters, options, output
from ckptprof.cli.database import opened

if TYPE_CHECKING:
    from ckptprof.report.live.state import State

EXAMPLES = """
# The host, once a second, until q
ckptprof live
# One look, for a script or a pipe
ckptprof live --once
# The same as a document
ckptprof live --json
"""
_RATE_SECONDS = 0.5  # over which a single answer measures the devices' rates

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

    Checkpoints come from the database, up to 5 seconds after the recorder saw them; device rates from the counters of
    this host. Arrows or j and k choose a checkpoint, Enter shows it, s sorts,
    f freezes, q ends. A progress with ~ is of the bytes of the job's last one. What was not seen is `-`.
    """
    output.use_units()
    is_screen = not (once or json) and output.is_terminal() and sys.stdin.isatty()
    with opened(db) as reader:
        from ckptprof.service.live.following import DeviceRates, Follower  # noqa: PLC0415 # `--help` needs none of it

        with closing(DeviceRates()) as devices:
            follower = Follower(reader, devices, job=job)
            if is_screen and os.environ.get("TERM", "dumb") != "dumb":
                from ckptprof.cli.shared.screen import Screen  # noqa: PLC0415
                from ckptprof.cli.shared.viewing import Viewing  # noqa: PLC0415

                with Screen() as screen:
                    Viewing(screen, follower, interval, colour=output.use_colour(off=no_color)).run()
                return 0 if screen.ended_by is None else 128 + screen.ended_by
            time.sleep(_RATE_SECONDS)
            _print(follower.state(time.time_ns()), json=json, colour=output.use_colour(off=no_color))
    return 0


def _print(state: State, *, json: bool, colour: bool) -> None:
    from ckptprof.cli.shared.viewing import look  # noqa: PLC0415 # as above
    from ckptprof.report import document  # noqa: PLC0415
    from ckptprof.report.live.frame import frame  # noqa: PLC0415

    if json:
        output.write(document.dump(document.state_document(state)))
        return
    lines = frame(state, look(output.terminal_width(), output.terminal_height(), colour=colour))[:-1]  # not the keys
    output.write("".join(f"{line}\n" for line in lines))
