"""List checkpoints, one line each, for pipes and grep."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from ckptprof.cli import filters, options, output
from ckptprof.cli.shared.database import (
    expand_databases,
    hint_service_database,
    hung_saves,
    read_database,
    read_databases,
)
from ckptprof.errors import NothingFoundError
from ckptprof.model import CheckpointQuery
from ckptprof.report import document, rows, terminal

EXAMPLES = """
# The paths of the last ten saves
ckptprof list --kind save --limit 10 | cut -f 9
# The same document as report, for jq and scripts
ckptprof list --json --since yesterday
"""


def command(  # each argument is an option of the command line
    *,
    db: options.Dbs = None,
    since: filters.Since = None,
    until: filters.Until = None,
    job: filters.Job = None,
    kind: filters.KindOption = None,
    limit: filters.Limit = None,
    json: options.Json = False,
    no_color: options.NoColor = False,
) -> int:
    """List checkpoints, one line each, for pipes and grep.

    On a terminal the output is a table that fits its width. In a pipe, fields are separated by tabs: id, start, kind,
    seconds, bytes, pattern, step, job, path, status, mode, stall in seconds, limit, confidence of that limit. `-` means
    not observed. With several databases, a line is a checkpoint across all its nodes, with three more fields: nodes,
    ranks, the node that all others waited for. --json prints the same document as `ckptprof report --json`. Ids also
    number copies, which only --kind copy lists. The exit code is 3 if there is no checkpoint, and 6 if a database
    cannot be read; the others are still listed.
    """
    query = filters.query(since, until, job, kind, limit, now_ns=time.time_ns())
    paths = expand_databases(db)
    if len(paths) > 1:
        return _several(paths, query, json=json, no_color=no_color)
    with read_database(paths[0]) as reader:
        report = reader.report(query)
        hung = hung_saves(reader, query) if json else ()
    if json:
        output.write(document.dump(document.report_document(report, hung)))
    elif output.is_terminal():
        output.write_text(partial(terminal.table, report), no_color=no_color)
    else:
        output.write(rows.tabbed(report, zone=output.LocalZone()))
    if not report.checkpoints:
        message, hint = terminal.explain_empty(report)
        raise NothingFoundError(message, hint=hint_service_database(db) or hint)
    return 0


def _several(dbs: Sequence[str | None], query: CheckpointQuery, *, json: bool, no_color: bool) -> int:
    from ckptprof.report.cluster import cluster_document as documents  # noqa: PLC0415 # for several databases only
    from ckptprof.report.cluster import nodes_report  # noqa: PLC0415 # likewise

    found = read_databases(dbs, query)
    if json:
        output.write(document.dump(documents.report_document(found.checkpoints, found.records, found.unread)))
    elif output.is_terminal():
        output.write_text(partial(nodes_report.table, found.checkpoints), no_color=no_color)
    else:
        output.write(nodes_report.tabs(found.checkpoints, output.LocalZone()))
    return found.conclude()
