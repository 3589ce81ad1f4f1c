"""Record raw samples into a file, which `ckptprof replay` reads here or elsewhere."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from ckptprof.cli import options
from ckptprof.errors import UsageError

File = Annotated[
    Path, typer.Argument(metavar="FILE", readable=False, help="The file to write, for example node.ckptrec.gz.")
]
Seconds = Annotated[
    float | None,
    typer.Option(
        "--seconds", "-s", min=0.1, help="Stop after this many seconds. Default: on Ctrl-C.", show_default=False
    ),
]
Note = Annotated[str, typer.Option("--note", help="A line of text about the recording, kept in the file.")]
Force = Annotated[bool, typer.Option("--force", "-f", help="Overwrite FILE.")]
Rate = Annotated[
    float, typer.Option("--rate", min=0.5, max=100.0, help="How often to read the processes that train, per second.")
]


def command(
    file: File,
    *,
    seconds: Seconds = None,
    note: Note = "",
    force: Force = False,
    rate: Rate = 10.0,
    level: options.Level = "auto",
) -> None:
    """Record raw samples into a file, which `ckptprof replay` reads here or elsewhere.

    The file holds counters, the names of processes, files and devices, Python stacks of writers, the environment
    variables that place a process in its job, and the first 16 bytes of files. It holds no command-line arguments and
    no other contents of files.
    """
    if not math.isfinite(rate) or not math.isfinite(seconds or 0.0):
        raise UsageError("--seconds and --rate are finite numbers")
    from ckptprof.service.commands.capturing import capture  # noqa: PLC0415 - `--help` needs none of it

    capture(file, seconds=seconds, note=note, force=force, rate=rate, level=level)
