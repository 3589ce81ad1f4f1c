"""Ask what nodes tell together: stragglers, cost, limits, each job's newest step, collisions, odd nodes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import typer

from ckptprof import units
from ckptprof.cli import filters, options, output
from ckptprof.cli.database import Several, named, reading_several
from ckptprof.errors import UsageError
from ckptprof.report.clean import clean

if TYPE_CHECKING:
    from datetime import timezone

    from ckptprof.cluster.fleet.annotations import Annotations
    from ckptprof.cluster.fleet.runs import Told
    from ckptprof.report.cluster.fleet import Sheet

EXAMPLES = """
# Which node the others waited for in the last hundred checkpoints, and what held it up
ckptprof fleet stragglers --db 'nodes/*.db' --limit 100
# GPU time by week, and by framework
ckptprof fleet cost --db nodes/ --by week
ckptprof fleet cost --db nodes/ --by framework
# What limits saves on each storage, before and after a change
ckptprof fleet limits --db nodes/ --split 2d
# The newest step that each job could be restored from, for a script
ckptprof fleet newest --db nodes/ --json
# Jobs that save at the same time, and nodes whose agent, kernel or clock differs
ckptprof fleet collisions --db nodes/
ckptprof fleet nodes --db nodes/
# What would be noted in the AdminComment of each Slurm job; then note it, as root on the controller
ckptprof fleet annotate --db nodes/
ckptprof fleet annotate --db nodes/ --write
"""


Question = Literal["stragglers", "cost", "limits", "newest", "collisions", "nodes", "annotate"]
By = Literal["job", "run", "user", "account", "partition", "framework", "mode", "storage", "week"]
Asked = Annotated[Question, options.argument("stragglers|cost|limits|newest|collisions|nodes|annotate", "What to ask.")]
OfCost = Annotated[
    By | None, typer.Option("--by", help="Of `cost`: what it covers. Default: each job.", show_default=False)
]
Split = Annotated[
    str | None,
    options.given(
        "--split",
        "TIME",
        "Of `limits`: tell checkpoints that began before this time and later ones apart; the forms of --since.",
    ),
]

Write = Annotated[
    bool, typer.Option("--write", help="Of `annotate`: write the notes, where a job has none or an older one of ours.")
]


def command(  # each argument is an option of the command line
    question: Asked,
    *,
    db: options.Dbs = None,
    by: OfCost = None,
    split: Split = None,
    write: Write = False,
    since: filters.Since = None,
    until: filters.Until = None,
    job: filters.Job = None,
    kind: filters.KindOption = None,
    limit: filters.Limit = None,
    json: options.Json = False,
    no_color: options.NoColor = False,
) -> int:
    """Ask what nodes tell together: stragglers, cost, limits, each job's newest step, collisions, odd nodes.

    `stragglers` tells which nodes the others waited for, beyond what clocks explain; `cost` the GPU time in which
    training was blocked, and its share of what the runs had; `limits` what limits checkpoints on each storage; `newest`
    the newest step that each job could be restored from, its age, and how often to save with the time between restarts
    that was seen; `collisions` which jobs save at the same time on storage that they share, and by how much to shift
    one of them; `nodes` whose agent, level, kernel or clock is not as that of the others, and who is silent while
    others save; `annotate` what is to be noted of each job of Slurm in its AdminComment, which `sacct` shows, and with
    --write notes it. Copies of checkpoint files count in none. The exit code is 3 if there is no checkpoint, 6 if a
    database could not be read, and 1 if a note could not be written: the others are told all the same.
    """
    from ckptprof.report import document  # noqa: PLC0415 - `--help` needs none of it

    if by is not None and question != "cost":
        raise UsageError("--by is of `ckptprof fleet cost`", hint="leave --by out")
    if split is not None and question != "limits":
        raise UsageError("--split is of `ckptprof fleet limits`", hint="leave --split out")
    if write and question != "annotate":
        raise UsageError("--write is of `ckptprof fleet annotate`", hint="leave --write out")
    now_ns = time.time_ns()
    split_ns = None if split is None else filters.moment(split, now_ns=now_ns, option="--split")
    found = reading_several(named(db), filters.query(since, until, job, kind, limit, now_ns=now_ns))
    zone = units.fixed_zone(now_ns, output.LocalZone())
    told: Told
    if question == "annotate":
        told, sheet = _annotated(found, write=write)
    else:
        told, sheet = _answer(question, found, by=by or "job", split_ns=split_ns, now_ns=now_ns, zone=zone)
    told = msgspec.structs.replace(told, unread=tuple(found.unread))
    if json:
        output.write(document.dump(document.of(told)))
    elif found.checkpoints or question == "nodes":
        from ckptprof.report.cluster.fleet import drawn  # noqa: PLC0415 # as above

        output.use_units()
        width, colour = output.terminal_width(), output.use_colour(off=no_color)
        output.write(drawn(sheet(), told, width=width, colour=colour))
    code = found.complain() if question == "nodes" else found.conclude()
    return _complained(told) or code if write else code


def _answer(
    question: Question, found: Several, *, by: By, split_ns: int | None, now_ns: int, zone: timezone
) -> tuple[Told, Callable[[], Sheet]]:
    from ckptprof.cluster.fleet import collisions, costs, limits, newest, nodes, stragglers  # noqa: PLC0415
    from ckptprof.report.cluster import fleet as pages  # noqa: PLC0415

    every, records = found.checkpoints, found.records
    if question == "stragglers":
        waited = stragglers.stragglers(every)
        return waited, lambda: pages.stragglers(waited)
    if question == "cost":
        spent = costs.costs(every, by, zone)
        return spent, lambda: pages.costs(spent)
    if question == "limits":
        bounded = limits.limits(every, split_ns)
        return bounded, lambda: pages.limits(bounded, zone)
    if question == "newest":
        kept = newest.newest(every, records, now_ns)
        return kept, lambda: pages.newest(kept, zone)
    if question == "collisions":
        met = collisions.collisions(every)
        return met, lambda: pages.collisions(met)
    seen = nodes.nodes(every, records)
    return seen, lambda: pages.nodes(seen, zone)


def _annotated(found: Several, *, write: bool) -> tuple[Annotations, Callable[[], Sheet]]:
    from ckptprof.cluster.fleet import annotations  # noqa: PLC0415 - `--help` needs none of these
    from ckptprof.report.cluster import fleet as pages  # noqa: PLC0415
    from ckptprof.service.commands import accounting  # noqa: PLC0415

    jobs, not_asked = accounting.annotated(annotations.notes(found.checkpoints), write=write)
    told = annotations.Annotations(
        checkpoints=len(found.checkpoints), is_written=write, not_asked=not_asked, jobs=tuple(jobs)
    )
    return told, lambda: pages.annotated(told)


def _complained(told: Told) -> int:
    """Name on stderr the notes that could not be written, and return the exit code that says so; 0 if all could be."""
    from ckptprof.cluster.fleet.annotations import Annotations  # noqa: PLC0415 - `--help` needs none of these
    from ckptprof.service.commands.accounting import SlurmError  # noqa: PLC0415

    jobs = told.jobs if isinstance(told, Annotations) else ()
    failed = [f"of job {one.job}: {one.error}" for one in jobs if one.error is not None]
    for one in failed:
        output.write(f"ckptprof: not written: {clean(one)}\n", sys.stderr)
    return SlurmError.exit_code if failed else 0
