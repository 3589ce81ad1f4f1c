"""Run a command and report every checkpoint that it and its descendants save or restore."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ckptprof.cli import options, output
from ckptprof.errors import UsageError
from ckptprof.model import Report
from ckptprof.report import document, terminal
from ckptprof.report.hints import with_databases
from ckptprof.report.summary import without_copies

if TYPE_CHECKING:
    from ckptprof.service.commands.running import RunOutcome

EXAMPLES = """
# One command, with a report at its end
ckptprof run -- python train.py
# A running job, until it ends or you press Ctrl-C (the job continues)
ckptprof run --pid 4242
# In a database of its own, with the report in a file
ckptprof run --db before.db --json --output report.json -- python train.py --lr 0.1
"""
Arguments = Annotated[list[str] | None, options.argument("[--] CMD [ARG]...", "The command and its arguments.")]
Pid = Annotated[
    int | None,
    options.option(
        "--pid",
        "PID",
        "Attach to this process and its children, until it ends or you press Ctrl-C.",
        parser=options.whole_number("--pid", least=1),
    ),
]
Output = Annotated[
    Path | None,
    options.option("--output", "FILE", "Write the report to FILE instead of stderr.", short="-o", readable=False),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Store the checkpoints without printing a report.")]


def command(
    arguments: Arguments = None,
    *,
    pid: Pid = None,
    db: options.Db = None,
    level: options.Level = "auto",
    output_path: Output = None,
    json: options.Json = False,
    quiet: Quiet = False,
    no_color: options.NoColor = False,
) -> int:
    """Run a command and report every checkpoint that it and its descendants save or restore.

    No privileges are needed for your own processes. The report goes to stderr. The exit code is that of the command, or
    0 with --pid.
    """
    if arguments and pid is not None:
        raise UsageError(
            "a command and --pid were both given", hint="--pid attaches to a running process; leave the command out"
        )
    if not arguments and pid is None:
        raise UsageError("no command was given", hint="ckptprof run -- python train.py")
    from ckptprof.service.commands.output_file import open_output  # noqa: PLC0415 - `--help` needs none of it

    target = None if output_path is None else open_output(output_path, 0o666)  # fail before the command runs
    from ckptprof.service.commands.running import record  # noqa: PLC0415 - likewise

    outcome = record(arguments or pid or (), db, level=level)
    if quiet:
        return outcome.exit_code
    try:
        _write(without_copies(outcome.report), target, partial(_explain_empty, outcome), json=json, no_color=no_color)
    except Exception as error:  # noqa: BLE001 - the exit code of the command matters more than our report
        from ckptprof.service.recorder import messages  # noqa: PLC0415

        reason = (isinstance(error, OSError) and error.strerror) or f"{type(error).__name__}: {error}"
        messages.warn(with_databases(f"the report could not be written: {reason}; see `ckptprof report`"))
    return outcome.exit_code


def _explain_empty(outcome: RunOutcome, report: Report) -> tuple[str, str]:
    from ckptprof.report.why import closest_candidate  # noqa: PLC0415 - imports the tables of the detection

    message, hint = terminal.explain_empty_run(report)
    return message, closest_candidate(outcome.rejected) or hint


def _write(
    report: Report, target: int | None, empty: Callable[[Report], tuple[str, str]], *, json: bool, no_color: bool
) -> None:
    stream = sys.stderr if target is None else os.fdopen(target, "w", encoding="utf-8")
    try:
        if target is not None and stat.S_ISREG(os.fstat(target).st_mode):
            stream.truncate(0)
        if json:
            output.write(document.dump(document.report_document(report)), stream)
        else:
            layout = output.layout(stream, no_color=no_color)
            stored = [one for one in report.checkpoints if one.id]
            slowest = max(stored, key=lambda one: one.end_ns - one.start_ns, default=None)
            next_ = [] if slowest is None else [f"`ckptprof show {slowest.id}` explains the slowest."]
            text = terminal.render(report, **layout, zone=output.LocalZone(), empty=empty, remarks=next_)
            output.write(f"\n{text}" if target is None else text, stream)
        stream.flush()
    finally:
        if target is not None:
            with contextlib.suppress(OSError):  # it repeats the failed `flush`
                stream.close()
