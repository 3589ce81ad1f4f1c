"""Ask the database in SQL: SELECT only, bounded in time and rows."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ckptprof.cli import options, output
from ckptprof.cli.database import reading
from ckptprof.errors import UsageError
from ckptprof.report.clean import clean

EXAMPLES = """
# The tables and views, with their columns; those that begin with v_ are made to be asked
ckptprof sql
# What limited the saves of each job, and for how long training stood still
ckptprof sql 'SELECT job, limited_by, count(*) AS saves, sum(stall_seconds) AS blocked FROM v_checkpoints GROUP BY 1, 2'
# The slowest rank of each checkpoint, for a spreadsheet
ckptprof sql --csv 'SELECT checkpoint_id, rank, max(end_time) FROM v_ranks GROUP BY 1'
"""

Statement = Annotated[str | None, options.argument("[STATEMENT]", "One SELECT; - reads it from standard input.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print comma-separated values with a line of names.")]


def command(  # each argument is an option of the command line
    statement: Statement = None,
    *,
    db: options.Db = None,
    csv: Csv = False,
    json: options.Json = False,
    no_color: options.NoColor = False,
) -> None:
    """Ask the database in SQL: SELECT only, bounded in time and rows.

    The database is opened for reading, and nothing that is asked can change it, open another one or load code. An
    answer has ten seconds, 100,000 rows and 256 MiB of memory; one that has more rows is cut, which standard error
    tells. Times that end in _ns are nanoseconds since 1970, those that end in _time seconds. What was not seen is NULL.
    """
    if csv and json:
        raise UsageError("--csv and --json are two formats", hint="give one of them")
    width, colour = output.terminal_width(), output.use_colour(off=no_color)
    if statement == "-":
        statement = sys.stdin.read()
    with reading(db) as reader:
        from ckptprof.report import document, selected  # noqa: PLC0415 # `--help` needs neither

        if statement is None:
            columns = reader.columns()
            lines = selected.schema(columns, width=width, colour=colour)
            output.write(document.dump({"tables": columns}) if json else "\n".join(lines) + "\n")
            return
        answer = reader.ask(options.text("the question")(statement))
    if json:
        output.write(document.dump(selected.document(answer.columns, answer.rows, is_cut=answer.is_cut)))
    elif csv:
        from ckptprof.export.files.textual import csv_line  # noqa: PLC0415 # as above

        values = map(csv_line, (answer.columns, *answer.rows))
        if output.is_terminal():
            output.write("".join(f"{clean(line.decode().rstrip())}\n" for line in values))
        else:
            sys.stdout.buffer.writelines(values)
    else:
        limit = width if output.is_terminal() else sys.maxsize
        output.write(
            "".join(f"{row}\n" for row in selected.table(answer.columns, answer.rows, width=limit, colour=colour))
        )
    if answer.is_cut:
        output.write(f"only the first {len(answer.rows):,} rows: give a LIMIT, or a WHERE\n", sys.stderr)
