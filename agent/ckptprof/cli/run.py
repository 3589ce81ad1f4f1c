"""Run one command and report every checkpoint that it and its descendants save or restore."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from ckptprof.cli import options, output
from ckptprof.errors import UsageError
from ckptprof.report import document, terminal

Arguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="[--] CMD [ARG]...", help="The command and its arguments.", show_default=False),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Write the report to FILE instead of stderr.", show_default=False
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Store, and report nothing at the end.")]


def command(
    arguments: Arguments = None,
    *,
    db: options.Db = None,
    output_path: Output = None,
    json: options.Json = False,
    quiet: Quiet = False,
    no_color: options.NoColor = False,
) -> int:
    """Run one command and report every checkpoint that it and its descendants save or restore.

    No privilege is needed for one's own processes. Exits with the command's code; the report goes to stderr.
    """
    if not arguments:
        raise UsageError("no command was given", hint="ckptprof run -- python train.py")
    from ckptprof.service.running import record  # noqa: PLC0415 - `--help` needs none of it
    from ckptprof.store.location import default_path  # noqa: PLC0415

    outcome = record(arguments, default_path() if db is None else db)
    if quiet:
        return outcome.exit_code
    target = None
    try:
        target = output_path.open("w", encoding="utf-8") if output_path is not None else None
        stream = target or sys.stderr
        if json:
            output.write(document.dump(document.report_document(outcome.report)), stream)
        else:
            colour = output.use_colour(stream, off=no_color)
            text = terminal.render(
                outcome.report, width=output.terminal_width(), colour=colour, zone=output.LocalZone()
            )
            output.write(f"\n{text}" if target is None else text, stream)
        stream.flush()
    except OSError as error:  # the command's code matters more than our report
        from ckptprof.service import messages  # noqa: PLC0415

        messages.warn(f"the report could not be written: {os.strerror(error.errno or 0)}; see `ckptprof report`")
    finally:
        if target is not None:
            target.close()
    return outcome.exit_code
