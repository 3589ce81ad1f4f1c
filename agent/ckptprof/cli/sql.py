"""Query the database in SQL: SELECT only, with limits on time and rows."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ckptprof.cli import options, output
from ckptprof.cli.shared.database import read_database
from ckptprof.errors import UsageError
from ckptprof.report.clean import clean

EXAMPLES = """
# Tables and views with their columns; those that start with v_ are made for queries
ckptprof sql
# What limited the saves of each job, and for how long they blocked training
ckptprof sql 'SELECT job, limited_by, count(*) AS saves, sum(stall_seconds) AS blocked FROM v_checkpoints GROUP BY 1, 2'
# The slowest rank of each checkpoint, for a spreadsheet
ckptprof sql --csv 'SELECT checkpoint_id, rank, max(end_time) FROM v_ranks GROUP BY 1'
"""

Statement = Annotated[str | None, options.argument("[STATEMENT]", "One SELECT; - reads it from standard input.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print comma-separated values with a header line.")]


def command(  # each argument is an option of the command line
    statement: Statement = None,
    *,
    db: options.Db = None,
    csv: Csv = False,
    json: options.Json = False,
    no_color: options.NoColor = False,
) -> None:
    """Query the database in SQL: SELECT only, with limits on time and rows.

    The database is opened read-only; no statement can change it, open another database or load code. A query is
    limited to ten seconds, 100,000 rows and 256 MiB of memory; more rows are cut off, with a message on stderr. Columns
    that end in _ns are nanoseconds since 1970, those that end in _time are seconds. NULL means not observed.
    """
    if csv and json:
        raise UsageError("--csv and --json are different formats", hint="give one of them")
    width, colour = output.terminal_width(), output.use_colour(off=no_color)
    if statement == "-":
        statement = sys.stdin.read()
    with read_database(db) as reader:
        from ckptprof.report import document, sql_result  # noqa: PLC0415 # `--help` needs neither

        if statement is None:
            columns = reader.columns()
            lines = sql_result.schema(columns, width=width, colour=colour)
            output.write(document.dump({"tables": columns}) if json else "\n".join(lines) + "\n")
            return
        answer = reader.run_query(options.text("the statement")(statement))
    if json:
        output.write(document.dump(sql_result.document(answer.columns, answer.rows, is_truncated=answer.is_truncated)))
    elif csv:
        from ckptprof.export.files.text_files import csv_line  # noqa: PLC0415 # as above

        values = map(csv_line, (answer.columns, *answer.rows))
        if output.is_terminal():
            output.write("".join(f"{clean(line.decode().rstrip())}\n" for line in values))
        else:
            sys.stdout.buffer.writelines(values)
    else:
        limit = width if output.is_terminal() else sys.maxsize
        output.write(
            "".join(f"{row}\n" for row in sql_result.table(answer.columns, answer.rows, width=limit, colour=colour))
        )
    if answer.is_truncated:
        output.write(f"only the first {len(answer.rows):,} rows: give a LIMIT, or a WHERE\n", sys.stderr)
