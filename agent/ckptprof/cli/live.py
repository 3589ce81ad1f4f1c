"""Live view: saves in progress, disk throughput, recent checkpoints."""

from __future__ import annotations

import os
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from ckptprof.cli import filters, options, output
from ckptprof.cli.shared.database import open_database

if TYPE_CHECKING:
    from ckptprof.report.live.state import State

EXAMPLES = """
# The host, once a second, until q
ckptprof live
# One sample, for a script or a pipe
ckptprof live --once
# The same as JSON
ckptprof live --json
"""
_RATE_SECONDS = 0.5  # measuring time of device rates for a single answer

Once = Annotated[bool, typer.Option("--once", help="Print the current state and exit; the default without a terminal.")]
Interval = Annotated[
    float,
    typer.Option(
        "--interval",
        metavar="SECONDS",
        parser=options.number_between("--interval", 0.2, 3600),
        help="Time between two samples.",
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
    """Live view: saves in progress, disk throughput, recent checkpoints.

    Checkpoints come from the database, up to 5 seconds late; disk rates come from this host's counters. Arrows or
    j and k select a checkpoint, Enter shows it, s sorts, f freezes, q quits. Progress marked ~ is relative to the
    bytes of the job's previous checkpoint. `-` means not observed.
    """
    output.use_units()
    is_screen = not (once or json) and output.is_terminal() and sys.stdin.isatty()
    with open_database(db) as reader:
        from ckptprof.service.live.following import DeviceRates, LiveReader  # noqa: PLC0415 # `--help` needs none of it

        with closing(DeviceRates()) as devices:
            follower = LiveReader(reader, devices, job=job)
            if is_screen and os.environ.get("TERM", "dumb") != "dumb":
                from ckptprof.cli.shared.live_view import LiveView  # noqa: PLC0415
                from ckptprof.cli.shared.screen import Screen  # noqa: PLC0415

                with Screen() as screen:
                    LiveView(screen, follower, interval, colour=output.use_colour(off=no_color)).run()
                return 0 if screen.ended_by is None else 128 + screen.ended_by
            time.sleep(_RATE_SECONDS)
            _print(follower.state(time.time_ns()), json=json, colour=output.use_colour(off=no_color))
    return 0


def _print(state: State, *, json: bool, colour: bool) -> None:
    from ckptprof.cli.shared.live_view import screen_options  # noqa: PLC0415 # as above
    from ckptprof.report import document  # noqa: PLC0415
    from ckptprof.report.live.frame import frame  # noqa: PLC0415

    if json:
        output.write(document.dump(document.state_document(state)))
        return
    lines = frame(state, screen_options(output.terminal_width(), output.terminal_height(), colour=colour))[
        :-1
    ]  # not the keys
    output.write("".join(f"{line}\n" for line in lines))
