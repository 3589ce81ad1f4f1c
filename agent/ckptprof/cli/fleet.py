"""Questions across nodes: stragglers, cost, limits, each job's newest step, collisions, odd nodes."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import typer

from ckptprof import units
from ckptprof.cli import filters, options, output
from ckptprof.cli.shared.database import complain, expand_databases, read_databases
from ckptprof.errors import NothingFoundError, UsageError

if TYPE_CHECKING:
    from ckptprof.cluster.answers import FleetAnswer
    from ckptprof.fleet.questions import FleetDatabase

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
# Merge what nodes shipped to a bucket, hourly on one host; then ask
ckptprof fleet compact --db s3://bucket/ckptprof --keep 90d
ckptprof fleet cost --db s3://bucket/ckptprof --since 7d
"""


Question = Literal["stragglers", "cost", "limits", "newest", "collisions", "nodes", "compact"]
By = Literal["job", "run", "user", "account", "partition", "framework", "mode", "storage", "week"]
QuestionArgument = Annotated[
    Question, options.argument("stragglers|cost|limits|newest|collisions|nodes|compact", "The question.")
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
Keep = Annotated[
    str | None, options.option("--keep", "DAYS", "For `compact`: delete days older than this: 90d. Default: keep all.")
]


def command(  # each argument is an option of the command line
    question: QuestionArgument,
    *,
    db: options.Dbs = None,
    by: ByOption = None,
    split: Split = None,
    keep: Keep = None,
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
    nodes whose agent, level, kernel or clock differs, and nodes that are silent while others save. Copies of
    checkpoint files are not counted. The exit code is 3 if there is no checkpoint, and 6 if a database cannot be read;
    the rest is still reported.

    --db names databases of nodes, or the folder or bucket that nodes ship to (a folder, s3:// or gs://). `compact`
    merges what was shipped there since its last run; run it hourly, on one host. Questions need the extra: pip install
    'ckptprof[fleet]'.
    """
    own = {
        "--by": (by, "cost"),
        "--split": (split, "limits"),
        "--keep": (keep, "compact"),
    }
    for option, (given, of) in own.items():
        if given and question != of:
            raise UsageError(f"{option} needs `ckptprof fleet {of}`", hint=f"leave {option} out")
    from ckptprof.report import document  # noqa: PLC0415 - `--help` needs none of these

    try:
        from ckptprof.fleet import questions  # noqa: PLC0415 # an extra
    except ImportError as error:
        raise UsageError(f"{error.name} is not installed", hint="pip install 'ckptprof[fleet]'") from error
    now_ns = time.time_ns()
    if question == "compact":
        return _compact(db, keep, now_ns)
    split_ns = None if split is None else filters.moment(split, now_ns=now_ns, option="--split")
    query = filters.query(since, until, job, kind, limit, now_ns=now_ns)
    zone = units.fixed_zone(now_ns, output.LocalZone())
    with TemporaryDirectory(prefix="ckptprof-fleet-") as temporary:
        tables, unread = _open_tables(db, Path(temporary))
        number = tables.select(query, now_ns)
        answer: FleetAnswer = tables.ask(
            question,
            questions.ANSWERS[question],
            by=by or "job",
            split_ns=split_ns,
            zone_seconds=round(zone.utcoffset(None).total_seconds()),
        )
        tables.close()
    answer = msgspec.structs.replace(answer, unread=tuple(unread))
    if json:
        output.write(document.dump(document.to_document(answer)))
    elif number or question == "nodes":
        from ckptprof.report.cluster.fleet import render  # noqa: PLC0415 # as above

        output.write(render(answer, zone, **output.layout(no_color=no_color)))
    code = complain(unread)
    if not number and question != "nodes" and code == 0:
        raise NothingFoundError("no checkpoint matches", hint="loosen --since, --job and --kind if given")
    return code


def _fleet_url(db: list[str] | None) -> str | None:
    from ckptprof.store.location import is_fleet  # noqa: PLC0415 # as above

    fleets = [one for one in db or () if is_fleet(one)]
    if fleets and len(db or ()) > 1:
        raise UsageError("one fleet is asked at a time", hint=f"give --db {fleets[0]} alone")
    return fleets[0] if fleets else None


def _open_tables(db: list[str] | None, temporary: Path) -> tuple[FleetDatabase, list[str]]:
    from ckptprof.fleet import questions, reading  # noqa: PLC0415 # as above
    from ckptprof.service.progress_line import show_while_waiting  # noqa: PLC0415 # as above

    url = _fleet_url(db)
    if url is not None:
        with show_while_waiting(f"reading {url} ..."):
            return reading.open_fleet(url, temporary)
    tables = questions.FleetDatabase(temporary)
    found = read_databases(expand_databases(db), None)
    tables.add_merged(found.checkpoints, map(questions.node_state, found.records))
    return tables, found.unread


def _compact(db: list[str] | None, keep: str | None, now_ns: int) -> int:
    from ckptprof.fleet.compaction import compact  # noqa: PLC0415 # as above
    from ckptprof.fleet.files import FleetFiles  # noqa: PLC0415 # as above
    from ckptprof.service.progress_line import ProgressLine  # noqa: PLC0415 # as above

    if db is None or len(db) != 1:
        raise UsageError("compact needs one --db", hint="give the folder or bucket that nodes ship to")
    days = None
    if keep is not None:
        days = (now_ns - filters.moment(keep, now_ns=now_ns, option="--keep")) // (86_400 * 10**9)
        if days < 1:
            raise UsageError(f"--keep {keep} is less than a day", hint="write 90d")
    progress = ProgressLine()
    done = compact(FleetFiles(db[0]), keep_days=days, now_ns=now_ns, progress=progress.show)
    progress.clear()
    days_text = ", ".join(done.days) or "none"
    output.write(
        f"{units.plural(done.files, 'file')} with {units.plural(done.rows, 'row')} merged; days: {days_text}\n"
    )
    if done.expired:
        output.write(f"deleted: {', '.join(done.expired)}\n")
    return complain(done.unread)
