"""Replay a recording through the same detection and report its checkpoints."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from ckptprof import units
from ckptprof.cli import filters, options, output
from ckptprof.errors import NothingFoundError
from ckptprof.model import Kind, Report
from ckptprof.report import document, hints, terminal
from ckptprof.report.clean import clean
from ckptprof.report.summary import selected, without_copies
from ckptprof.report.table import wrap

EXAMPLES = """
# Its checkpoints
ckptprof replay train.ckptrec.gz
# Why each event of one job is a checkpoint or not
ckptprof replay --why --job 'train*' train.ckptrec.gz
# Into a database, for list, show and diff
ckptprof replay --db replayed.db train.ckptrec.gz
"""
File = Annotated[Path, typer.Argument(metavar="FILE", readable=False, help="A file that `ckptprof capture` wrote.")]
Why = Annotated[bool, typer.Option("--why", help="Also explain each event: why it is a checkpoint or not.")]


def command(  # each argument is an option of the command line
    file: File,
    *,
    db: Annotated[
        str | None,
        options.option(
            "--db",
            "PATH",
            "Store the checkpoints in this database; selecting options apply to the output only.",
            callback=options.check_database_path,
        ),
    ] = None,
    since: filters.Since = None,
    until: filters.Until = None,
    job: filters.Job = None,
    kind: filters.KindOption = None,
    limit: filters.Limit = None,
    why: Why = False,
    json: options.Json = False,
    no_color: options.NoColor = False,
) -> None:
    """Replay a recording through the same detection and report its checkpoints.

    Nothing is stored unless --db is given. --since and --until are relative to the end of the recording: 2h is two
    hours before it, and 10:30 is on its day. The exit code is 3 if there is no checkpoint.
    """
    from ckptprof.report import why as explain  # noqa: PLC0415 - `--help` needs none of it
    from ckptprof.service.commands.replaying import replay  # noqa: PLC0415 - nor of this
    from ckptprof.service.progress_line import ProgressLine  # noqa: PLC0415 - nor of this

    filters.query(since, until, job, kind, limit, now_ns=time.time_ns())  # report invalid options before reading
    progress = ProgressLine()
    try:
        replayed = replay(file, db, on_progress=lambda share: progress.show(f"replaying {file.name}: {share:.0%}"))
    finally:
        progress.clear()
    query = filters.query(since, until, job, kind, limit, now_ns=replayed.report.watched.end_ns or 0)
    report = selected(replayed.report, query)
    decisions = explain.select(replayed.decisions, query) if why else []
    if json:
        content = document.report_document(report)
        if why:
            content["events"] = explain.documents(decisions, replayed.report.checkpoints)
        output.write(document.dump(content))
    else:
        output.use_units()
        width = output.terminal_width()
        if report.checkpoints:
            colour = output.use_colour(off=no_color)
            copies = "--kind copy lists them"
            if db is None:
                hints.set_databases(hints.PATH)
            output.write(terminal.render(report, width=width, colour=colour, zone=output.LocalZone(), copies=copies))
            if db is None:
                output.write("\n".join([*wrap(_not_stored(file), width), ""]))
        for line in explain.explanations(decisions, replayed.report.checkpoints, width):
            output.write(line + "\n")
    if why and replayed.forgotten_count:
        lost = units.plural(replayed.forgotten_count, "event")
        output.write(f"ckptprof: {lost} more not explained: too many at once\n", sys.stderr)
    if replayed.damage is not None:
        raise replayed.damage
    if not report.checkpoints:
        others = len(without_copies(replayed.report).checkpoints)
        raise _nothing_found(file, kind, others=others, report=report, explained=why, decisions=len(decisions))


def _not_stored(file: Path) -> str:
    return f"Not stored. To store it: `ckptprof replay {clean(shlex.quote(str(file)))} --db {hints.PATH}`."


def _nothing_found(
    file: Path, kind: Kind | None, *, others: int, report: Report, explained: bool, decisions: int
) -> NothingFoundError:
    """Build the error for a recording without a matching checkpoint; `others`: the number that do not match."""
    found = f"{file}: no {'checkpoint' if kind is None else kind.value} in it"
    if report.copies_left_out:
        return NothingFoundError(found, hint="--kind copy lists its file copies")
    if others:
        hint = f"it has {units.plural(others, 'checkpoint')}: loosen --since, --until, --job or --kind"
        return NothingFoundError(f"{found} matches", hint=hint)
    if explained:
        return NothingFoundError(
            found, hint=None if decisions else "no process in it transferred files like a checkpoint"
        )
    return NothingFoundError(found, hint="--why explains what was observed and rejected")
