"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

Db = Annotated[
    str | None,
    typer.Option(
        "--db",
        envvar="CKPTPROF_DB",
        metavar="PATH",
        help="The database. Without it: /var/lib/ckptprof/ckptprof.db for root, ~/.local/state/ckptprof for others.",
        show_default=False,
    ),
]
Level = Annotated[
    Literal["auto", "trace", "poll"],
    typer.Option(
        "--level",
        envvar="CKPTPROF_LEVEL",
        help="How to look: `trace` by eBPF at each call, `poll` now and then; `auto` takes the best that works here.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
NoColor = Annotated[bool, typer.Option("--no-color", help="Print without colours, as NO_COLOR=1 does.")]
Gpus = Annotated[
    int | None,
    typer.Option(
        "--gpus", metavar="N", min=1, help="GPUs that wait while training is held, where none were seen.",
        show_default=False,
    ),
]  # fmt: skip
