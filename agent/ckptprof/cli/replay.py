"""Send a recording through the same detection and report what it holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ckptprof.cli import options, output
from ckptprof.errors import NothingFoundError
from ckptprof.report import document, terminal

File = Annotated[Path, typer.Argument(metavar="FILE", help="What `ckptprof capture` wrote.")]
Why = Annotated[bool, typer.Option("--why", help="Tell also what was no checkpoint, and why.")]


def command(
    file: File,
    *,
    db: Annotated[
        str | None,
        typer.Option("--db", metavar="PATH", help="Store what is found in this database.", show_default=False),
    ] = None,
    why: Why = False,
    json: options.Json = False,
    no_color: options.NoColor = False,
) -> None:
    """Send a recording through the same detection and report what it holds.

    Nothing is stored unless --db is given. Exits with 3 if there are no checkpoints.
    """
    from ckptprof.service.replaying import replay  # noqa: PLC0415 - `--help` needs none of it

    replayed = replay(file, db)
    if json:
        output.write(document.dump(document.report_document(replayed.report)))
    elif replayed.report.checkpoints:
        colour = output.use_colour(off=no_color)
        width = output.terminal_width()
        output.write(terminal.render(replayed.report, width=width, colour=colour, zone=output.LocalZone()))
    if why and not json:
        for line in replayed.rejected:
            output.write(line + "\n")
    if replayed.damage is not None:
        raise replayed.damage
    if not replayed.report.checkpoints:
        raise NothingFoundError(f"{file}: no checkpoint in it", hint="--why tells what was seen and left out")
