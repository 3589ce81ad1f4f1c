"""Questions across nodes: stragglers, cost, limits, each job's newest step, collisions, odd nodes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import typer

from ckptprof import units
from ckptprof.cli import filters, options, output
from ckptprof.cli.database import MergedDatabases, expand_databases, read_databases
from ckptprof.errors import UsageError
from ckptprof.report.clean import clean

if TYPE_CHECKING:
    from datetime import timezone

    from ckptprof.cluster.fleet.annotations import Annotations
    from ckptprof.cluster.fleet.runs import FleetAnswer
    from ckptprof.report.cluster.fleet import Sheet

EXAMPLES = """
# Nodes that the others waited for in the last hundred checkpoints, and what limited them
ckptprof fleet stragglers --db 'nodes/*.db' --limit 100
# GPU time by week, and by framework
ckptprof fleet cost --db nodes/ --by week
ckptprof fleet cost --db nodes/ --by framework
# What limits saves on each storage, before and after a change
ckptprof fleet limits --db nodes/ --split 2d
# The newest restorable step of each job, for a script
ckptprof fleet newest --db nodes/ --json
# Jobs that save at the same time, and nodes whose agent, kernel or clock differs
ckptprof fleet collisions --db nodes/
ckptprof fleet nodes --db nodes/
# Preview the AdminComment of each Slurm job; then write it, as root on the controller
ckptprof fleet annotate --db nodes/
ckptprof fleet annotate --db nodes/ --write
"""


Question = Literal["stragglers", "cost", "limits", "newest", "collisions", "nodes", "annotate"]
By = Literal["job", "run", "user", "account", "partition", "framework", "mode", "storage", "week"]
QuestionArgument = Annotated[
    Question, options.argument("stragglers|cost|limits|newest|collisions|nodes|annotate", "The question.")
]
ByOption = Annotated[
    By | None, typer.Option("--by", help="For `cost`: group by this. Default: job.", show_default=False)
]
Split = Annotated[
    str | None,
    options.option(
        "--split",
        "TIME",
        "For `limits`: separate checkpoints before and after this time; same formats as --since.",
    ),
]

Write = Annotated[
    bool,
    typer.Option("--write", help="For `annotate`: write the comment if the job has none, or an older one of ckptprof."),
]


def command(  # each argument is an option of the command line
    question: QuestionArgument,
    *,
    db: options.Dbs = None,
    by: ByOption = None,
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
    """Questions across nodes: stragglers, cost, limits, each job's newest step, collisions, odd nodes.

    `stragglers`: nodes that the others waited for, by more than clock error. `cost`: GPU time in which training was
    blocked, and its share of the runs' GPU time. `limits`: what limits checkpoints on each storage. `newest`: each
    job's newest restorable step, its age, and the optimal save interval for the observed time between restarts.
    `collisions`: jobs that save at the same time on shared storage, and by how much to shift one of them. `nodes`:
    nodes whose agent, level, kernel or clock differs, and nodes that are silent while others save. `annotate`: a line
    for the AdminComment of each Slurm job, which `sacct` shows; --write stores it. Copies of checkpoint files are not
    counted. The exit code is 3 if there is no checkpoint, 6 if a database cannot be read, 1 if a comment cannot be
    written; the rest is still reported.
    """
    from ckptprof.report import document  # noqa: PLC0415 - `--help` needs none of it

    if by is not None and question != "cost":
        raise UsageError("--by needs `ckptprof fleet cost`", hint="leave --by out")
    if split is not None and question != "limits":
        raise UsageError("--split needs `ckptprof fleet limits`", hint="leave --split out")
    if write and question != "annotate":
        raise UsageError("--write needs `ckptprof fleet annotate`", hint="leave --write out")
    now_ns = time.time_ns()
    split_ns = None if split is None else filters.moment(split, now_ns=now_ns, option="--split")
    found = read_databases(expand_databases(db), filters.query(since, until, job, kind, limit, now_ns=now_ns))
    zone = units.fixed_zone(now_ns, output.LocalZone())
    answer: FleetAnswer
    if question == "annotate":
        answer, sheet = _annotate(found, write=write)
    else:
        answer, sheet = _answer(question, found, by=by or "job", split_ns=split_ns, now_ns=now_ns, zone=zone)
    answer = msgspec.structs.replace(answer, unread=tuple(found.unread))
    if json:
        output.write(document.dump(document.to_document(answer)))
    elif found.checkpoints or question == "nodes":
        from ckptprof.report.cluster.fleet import render_sheet  # noqa: PLC0415 # as above

        output.use_units()
        width, colour = output.terminal_width(), output.use_colour(off=no_color)
        output.write(render_sheet(sheet(), answer, width=width, colour=colour))
    code = found.complain() if question == "nodes" else found.conclude()
    return _report_failures(answer) or code if write else code


def _answer(
    question: Question, found: MergedDatabases, *, by: By, split_ns: int | None, now_ns: int, zone: timezone
) -> tuple[FleetAnswer, Callable[[], Sheet]]:
    from ckptprof.cluster.fleet import collisions, fleet_costs, limits, newest_steps, nodes, straggler_nodes  # noqa: PLC0415
    from ckptprof.report.cluster import fleet as pages  # noqa: PLC0415

    every, records = found.checkpoints, found.records
    if question == "stragglers":
        waited = straggler_nodes.stragglers(every)
        return waited, lambda: pages.stragglers(waited)
    if question == "cost":
        spent = fleet_costs.costs(every, by, zone)
        return spent, lambda: pages.costs(spent)
    if question == "limits":
        bounded = limits.limits(every, split_ns)
        return bounded, lambda: pages.limits(bounded, zone)
    if question == "newest":
        restorable_steps = newest_steps.newest_restorable(every, records, now_ns)
        return restorable_steps, lambda: pages.newest(restorable_steps, zone)
    if question == "collisions":
        met = collisions.collisions(every)
        return met, lambda: pages.collisions(met)
    node_rows = nodes.nodes(every, records)
    return node_rows, lambda: pages.nodes(node_rows, zone)


def _annotate(found: MergedDatabases, *, write: bool) -> tuple[Annotations, Callable[[], Sheet]]:
    from ckptprof.cluster.fleet import annotations  # noqa: PLC0415 - `--help` needs none of these
    from ckptprof.report.cluster import fleet as pages  # noqa: PLC0415
    from ckptprof.service.commands import accounting  # noqa: PLC0415

    jobs, not_queried = accounting.annotate_jobs(annotations.annotation_texts(found.checkpoints), write=write)
    answer = annotations.Annotations(
        checkpoints=len(found.checkpoints), is_written=write, not_queried=not_queried, jobs=tuple(jobs)
    )
    return answer, lambda: pages.annotated(answer)


def _report_failures(answer: FleetAnswer) -> int:
    """Report on stderr the comments that could not be written; return the exit code, 0 if all were written."""
    from ckptprof.cluster.fleet.annotations import Annotations  # noqa: PLC0415 - `--help` needs none of these
    from ckptprof.service.commands.accounting import SlurmError  # noqa: PLC0415

    jobs = answer.jobs if isinstance(answer, Annotations) else ()
    failed = [f"comment of job {one.job}: {one.error}" for one in jobs if one.error is not None]
    for one in failed:
        output.write(f"ckptprof: not written: {clean(one)}\n", sys.stderr)
    return SlurmError.exit_code if failed else 0
