"""Report the recorded checkpoints, what they cost and what limited them."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from ckptprof.cli import filters, options, output
from ckptprof.cli.shared import fail_conditions, html_option
from ckptprof.cli.shared.database import (
    MergedDatabases,
    expand_databases,
    hint_service_database,
    hung_saves,
    read_database,
    read_databases,
)
from ckptprof.errors import NothingFoundError, UsageError
from ckptprof.model import CheckpointQuery, Kind, Report

if TYPE_CHECKING:
    from ckptprof.report.conditions import ConditionResult
    from ckptprof.report.jobs.memory import MemoryDocument
    from ckptprof.report.jobs.reads import ReadsDocument
    from ckptprof.report.plan import RestartsDocument
    from ckptprof.store.reader import StoreReader

    # the document, its text, and the error without a job in it
    _View = tuple[RestartsDocument | ReadsDocument | MemoryDocument, Callable[..., str], NothingFoundError]

All = Annotated[
    bool,
    typer.Option("--all", "-a", help="One line for each checkpoint; by default only the worst and the last ten."),
]
Restarts = Annotated[
    bool, typer.Option("--restarts", help="What failures and restarts cost: training redone, time without training.")
]
Reads = Annotated[
    bool, typer.Option("--reads", help="Who reads the saves back, when and for what; which are never read.")
]
Memory = Annotated[
    bool, typer.Option("--memory", help="What saves do to the memory of a job, and in how many more it is killed.")
]
_MEMORY_SAVES = 100  # the newest; each is read with all its measures
EXAMPLES = """
# Everything recorded
ckptprof report
# The last two hours of jobs whose names start with train
ckptprof report --since 2h --job 'train*'
# What did each failure cost?
ckptprof report --restarts
# Which saves are ever read, and how old do they get?
ckptprof report --reads
# A page to view or mail
ckptprof report --html report.html
# Several nodes together, from copies of their databases
ckptprof report --db 'nodes/*.db'
# Exit code 7 if one save in twenty blocks training for more than a minute
ckptprof report --fail-on 'stall_p95>60s'
"""


def command(  # each argument is an option of the command line
    *,
    db: options.Dbs = None,
    since: filters.Since = None,
    until: filters.Until = None,
    job: filters.Job = None,
    kind: filters.KindOption = None,
    limit: filters.Limit = None,
    gpus: options.Gpus = None,
    whole: All = False,
    restarts: Restarts = False,
    reads: Reads = False,
    memory: Memory = False,
    fail_on: fail_conditions.FailOn = None,
    allow_unknown: fail_conditions.AllowUnknown = False,
    no_pager: options.NoPager = False,
    json: options.Json = False,
    html: html_option.Html = None,
    out: html_option.Out = None,
    force: html_option.Force = False,
    show: html_option.Open = False,
    no_color: options.NoColor = False,
) -> int:
    """Report the recorded checkpoints, what they cost and what limited them.

    The first line names what limited most of the lost time, the second what to do first. Below, the run is one bar and
    each save a block as high as its duration. On a terminal, long output goes to the program in PAGER (less). Ids also
    number copies, which only --kind copy lists, except a copy that may restore wrongly. The exit code is 3 if there is
    no checkpoint.

    With several databases, a line is a checkpoint across all its nodes: as long as its slowest rank, on corrected
    clocks. A node is called slow if the others waited for it in three of its last ten saves, by more than clock error
    and chance explain. If a database cannot be read, the others are reported, and the exit code is 6.

    --restarts reports what each failure of a job cost instead: the training that was redone since the save it went on
    from, and the time until the next process started, restored and trained. Without a restart the exit code is 3.

    --reads reports what became of each save instead: its first reader, how long after the save, from the page cache or
    not, whether the reader resumed, branched or only read, and when the save was deleted or overwritten. By default
    saves without a read are only listed if they are of the last ten. Without a save the exit code is 3.

    --memory reports how much memory each of the newest 100 saves takes, how near that comes to the limit of the cgroup
    or host, and in about how many saves the kernel kills the job. Without a save the exit code is 3.

    --fail-on takes a condition: NAME, one of > >= < <= (for counts also = and !=, for limit only = and !=), and a value
    with its unit:
    'stall_share>5%', 'save_p99>2m', 'restore_max>30s', 'throughput_min<1GB/s', 'incomplete>0', 'risks>0', 'count<1',
    'limit=disk'. The names are count, saves, restores, incomplete, risks, share, stall_share, limit; and duration,
    save, restore, stall, at_risk, gpu_seconds, throughput, save_throughput, restore_throughput, size, amplification,
    ceiling_share, each with _min, _mean, _median, _p95, _p99, _max or, for times and sizes, _total. If a condition
    is met, stderr names it and the exit code is 7. A condition cannot be decided if fewer than half of the checkpoints
    have its figure, or if there is no checkpoint of its kind: then the exit code is 8, or 0 with --allow-unknown.
    """
    from ckptprof.report import answer, document, terminal  # noqa: PLC0415 - `--help` needs none of them
    from ckptprof.report.live.state import hangs  # noqa: PLC0415 # as above

    html_page = html_option.requested_page(html=html, json=json, out=out, force=force, show=show)
    evaluate = _compile_conditions(fail_on)
    query = filters.query(since, until, job, kind, limit, now_ns=time.time_ns())
    paths = expand_databases(db)
    views = {"--restarts": restarts and _restarts, "--reads": reads and partial(_reads, whole=whole)}
    chosen = [(name, view) for name, view in (views | {"--memory": memory and _memory}).items() if view]
    name = chosen[0][0] if chosen else "--html"
    if len(chosen) > 1 or (chosen and (html_page is not None or fail_on or kind or gpus)):
        raise UsageError(f"{name} excludes --html, --fail-on, --kind, --gpus and other views", hint="give one of them")
    if len(paths) > 1:
        if html_page is not None or chosen:
            raise UsageError(f"{name} covers one node only", hint="give one database with --db")
        found = read_databases(paths, query).with_gpus(gpus)
        _write_merged(found, whole=whole, json=json, off=no_pager, no_color=no_color)
        results = evaluate(found.report)
        code = 0 if any(one.is_met for one in results) and not found.unread else found.conclude()
        return fail_conditions.report_conditions(results, allow_unknown=allow_unknown) or code
    if chosen:
        with read_database(paths[0]) as reader:
            jobs = chosen[0][1](reader, query)
        return _write_jobs(jobs, json=json, off=no_pager, no_color=no_color)
    with read_database(paths[0], prints=html_page is not None) as reader:
        report = answer.with_gpus(reader.report(query), gpus)
        if html_page is not None:
            html_page.write(reader, report, name="ckptprof-report.html")
        hung = hung_saves(reader, query)
    if json:
        output.write(document.dump(document.report_document(report, hung)))
    results = evaluate(report)
    if not report.checkpoints and not any(one.is_met for one in results):
        message, hint = terminal.explain_empty(report)
        urgent = [f"{title.lower()}: {text}" for title, text in hangs(hung)]
        raise NothingFoundError("; ".join([*urgent, message]), hint=hint_service_database(db) or hint)
    if not json and html_page is None:
        is_limited = limit is not None and len(report.checkpoints) >= limit
        remarks = [
            *([f"--limit {limit}: older checkpoints are not included in any figure."] if is_limited else []),
            *([f"T{other_database[1:]}."] if (other_database := hint_service_database(db)) is not None else []),
        ]
        render = partial(terminal.render, report, whole=whole, urgent=hangs(hung), remarks=remarks)
        _write_text(render, off=no_pager, no_color=no_color)
    return fail_conditions.report_conditions(results, allow_unknown=allow_unknown)


def _restarts(reader: StoreReader, query: CheckpointQuery) -> _View:
    from ckptprof.diagnose.restarts import find_restarts  # noqa: PLC0415 # for --restarts only
    from ckptprof.report import plan  # noqa: PLC0415 # as above

    report = reader.report(query)
    jobs = tuple(find_restarts(report.checkpoints, reader.lives, report.watched.gaps))
    hint = "a restart is a restore of a recorded save, after the processes of its job ended"
    missing = NothingFoundError(f"no restart among {len(report.checkpoints):,} checkpoints", hint=hint)
    return plan.RestartsDocument(host=report.host, watched=report.watched, jobs=jobs), plan.render_restarts, missing


def _reads(reader: StoreReader, query: CheckpointQuery, *, whole: bool) -> _View:
    from ckptprof.diagnose.reads import find_reads  # noqa: PLC0415 # for --reads only
    from ckptprof.diagnose.restarts import find_restarts  # noqa: PLC0415 # as above
    from ckptprof.report.jobs import reads  # noqa: PLC0415 # as above

    chosen = {one.id for one in reader.report(query).checkpoints}
    report = reader.report(CheckpointQuery(since_ns=query.since_ns))  # any job may have read them, at any later time
    copies = reader.report(CheckpointQuery(since_ns=query.since_ns, kind=Kind.COPY)).checkpoints
    every = {one.id: one for one in (*report.checkpoints, *copies)}
    restarts = find_restarts(report.checkpoints, reader.lives, report.watched.gaps)
    jobs = tuple(
        find_reads(every.values(), reader.files(min(every, default=0), max(every, default=0)), restarts, chosen)
    )
    missing = NothingFoundError(f"no complete save among {len(chosen):,} checkpoints")
    render = partial(reads.render, whole=whole)
    return reads.ReadsDocument(host=report.host, watched=report.watched, jobs=jobs), render, missing


def _memory(reader: StoreReader, query: CheckpointQuery) -> _View:
    from ckptprof.diagnose.plan.memory import find_memory  # noqa: PLC0415 # for --memory only
    from ckptprof.report.jobs import memory  # noqa: PLC0415 # as above

    report = reader.report(query)
    saves = [one.id for one in report.checkpoints if one.kind is Kind.SAVE][-_MEMORY_SAVES:]
    measured = [found for identity in saves if (found := reader.checkpoint(identity)) is not None]
    jobs = tuple(find_memory(measured, reader.lives, reader.oom_kills))
    missing = NothingFoundError(f"no save with its memory among {len(report.checkpoints):,} checkpoints")
    return memory.MemoryDocument(host=report.host, watched=report.watched, jobs=jobs), memory.render, missing


def _write_jobs(found: _View, *, json: bool, off: bool, no_color: bool) -> int:
    from ckptprof.report import document  # noqa: PLC0415 # `--help` does not need it

    shown, render, missing = found
    if json:
        output.write(document.dump(document.to_document(shown)))
    if not shown.jobs:
        raise missing
    if not json:
        _write_text(partial(render, shown.jobs), off=off, no_color=no_color)
    return 0


def _write_merged(found: MergedDatabases, *, whole: bool, json: bool, off: bool, no_color: bool) -> None:
    from ckptprof.report.cluster import cluster_document, nodes_report  # noqa: PLC0415 # for several databases only
    from ckptprof.report.document import dump  # noqa: PLC0415 # as above

    nodes = found.checkpoints, found.records, found.unread
    if json:
        output.write(dump(cluster_document.report_document(*nodes)))
    elif found.checkpoints:
        _write_text(partial(nodes_report.render, *nodes, whole=whole), off=off, no_color=no_color)


def _write_text(render: Callable[..., str], *, off: bool, no_color: bool) -> None:
    """Write for a terminal; `off`: without a pager."""
    output.use_units()
    width, colour = output.terminal_width(), output.use_colour(off=no_color)
    text = render(width=width, colour=colour, zone=output.LocalZone())
    if not output.page(text, off=off):
        output.write(text)


def _compile_conditions(fail_on: list[str] | None) -> Callable[[Report], list[ConditionResult]]:
    """Parse the conditions before anything is read; raises UsageError."""
    if not fail_on:
        return lambda _: []
    from ckptprof.report import conditions  # noqa: PLC0415 # `--help` does not need it

    parsed = conditions.parse(fail_on, conditions.NAMES)
    return lambda report: conditions.evaluate(report, parsed)
