"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from ckptprof.errors import UsageError


def not_empty(path: str | None) -> str | None:
    """Return the path as it was given; raises UsageError for an empty path, which would be the working directory."""
    if path == "":
        raise UsageError("--db is empty", hint="give the path of a file, or leave --db out")
    return path


Db = Annotated[
    str | None,
    typer.Option(
        "--db",
        envvar="CKPTPROF_DB",
        metavar="PATH",
        help="The database. Default: /var/lib/ckptprof/ckptprof.db for root, "
        "~/.local/state/ckptprof/ckptprof.db for others; who has none there and may read root's is told of that.",
        callback=not_empty,
        show_default=False,
    ),
]
Level = Annotated[
    Literal["auto", "trace", "poll"],
    typer.Option(
        "--level",
        envvar="CKPTPROF_LEVEL",
        help="How to observe: `trace` counts each call by eBPF, `poll` reads counters now and then, "
        "`auto` takes the best level that works here.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
NoColor = Annotated[bool, typer.Option("--no-color", help="Print without colours, as NO_COLOR=1 does.")]
Gpus = Annotated[
    int | None,
    typer.Option(
        "--gpus", metavar="N", min=1, show_default=False,
        help="GPUs that wait while training is blocked. Default: those that NVML shows, or one for each rank.",
    ),
]  # fmt: skip
