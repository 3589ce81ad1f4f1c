"""Export checkpoints for spreadsheets, notebooks, DuckDB, TensorBoard or Perfetto."""

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

from ckptprof import units
from ckptprof.cli import filters, options, output
from ckptprof.cli.shared import html_option
from ckptprof.cli.shared.database import hint_service_database, read_database
from ckptprof.errors import NothingFoundError, UsageError
from ckptprof.model import CheckpointQuery
from ckptprof.report.clean import clean

if TYPE_CHECKING:
    from ckptprof.service.progress_line import ProgressLine
    from ckptprof.store.reader import StoreReader


Format = Literal["csv", "jsonl", "parquet", "arrow", "perfetto", "tensorboard"]  # what is written
_FILES = get_args(Format)[:-1]  # a suffix chooses these
_SUFFIX = {"perfetto": ".perfetto-trace"}  # otherwise the format's name
_PROGRESS_ROWS = 1000  # between two updates of the progress line
_BINARY = ("parquet", "arrow", "perfetto")
EXAMPLES = """
# The checkpoints of two hours, for a spreadsheet
ckptprof export --since 2h -o checkpoints.csv
# One file per view in a folder, for DuckDB or pandas
ckptprof export --format parquet -o .
# Scalars by step beside those of the training: tensorboard --logdir runs
ckptprof export --format tensorboard -o runs/ckptprof
# A timeline of saves: open it at https://ui.perfetto.dev
ckptprof export -o run.perfetto-trace
"""

FormatOption = Annotated[
    Format | None,
    typer.Option("--format", "-f", show_default=False, help="Default: by the suffix of FILE, else csv."),
]
Table = Annotated[
    str | None,
    options.option(
        "--table",
        "NAME",
        "A view: v_checkpoints, v_ranks, v_accounts, v_devices or v_sessions; or a raw table: checkpoints, writers, "
        "devices, streams, evidence, sessions, timeline, progress or series. Default: v_checkpoints; all views where "
        "FILE is a folder.",
    ),
]
Out = Annotated[
    str | None, options.option("--output", "FILE", "Output file or folder. Default: standard output.", short="-o")
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
    force: html_option.Force = False,
) -> None:
    """Export checkpoints for spreadsheets, notebooks, DuckDB, TensorBoard or Perfetto.

    What is written has the columns that `ckptprof sql` lists. Times are UTC, durations are seconds; in raw tables both
    are nanoseconds, times since 1970. Parquet and Arrow need the extra: pip install 'ckptprof[parquet]'; TensorBoard,
    which gets a run for each job, 'ckptprof[tensorboard]'. Values that were not observed are empty or null. In CSV,
    text that a spreadsheet would evaluate as a formula is prefixed with '. The exit code is 3 if there is no
    checkpoint.
    """
    query = filters.query(since, until, job, kind, limit, now_ns=time.time_ns())
    folder = out is not None and out != "-" and os.path.isdir(out)  # noqa: PTH112 # no error for an unreadable path
    chosen = format_ or _format_of_name(None if folder else out)
    if table is not None and chosen in ("perfetto", "tensorboard"):
        raise UsageError(f"--table does not apply to {chosen}", hint="give another --format, or no --table")
    if chosen in _BINARY and out in (None, "-") and sys.stdout.isatty():
        raise UsageError(f"{chosen} is a binary format, not for a terminal", hint="give --output FILE")
    with read_database(db, prints=True) as reader:
        if not reader.report(msgspec.structs.replace(query, limit=1)).checkpoints:
            raise NothingFoundError(
                "no recorded checkpoint matches",
                hint=hint_service_database(db) or "`ckptprof report` shows what is recorded",
            )
        if chosen == "tensorboard":
            _write_scalars(reader, query, out, force=force)
            return
        if chosen == "perfetto":
            with _open_output(f"{out}/checkpoints{_suffix(chosen)}" if folder else out, force=force) as file:
                _write_trace(reader, query, file)
            return
        from ckptprof.store.records import VIEW_NAMES  # noqa: PLC0415 # `--help` needs no SQLAlchemy

        for name in VIEW_NAMES if folder and table is None else (table or "v_checkpoints",):
            with _open_output(f"{out}/{name}{_suffix(chosen)}" if folder else out, force=force) as file:
                _write_table(reader, chosen, name, query, file)


