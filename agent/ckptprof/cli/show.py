"""Show one checkpoint: what limited it, what it cost, what to do; --all shows every detail."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Annotated

import typer

from ckptprof.cli import options, output
from ckptprof.cli.shared import html_option
from ckptprof.cli.shared.database import expand_databases, read_database, read_databases
from ckptprof.cluster.model import ClusterCheckpoint
from ckptprof.errors import NothingFoundError, StoreError, UsageError
from ckptprof.model import CheckpointQuery
from ckptprof.report import document
from ckptprof.report import show as rendering
from ckptprof.report.outliers import find_outliers

EXAMPLES = """
# Checkpoint 3
ckptprof show 3
# Every detail
ckptprof show 3 --all
# The newest one
ckptprof show $(ckptprof list --limit 1 | cut -f 1)
"""
_UID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z")
_OTHERS = 200  # checkpoints of its job that it is compared with
All = Annotated[
    bool,
    typer.Option(
        "--all",
        "-a",
        help="Show every detail: where the time went, phases, pattern, streams, disks, evidence, limitations.",
    ),
]


def _identity(typed: str) -> str:
    """Validate an id or uid; raises UsageError."""
    return typed.lower() if _UID.match(typed) else str(options.whole_number("ID", least=0)(typed))


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
    html: html_option.Html = None,
    out: html_option.Out = None,
    force: html_option.Force = False,
    show: html_option.Open = False,
    no_color: options.NoColor = False,
) -> int:
    """Show one checkpoint: what limited it, what it cost, what to do; --all shows every detail.

    On a terminal, the output of --all goes to the program in PAGER (less); elsewhere the first lines are repeated at
    the end. The exit code is 3 if there is no checkpoint with this id.

    With several databases, it shows the checkpoint across their nodes, one line each, by the id that `list` prints
    with the same databases; --all and --html cover one node only.
    """
    page = html_option.requested_page(html=html, json=json, out=out, force=force, show=show)
    paths = expand_databases(db)
    if len(paths) > 1:
        if whole or page is not None:
            raise UsageError("--all and --html cover one node only", hint="give one database with --db")
        return _several(paths, checkpoint_id, json=json, no_color=no_color)
    with read_database(paths[0], prints=page is not None) as reader:
        number = int(checkpoint_id) if checkpoint_id.isdecimal() else reader.id_of(checkpoint_id)
        found = None if number is None else reader.checkpoint(number)
        if found is None:
            raise NothingFoundError(f"there is no checkpoint {checkpoint_id}", hint="`ckptprof list` prints the ids")
        others = reader.report(CheckpointQuery(job=found.job, kind=found.kind, limit=_OTHERS)).checkpoints
        if page is not None:
            name = f"ckptprof-{found.kind.value}-{found.id}.html"
            page.write(reader, html_option.report_of_one(reader, found), others, name=name)
            return 0
    if json:
        output.write(document.dump(document.checkpoint_document(found)))
        return 0
    output.use_units()
    note = next((one.compared for one in find_outliers([found], others)), "")
    render = partial(rendering.render if whole else rendering.brief, found, note, blocks=output.blocks())
    if not output.write_text(render, pager=whole and not no_pager, no_color=no_color) and whole:
        output.write(rendering.ending(found, **output.layout(no_color=no_color)))
    return 0


def _several(dbs: Sequence[str | None], identity: str, *, json: bool, no_color: bool) -> int:
    from ckptprof.report.cluster import cluster_document as documents  # noqa: PLC0415 # for several databases only
    from ckptprof.report.cluster import nodes_report as rendering_several  # noqa: PLC0415 # likewise

    several = read_databases(dbs, None)
    found = next((one for one in several.checkpoints if identity in _names(one)), None)
    if found is None:
        if several.complain():
            raise StoreError(f"no checkpoint {identity} in the readable databases")
        raise NothingFoundError(f"there is no checkpoint {identity}", hint="`ckptprof list` prints the ids")
    if json:
        output.write(document.dump(documents.checkpoint_document(found)))
    else:
        output.write_text(partial(rendering_several.render_checkpoint, found), no_color=no_color)
    return several.complain()


def _names(one: ClusterCheckpoint) -> set[str]:
    return {str(one.whole.id), one.whole.uid, *(part.uid for part in one.nodes)}
