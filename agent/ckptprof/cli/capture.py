"""Record raw samples into a file, which `ckptprof replay` reads here or elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ckptprof.cli import options
from ckptprof.errors import UsageError

EXAMPLES = """
# A command and its descendants, until it ends
ckptprof capture train.ckptrec.gz -- python train.py
# As root: the whole host for a minute
ckptprof capture host.ckptrec.gz --seconds 60
"""
_FORM = "write `ckptprof capture FILE -- CMD`"
File = Annotated[
    Path, typer.Argument(metavar="FILE", readable=False, help="The file to write, for example node.ckptrec.gz.")
]
Arguments = Annotated[
    list[str] | None,
    options.argument("[-- CMD [ARG]...]", "Record this command and its descendants only. Default: the whole host."),
]
Seconds = Annotated[
    float | None,
    options.option(
        "--seconds",
        "S",
        "Stop recording after this many seconds; the command continues. Default: at its end, or on Ctrl-C.",
        short="-s",
        parser=options.number_between("--seconds", 0.1),
    ),
]
Note = Annotated[
    str, typer.Option("--note", metavar="TEXT", help="A line of text about the recording, stored in the file.")
]
Force = Annotated[bool, typer.Option("--force", "-f", help="Overwrite FILE.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no messages.")]
Rate = Annotated[
    float | None,
    options.option(
        "--rate",
        "HZ",
        "Samples per second of training processes. Default: 10, with a command 25.",
        parser=options.number_between("--rate", 0.5, 100),
    ),
]


def command(
    context: typer.Context,
    file: File,
    arguments: Arguments = None,
    *,
    seconds: Seconds = None,
    note: Note = "",
    force: Force = False,
    quiet: Quiet = False,
    rate: Rate = None,
    level: options.Level = "auto",
) -> int:
    """Record raw samples into a file, which `ckptprof replay` reads here or elsewhere.

    A command runs as under `ckptprof run`: no privileges are needed, signals are forwarded, and the exit code is
    that of the command.

    The file contains counters, names of processes, files and devices, Python stacks of writers, the environment
    variables that identify a process within its job, and the first 24 bytes of files. It contains no command-line
    arguments and no other file contents.
    """
    _check(context.meta[options.TYPED], str(file), arguments or [])
    from ckptprof.service.commands import capturing  # noqa: PLC0415 - `--help` needs none of it

    wanted = capturing.CaptureOptions(seconds=seconds, note=note, force=force, quiet=quiet, rate=rate, level=level)
    if arguments:
        return capturing.capture_command(file, wanted, arguments)
    capturing.capture_host(file, wanted)
    return 0


def _check(typed: tuple[str, ...], file: str, arguments: list[str]) -> None:
    """Raise UsageError if the command has no `--` before it: its options would be parsed as ours."""
    if "--" not in typed:
        if arguments:
            raise UsageError(f"unexpected argument {arguments[0]!r}", hint=f"to record a command, {_FORM}")
        return
    behind = list(typed[typed.index("--") + 1 :])
    if behind == [file, *arguments]:
        raise UsageError("no file was given", hint=_FORM)
    if not behind:
        raise UsageError("no command was given", hint=_FORM)