def _format_of_name(out: str | None) -> Format:
    found = [one for one in _FILES if (out or "").endswith(_suffix(one))]
    if not found and out is not None and Path(out).suffix:
        suffixes = ", ".join(_suffix(one) for one in _FILES)
        raise UsageError(f"no format has the suffix {Path(out).suffix!r}", hint=f"known: {suffixes}; or give --format")
    return found[0] if found else "csv"


def _suffix(chosen: Format) -> str:
    return _SUFFIX.get(chosen, f".{chosen}")


@contextmanager
def _open_output(out: str | None, *, force: bool) -> Iterator[IO[bytes]]:
    if out is None or out == "-":
        yield sys.stdout.buffer
        return
    with html_option.create_file(out, force=force) as file:
        yield file
    output.write(f"{clean(out)}\n")


def _write_table(reader: StoreReader, chosen: Format, name: str, query: CheckpointQuery, file: IO[bytes]) -> None:
    from ckptprof.export.files import columnar, text_files  # noqa: PLC0415 # `--help` needs none of them
    from ckptprof.service.progress_line import ProgressLine  # noqa: PLC0415

    about = reader.file_metadata()
    is_standard = file is sys.stdout.buffer
    progress = ProgressLine(quiet=is_standard)  # a pager may have the terminal
    with reader.records(name, query) as records, ExitStack() as last:
        last.callback(progress.clear)
        rows = _with_progress(records.rows, name, progress)
        if chosen in ("parquet", "arrow"):
            columnar.write(chosen, file, records.fields, rows, about)
            return
        lines = text_files.csv if chosen == "csv" else text_files.json_lines
        shown = is_standard and output.is_terminal()
        for line in lines(records.fields, rows):
            file.write(f"{clean(line.decode().rstrip())}\n".encode() if shown else line)


def _with_progress(rows: Iterator[tuple[Any, ...]], name: str, progress: ProgressLine) -> Iterator[tuple[Any, ...]]:
    for number, row in enumerate(rows, start=1):
        yield row
        if number % _PROGRESS_ROWS == 0:
            progress.show(f"{name}: {number:,} rows")


def _write_scalars(reader: StoreReader, query: CheckpointQuery, out: str | None, *, force: bool) -> None:
    from ckptprof.export.files import tensorboard  # noqa: PLC0415 # as above

    if out in (None, "-"):
        raise UsageError("tensorboard reads a folder", hint="give --output DIR")
    folder = Path(str(out))
    if not force and folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{clean(str(out))} is not empty", hint="give another folder, or --force to add to it")
    with reader.records("v_checkpoints", query) as records:
        without_step = tensorboard.write(folder, records.fields, records.rows)
    output.write(f"{clean(str(out))}\n")
    if without_step:
        output.write(f"{units.plural(without_step, 'checkpoint')} without a step omitted\n", sys.stderr)


def _write_trace(reader: StoreReader, query: CheckpointQuery, file: IO[bytes]) -> None:
    from ckptprof.export.files.perfetto import MAX_EVENTS, PerfettoTrace, Rate  # noqa: PLC0415 # as above
    from ckptprof.report.html.rates import directions  # noqa: PLC0415 # as above

    report = reader.report(query)
    gaps = [(gap.start_ns, gap.end_ns) for gap in report.watched.gaps]
    rates = [
        Rate(f"{one.entity} {word}", spans)
        for one in html_option.read_counted(reader, report)
        for word, spans in directions(one, gaps)
    ]
    trace = PerfettoTrace()
    file.writelines(trace.packets(report.checkpoints, [one for one in rates if one.spans], clean(report.host or "?")))
    if trace.left_out:
        output.write(f"more than {MAX_EVENTS:,} events: {trace.left_out:,} omitted\n", sys.stderr)
