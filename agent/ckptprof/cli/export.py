"""Take recorded checkpoints along: for a spreadsheet, a notebook, DuckDB or Perfetto."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal, get_args

import msgspec
import typer

from ckptprof.cli import filters, options, output
from ckptprof.cli.database import elsewhere, reading
from ckptprof.cli.shared import pages
from ckptprof.errors import NothingFoundError, UsageError
from ckptprof.model import CheckpointQuery
from ckptprof.report.clean import clean

if TYPE_CHECKING:
    from ckptprof.service.progress import Progress
    from ckptprof.store.reader import StoreReader


Format = Literal["csv", "jsonl", "parquet", "arrow", "perfetto"]  # what is written
_SUFFIX = {"perfetto": ".perfetto-trace"}  # of the others: the word
_TOLD_ROWS = 1000  # between two looks at whether to tell how many there were
_BINARY = ("parquet", "arrow", "perfetto")
EXAMPLES = """
# The checkpoints of two hours, for a spreadsheet
ckptprof export --since 2h -o checkpoints.csv
# Every table as a file of its own in a folder, for DuckDB or pandas
ckptprof export --format parquet -o .
# What was saved when, on a time line: open it at https://ui.perfetto.dev
ckptprof export -o run.perfetto-trace
"""

FormatOption = Annotated[
    Format | None,
    typer.Option("--format", "-f", show_default=False, help="Default: what the name of FILE ends in, else csv."),
]
Table = Annotated[
    str | None,
    options.given(
        "--table",
        "NAME",
        "checkpoints, writers, accounts, devices, streams, evidence, sessions, timeline, progress or series. "
        "Default: checkpoints; all but series where FILE is a folder.",
    ),
]
Out = Annotated[
    str | None, options.given("--output", "FILE", "Where to, or a folder. Default: standard output.", short="-o")
]


def command(  # each argument is an option of the command line
    *,
    db: options.Db = None,
    since: filters.Since = None,
    until: filters.Until = None,
    job: filters.Job = None,
    kind: filters.KindOption = None,
    limit: filters.Limit = None,
    format_: FormatOption = None,
    table: Table = None,
    out: Out = None,
    force: pages.Force = False,
) -> None:
    """Take recorded checkpoints along: for a spreadsheet, a notebook, DuckDB or Perfetto.

    Columns are those of the database, which `ckptprof sql` lists. Times are nanoseconds since 1970 in CSV and JSON
    Lines, and timestamps in Parquet and Arrow, which need the extra: pip install 'ckptprof[parquet]'. What was not
    seen is an empty field or null. In CSV, a text that a spreadsheet would run has a ' before it. The exit code is 3
    if there is no checkpoint.
    """
    query = filters.query(since, until, job, kind, limit, now_ns=time.time_ns())
    folder = out is not None and out != "-" and os.path.isdir(out)  # noqa: PTH112 # no error for one that may not be looked at
    chosen = format_ or _by_name(None if folder else out)
    if table is not None and chosen == "perfetto":
        raise UsageError(
            "--table is of the other formats", hint="a trace holds what checkpoints, ranks and devices did"
        )
    if chosen in _BINARY and out in (None, "-") and sys.stdout.isatty():
        raise UsageError(f"{chosen} is nothing for a terminal", hint="give --output FILE")
    with reading(db, prints=True) as reader:
        if not reader.report(msgspec.structs.replace(query, limit=1)).checkpoints:
            raise NothingFoundError(
                "no checkpoint was recorded that fits", hint=elsewhere(db) or "`ckptprof report` tells what there is"
            )
        if chosen == "perfetto":
            with _opened(f"{out}/checkpoints{_suffix(chosen)}" if folder else out, force=force) as file:
                _trace(reader, query, file)
            return
        for name in _tables(table, all_=folder):
            with _opened(f"{out}/{name}{_suffix(chosen)}" if folder else out, force=force) as file:
                _records(reader, chosen, name, query, file)


def _by_name(out: str | None) -> Format:
    found = [one for one in get_args(Format) if (out or "").endswith(_suffix(one))]
    if not found and out is not None and Path(out).suffix:
        known = ", ".join(_suffix(one) for one in get_args(Format))
        raise UsageError(f"no format has the suffix {Path(out).suffix!r}", hint=f"known: {known}; or give --format")
    return found[0] if found else "csv"


def _suffix(chosen: Format) -> str:
    return _SUFFIX.get(chosen, f".{chosen}")


def _tables(name: str | None, *, all_: bool) -> list[str]:
    from ckptprof.store.records import NAMES  # noqa: PLC0415 # imports SQLAlchemy

    if name is not None:
        if name not in NAMES:
            raise UsageError(f"there is no table {name!r}", hint=f"give one of {', '.join(NAMES)}")
        return [name]
    return [name for name in NAMES if name != "series"] if all_ else ["checkpoints"]


@contextmanager
def _opened(out: str | None, *, force: bool) -> Iterator[IO[bytes]]:
    if out is None or out == "-":
        yield sys.stdout.buffer
        return
    with pages.created(out, force=force) as file:
        yield file
    output.write(f"{clean(out)}\n")


def _records(reader: StoreReader, chosen: Format, name: str, query: CheckpointQuery, file: IO[bytes]) -> None:
    from ckptprof.export.files import columnar, textual  # noqa: PLC0415 # `--help` needs none of them
    from ckptprof.service.progress import Progress  # noqa: PLC0415

    about = reader.about()
    is_standard = file is sys.stdout.buffer
    progress = Progress(quiet=is_standard)  # a pager may have the terminal
    with reader.records(name, query) as records, ExitStack() as last:
        last.callback(progress.clear)
        rows = _counted(records.rows, name, progress)
        if chosen in ("parquet", "arrow"):
            columnar.write(chosen, file, records.fields, rows, about)
            return
        lines = textual.csv if chosen == "csv" else textual.json_lines
        shown = is_standard and output.is_terminal()
        for line in lines(records.fields, rows):
            file.write(f"{clean(line.decode().rstrip())}\n".encode() if shown else line)


def _counted(rows: Iterator[tuple[Any, ...]], name: str, progress: Progress) -> Iterator[tuple[Any, ...]]:
    """Give the rows on, and tell now and then how many there were."""
    for number, row in enumerate(rows, start=1):
        yield row
        if number % _TOLD_ROWS == 0:
            progress.tell(f"{name}: {number:,} rows")


def _trace(reader: StoreReader, query: CheckpointQuery, file: IO[bytes]) -> None:
    from ckptprof.export.files.perfetto import MAX_EVENTS, Rate, Trace  # noqa: PLC0415 # as above
    from ckptprof.report.html.rates import directions  # noqa: PLC0415 # as above

    report = reader.report(query)
    gaps = [(gap.start_ns, gap.end_ns) for gap in report.watched.gaps]
    moved = [
        Rate(f"{one.entity} {word}", spans)
        for one in pages.counted(reader, report)
        for word, spans in directions(one, gaps)
    ]
    trace = Trace()
    file.writelines(trace.packets(report.checkpoints, [one for one in moved if one.spans], clean(report.host or "?")))
    if trace.left_out:
        output.write(f"more than {MAX_EVENTS:,} events: {trace.left_out:,} were left out\n", sys.stderr)
