"""Run one command and report every checkpoint that it and its descendants save or restore."""

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
from ckptprof.report.hints import typed
from ckptprof.report.summary import without_copies

if TYPE_CHECKING:
    from ckptprof.cli.shared.beside import Beside
    from ckptprof.service.commands.running import Outcome

EXAMPLES = """
# One command; what it saved and restored is reported when it ends
ckptprof run -- python train.py
# A job that runs already: until it ends, or until Ctrl-C, which does not end the job
ckptprof run --pid 4242
# On a screen while it runs; what it prints goes to ckptprof-run.PID.out
ckptprof run --live -- python train.py
# In a database of its own, with the report in a file
ckptprof run --db before.db --json --output report.json -- python train.py --lr 0.1
"""
Arguments = Annotated[list[str] | None, options.argument("[--] CMD [ARG]...", "The command and its arguments.")]
Pid = Annotated[
    int | None,
    options.given(
        "--pid",
        "PID",
        "Join this process and its children instead: until it ends, or until Ctrl-C.",
        parser=options.whole("--pid", least=1),
    ),
]
Output = Annotated[
    Path | None,
    options.given("--output", "FILE", "Write the report to FILE instead of stderr.", short="-o", readable=False),
]
Live = Annotated[
    bool,
    typer.Option(
        "--live",
        help="Show while it runs what goes on, as `ckptprof live` does. The command reads nothing from the terminal "
        "then, and prints into the file ckptprof-run.PID.out here; q leaves the screen and stops nothing.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Store the checkpoints, and print no report at the end.")]


def command(
    arguments: Arguments = None,
    *,
    pid: Pid = None,
    db: options.Db = None,
    level: options.Level = "auto",
    output_path: Output = None,
    live: Live = False,
    json: options.Json = False,
    quiet: Quiet = False,
    no_color: options.NoColor = False,
) -> int:
    """Run one command and report every checkpoint that it and its descendants save or restore.

    No privilege is needed for your own processes. The report goes to stderr; the exit code is the command's own, and 0
    of a process that was joined.
    """
    if arguments and pid is not None:
        raise UsageError("a command was given, and --pid too", hint="--pid joins what runs already, and starts nothing")
    if not arguments and pid is None:
        raise UsageError("no command was given", hint="ckptprof run -- python train.py")
    from ckptprof.service.commands.target import open_target  # noqa: PLC0415 - `--help` needs none of it

    target = None if output_path is None else open_target(output_path, 0o666)  # after a day it would be late to fail
    from ckptprof.service.commands.running import record  # noqa: PLC0415 - likewise

    with contextlib.ExitStack() as stack:
        screen = _screen(starts=pid is None, no_color=no_color) if live else None
        if screen is not None:
            stack.enter_context(screen)
        outcome = record(arguments or pid or (), db, level=level, screen=screen)
    if quiet:
        return outcome.exit_code
    try:
        _write(without_copies(outcome.report), target, partial(_why_none, outcome), json=json, no_color=no_color)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with our report, the command's code matters more
        from ckptprof.service.recorder import messages  # noqa: PLC0415

        reason = (isinstance(error, OSError) and error.strerror) or f"{type(error).__name__}: {error}"
        messages.warn(typed(f"the report could not be written: {reason}; see `ckptprof report`"))
    return outcome.exit_code


def _screen(*, starts: bool, no_color: bool) -> Beside | None:
    """Return a screen beside what runs; None if there can be none, which is told."""
    from ckptprof.cli.shared.beside import Beside, is_possible  # noqa: PLC0415 - `--help` needs none of it

    if is_possible():
        output.use_units()
        return Beside(starts=starts, colour=output.use_colour(off=no_color))
    from ckptprof.service.recorder import messages  # noqa: PLC0415 - likewise

    messages.say("--live needs a terminal, and to be in its foreground: it goes on without a screen")
    return None


def _why_none(outcome: Outcome, report: Report) -> tuple[str, str]:
    from ckptprof.report.why import nearest  # noqa: PLC0415 - imports the tables of the detection

    message, hint = terminal.explain_empty_run(report)
    return message, nearest(outcome.rejected) or hint


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
            output.use_units()
            colour = output.use_colour(stream, off=no_color)
            text = terminal.render(
                report,
                width=output.terminal_width(),
                colour=colour,
                zone=output.LocalZone(),
                empty=empty,
            )
            output.write(f"\n{text}" if target is None else text, stream)
        stream.flush()
    finally:
        if target is not None:
            with contextlib.suppress(OSError):  # it tries again what `flush` could not do
                stream.close()
