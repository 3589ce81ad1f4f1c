"""Replay a recording through the same detection, and report the checkpoints in it."""

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
# The checkpoints in it
ckptprof replay train.ckptrec.gz
# Why each event of one job is a checkpoint, or none
ckptprof replay --why --job 'train*' train.ckptrec.gz
# Into a database, for list, show and diff
ckptprof replay --db replayed.db train.ckptrec.gz
"""
File = Annotated[Path, typer.Argument(metavar="FILE", readable=False, help="A file that `ckptprof capture` wrote.")]
Why = Annotated[bool, typer.Option("--why", help="Tell also why each event is what it is: what is no checkpoint, too.")]


def command(  # each argument is an option of the command line
    file: File,
    *,
    db: Annotated[
        str | None,
        options.given(
            "--db",
            "PATH",
            "Store the checkpoints in this database; the options that select only say what is printed.",
            callback=options.named_database,
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
    """Replay a recording through the same detection, and report the checkpoints in it.

    Nothing is stored unless --db is given. For --since and --until the recording ends now: 2h is two hours before its
    end, and 10:30 is on the day of its end. The exit code is 3 if there is no checkpoint.
    """
    from ckptprof.report import why as explain  # noqa: PLC0415 - `--help` needs none of it
    from ckptprof.service.commands.replaying import replay  # noqa: PLC0415 - nor of this
    from ckptprof.service.progress import Progress  # noqa: PLC0415 - nor of this

    filters.query(since, until, job, kind, limit, now_ns=time.time_ns())  # what makes no sense is told at once
    progress = Progress()
    try:
        replayed = replay(file, db, told=lambda share: progress.tell(f"replaying {file.name}: {share:.0%}"))
    finally:
        progress.clear()
    query = filters.query(since, until, job, kind, limit, now_ns=replayed.report.watched.end_ns or 0)
    report = selected(replayed.report, query)
    judged = explain.chosen(replayed.judged, query) if why else []
    if json:
        told = document.report_document(report)
        if why:
            told["judged"] = explain.documents(judged, replayed.report.checkpoints)
        output.write(document.dump(told))
    else:
        output.use_units()
        width = output.terminal_width()
        if report.checkpoints:
            colour = output.use_colour(off=no_color)
            copies = "--kind copy lists them"
            if db is None:
                hints.about(hints.PATH)
            output.write(terminal.render(report, width=width, colour=colour, zone=output.LocalZone(), copies=copies))
            if db is None:
                output.write("\n".join([*wrap(_not_stored(file), width), ""]))
        for line in explain.explanations(judged, replayed.report.checkpoints, width):
            output.write(line + "\n")
    if why and replayed.unexplained:
        lost = units.plural(replayed.unexplained, "event")
        output.write(f"ckptprof: {lost} more: so many were judged at once that not all are explained\n", sys.stderr)
    if replayed.damage is not None:
        raise replayed.damage
    if not report.checkpoints:
        others = len(without_copies(replayed.report).checkpoints)
        raise _nothing_found(file, kind, others=others, report=report, explained=why, judged=len(judged))


def _not_stored(file: Path) -> str:
    return f"Nothing of it is stored: `ckptprof replay {clean(shlex.quote(str(file)))} --db {hints.PATH}` stores it."


def _nothing_found(
    file: Path, kind: Kind | None, *, others: int, report: Report, explained: bool, judged: int
) -> NothingFoundError:
    """Return what to say of a recording in which nothing fits the question, `others` of which do not."""
    found = f"{file}: no {'checkpoint' if kind is None else kind.value} in it"
    if report.copies_left_out:
        return NothingFoundError(found, hint="--kind copy lists the copies of files in it")
    if others:
        hint = f"it holds {units.plural(others, 'checkpoint')}: loosen --since, --until, --job or --kind"
        return NothingFoundError(f"{found} that fits the question", hint=hint)
    if explained:
        return NothingFoundError(found, hint=None if judged else "no process in it moved files as a checkpoint does")
    return NothingFoundError(found, hint="--why tells what was seen and left out")
