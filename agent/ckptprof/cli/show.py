"""Show one checkpoint: what limited it, what it cost and what to do; --all tells all that is known of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

import typer

from ckptprof.cli import options, output
from ckptprof.cli.database import are_of_several, named, reading, reading_several
from ckptprof.cli.shared import pages
from ckptprof.cluster.model import ClusterCheckpoint
from ckptprof.errors import NothingFoundError, StoreError, UsageError
from ckptprof.report import document
from ckptprof.report import show as rendering

EXAMPLES = """
# The checkpoint with the id 3
ckptprof show 3
# All that is known of it
ckptprof show 3 --all
# The newest one
ckptprof show $(ckptprof list --limit 1 | cut -f 1)
"""
_UID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z")
All = Annotated[
    bool,
    typer.Option(
        "--all", "-a", help="Tell all: where its time went, course, pattern, streams, devices, evidence, blind spots."
    ),
]


def _identity(typed: str) -> str:
    """Return the text of an id or of a uid; raises UsageError."""
    return typed.lower() if _UID.match(typed) else str(options.whole("ID", least=0)(typed))


def command(
    checkpoint_id: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            parser=_identity,
            help="The id that `report` and `list` print, or the uid of an exemplar in Grafana.",
        ),
    ],
    *,
    db: options.Dbs = None,
    whole: All = False,
    no_pager: options.NoPager = False,
    json: options.Json = False,
    html: pages.Html = None,
    out: pages.Out = None,
    force: pages.Force = False,
    show: pages.Open = False,
    no_color: options.NoColor = False,
) -> int:
    """Show one checkpoint: what limited it, what it cost and what to do; --all tells all that is known of it.

    What --all prints is longer than a screen: on a terminal it goes to the program in PAGER (less), and elsewhere the
    first lines come again as the last ones. The exit code is 3 if there is no checkpoint with this id.

    Of several databases it is the checkpoint on all of their nodes, with a line for each, by the id that `list` prints
    with the same databases; what --all and --html tell is of one node.
    """
    page = pages.asked(html=html, json=json, out=out, force=force, show=show)
    paths = named(db)
    if are_of_several(paths):
        if whole or page is not None:
            raise UsageError("--all and --html tell of one node", hint="give its database alone with --db")
        return _several(paths, checkpoint_id, json=json, no_color=no_color)
    with reading(paths[0], prints=page is not None) as reader:
        number = int(checkpoint_id) if checkpoint_id.isdecimal() else reader.id_of(checkpoint_id)
        found = None if number is None else reader.checkpoint(number)
        if found is None:
            raise NothingFoundError(f"there is no checkpoint {checkpoint_id}", hint="`ckptprof list` prints the ids")
        if page is not None:
            page.write(reader, pages.alone(reader, found), name=f"ckptprof-{found.kind.value}-{found.id}.html")
            return 0
    if json:
        output.write(document.dump(document.checkpoint_document(found)))
        return 0
    output.use_units()
    width, colour = output.terminal_width(), output.use_colour(off=no_color)
    tell = rendering.render if whole else rendering.brief
    text = tell(found, width=width, colour=colour, zone=output.LocalZone(), blocks=output.blocks())
    if output.page(text, off=no_pager or not whole):
        return 0
    output.write(text)
    if whole and not output.fits(text):
        output.write(rendering.ending(found, width=width, colour=colour))
    return 0


def _several(dbs: Sequence[str | None], identity: str, *, json: bool, no_color: bool) -> int:
    from ckptprof.report.cluster import document as documents  # noqa: PLC0415 # for several databases only
    from ckptprof.report.cluster import page as rendering_several  # noqa: PLC0415 # likewise

    several = reading_several(dbs, None)
    found = next((one for one in several.checkpoints if identity in _names(one)), None)
    if found is None:
        if several.complain():
            raise StoreError(f"there is no checkpoint {identity} in what could be read")
        raise NothingFoundError(f"there is no checkpoint {identity}", hint="`ckptprof list` prints the ids")
    if json:
        output.write(document.dump(documents.checkpoint_document(found)))
    else:
        output.use_units()
        width, colour = output.terminal_width(), output.use_colour(off=no_color)
        output.write(rendering_several.whole(found, width=width, colour=colour, zone=output.LocalZone()))
    return several.complain()


def _names(one: ClusterCheckpoint) -> set[str]:
    return {str(one.whole.id), one.whole.uid, *(part.uid for part in one.nodes)}
