"""Show one checkpoint: its course over time, streams, devices and evidence."""

from __future__ import annotations

from typing import Annotated

import typer

from ckptprof.cli import options, output
from ckptprof.cli.database import reading
from ckptprof.errors import NothingFoundError
from ckptprof.report import document
from ckptprof.report import show as rendering

EXAMPLES = """
# The checkpoint with the id 3
ckptprof show 3
# The newest one
ckptprof show $(ckptprof list --limit 1 | cut -f 1)
"""


def command(
    checkpoint_id: Annotated[
        int,
        typer.Argument(
            metavar="ID", parser=options.whole("ID", least=0), help="The id that `report` and `list` print."
        ),
    ],
    *,
    db: options.Db = None,
    json: options.Json = False,
    no_color: options.NoColor = False,
) -> None:
    """Show one checkpoint: its course over time, streams, devices and evidence.

    The exit code is 3 if there is no checkpoint with this id.
    """
    with reading(db) as reader:
        found = reader.checkpoint(checkpoint_id)
    if found is None:
        raise NothingFoundError(f"there is no checkpoint {checkpoint_id}", hint="`ckptprof list` prints the ids")
    if json:
        output.write(document.dump(document.checkpoint_document(found)))
        return
    output.write(
        rendering.render(
            found,
            width=output.terminal_width(),
            colour=output.use_colour(off=no_color),
            zone=output.LocalZone(),
            blocks=output.blocks(),
        )
    )
