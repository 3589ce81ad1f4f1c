"""Report the checkpoints that were recorded, and what they come to."""

from __future__ import annotations

import time

from ckptprof.cli import filters, options, output
from ckptprof.cli.database import reading
from ckptprof.errors import NothingFoundError
from ckptprof.report import document, terminal


def command(  # each argument is an option of the command line
    *,
    db: options.Db = None,
    since: filters.Since = None,
    until: filters.Until = None,
    job: filters.Job = None,
    kind: filters.KindOption = None,
    limit: filters.Limit = None,
    json: options.Json = False,
    no_color: options.NoColor = False,
) -> None:
    """Report the checkpoints that were recorded, and what they come to.

    Exits with 3 if there are none.
    """
    query = filters.query(since, until, job, kind, limit, now_ns=time.time_ns())
    with reading(db) as reader:
        report = reader.report(query)
    if json:
        output.write(document.dump(document.report_document(report)))
    if not report.checkpoints:
        message, hint = terminal.explain_empty(report)
        raise NothingFoundError(message, hint=hint)
    if not json:
        colour = output.use_colour(off=no_color)
        width = output.terminal_width()
        output.write(terminal.render(report, width=width, colour=colour, zone=output.LocalZone()))
