"""Replay a recording through the same detection, and report the checkpoints in it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ckptprof.cli import filters, options, output
from ckptprof.errors import NothingFoundError
from ckptprof.report import document, terminal
from ckptprof.report.summary import of_kind

File = Annotated[Path, typer.Argument(metavar="FILE", readable=False, help="A file that `ckptprof capture` wrote.")]
_WHY = "--why tells what was seen and left out"
Why = Annotated[bool, typer.Option("--why", help="Tell also why each event is what it is: what is no checkpoint, too.")]


def command(
    file: File,
    *,
    db: Annotated[
        str | None,
        typer.Option(
            "--db",
            metavar="PATH",
            help="Store the checkpoints in this database.",
            callback=options.not_empty,
            show_default=False,
        ),
    ] = None,
    kind: filters.KindOption = None,
    why: Why = False,
    json: options.Json = False,
    no_color: options.NoColor = False,
) -> None:
    """Replay a recording through the same detection, and report the checkpoints in it.

    Nothing is stored unless --db is given. The exit code is 3 if there is no checkpoint.
    """
    from ckptprof.report import why as explain  # noqa: PLC0415 - `--help` needs none of it
    from ckptprof.service.commands.replaying import replay  # noqa: PLC0415 - nor of this

    replayed = replay(file, db)
    report = of_kind(replayed.report, kind)
    if json:
        told = document.report_document(report)
        if why:
            told["judged"] = explain.documents(replayed.judged, replayed.report.checkpoints)
        output.write(document.dump(told))
    elif report.checkpoints:
        colour = output.use_colour(off=no_color)
        width = output.terminal_width()
        text = terminal.render(
            report, width=width, colour=colour, zone=output.LocalZone(), copies="--kind copy lists them"
        )
        output.write(text)
    if why and not json:
        for line in explain.explanations(replayed.judged, replayed.report.checkpoints):
            output.write(line + "\n")
    if replayed.damage is not None:
        raise replayed.damage
    if not report.checkpoints:
        hint = "--kind copy lists the copies of files in it" if report.copies_left_out else _WHY
        raise NothingFoundError(f"{file}: no {kind.value if kind else 'checkpoint'} in it", hint=hint)
