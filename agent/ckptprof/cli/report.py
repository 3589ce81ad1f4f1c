"""Report the recorded checkpoints, what they cost and what limited them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from ckptprof.cli import filters, options, output
from ckptprof.cli.database import Several, are_of_several, elsewhere, named, reading, reading_several
from ckptprof.cli.shared import gating, pages
from ckptprof.errors import NothingFoundError, UsageError
from ckptprof.model import Report

if TYPE_CHECKING:
    from ckptprof.report.conditions import Judged

All = Annotated[
    bool, typer.Option("--all", "-a", help="A line for each checkpoint; else, of many, the worst and the last ten.")
]
EXAMPLES = """
# All that was recorded
ckptprof report
# The last two hours of the jobs whose names begin with train
ckptprof report --since 2h --job 'train*'
# A page to look at and to mail
ckptprof report --html report.html
# What several nodes saved together, of copies of their databases
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
    fail_on: gating.FailOn = None,
    allow_unknown: gating.AllowUnknown = False,
    no_pager: options.NoPager = False,
    json: options.Json = False,
    html: pages.Html = None,
    out: pages.Out = None,
    force: pages.Force = False,
    show: pages.Open = False,
    no_color: options.NoColor = False,
) -> int:
    """Report the recorded checkpoints, what they cost and what limited them.

    The first line says what limited most of the lost time, the second what to do first; below them the run is one bar,
    and each save a block as high as it was long. On a terminal, what is longer than it goes to the program in PAGER
    (less). The ids count copies, too, which only --kind copy lists, but for one that may restore wrongly. The exit code
    is 3 if there is no checkpoint.

    Of several databases a line is a checkpoint on all of its nodes: as long as its slowest rank, on corrected clocks. A
    node is called slow if the others waited for it in three of its last ten saves, beyond what clocks and chance
    explain. If a database cannot be read, the others are told, and the exit code is 6.

    --fail-on takes a condition: NAME, one of > >= < <= (for counts also = and !=, for limit only = and !=), and a value
    with its unit:
    'stall_share>5%', 'save_p99>2m', 'restore_max>30s', 'throughput_min<1GB/s', 'incomplete>0', 'risks>0', 'count<1',
    'limit=device'. The names are count, saves, restores, incomplete, risks, share, stall_share, limit; and duration,
    save, restore, stall, at_risk, gpu_seconds, throughput, save_throughput, restore_throughput, size, amplification,
    ceiling_share, each with _min, _mean, _median, _p95, _p99, _max or, for times and sizes, _total. If a condition
    holds, stderr names it and the exit code is 7. A condition cannot be judged if fewer than half of the checkpoints
    have its figure, or if there is no checkpoint of its kind: then the exit code is 8, or 0 with --allow-unknown.
    """
    from ckptprof.report import answer, document, terminal  # noqa: PLC0415 - `--help` needs none of them

    html_page = pages.asked(html=html, json=json, out=out, force=force, show=show)
    judge = _judge_of(fail_on)
    query = filters.query(since, until, job, kind, limit, now_ns=time.time_ns())
    paths = named(db)
    if are_of_several(paths):
        if html_page is not None:
            raise UsageError("--html is a page of one node", hint="give its database alone with --db")
        found = reading_several(paths, query).for_gpus(gpus)
        _tell(found, whole=whole, json=json, off=no_pager, no_color=no_color)
        judged = judge(found.report)
        code = 0 if any(one.holds for one in judged) and not found.unread else found.conclude()
        return gating.conclude(judged, allow_unknown=allow_unknown) or code
    with reading(paths[0], prints=html_page is not None) as reader:
        report = answer.with_gpus(reader.report(query), gpus)
        if html_page is not None:
            html_page.write(reader, report, name="ckptprof-report.html")
    if json:
        output.write(document.dump(document.report_document(report)))
    judged = judge(report)
    if not report.checkpoints and not any(one.holds for one in judged):
        message, hint = terminal.explain_empty(report)
        raise NothingFoundError(message, hint=elsewhere(db) or hint)
    if not json and html_page is None:
        output.use_units()
        colour = output.use_colour(off=no_color)
        width = output.terminal_width()
        is_cut = limit is not None and len(report.checkpoints) >= limit
        text = terminal.render(
            report,
            width=width,
            colour=colour,
            zone=output.LocalZone(),
            whole=whole,
            remarks=[
                *([f"--limit {limit}: older checkpoints count in no figure here."] if is_cut else []),
                *([f"T{told[1:]}."] if (told := elsewhere(db)) is not None else []),
            ],
        )
        if not output.page(text, off=no_pager):
            output.write(text)
    return gating.conclude(judged, allow_unknown=allow_unknown)


def _tell(found: Several, *, whole: bool, json: bool, off: bool, no_color: bool) -> None:
    """Write the report of several databases; `off`: without a pager."""
    from ckptprof.report.cluster import document, page  # noqa: PLC0415 # for several databases only
    from ckptprof.report.document import dump  # noqa: PLC0415 # as above

    if json:
        output.write(dump(document.report_document(found.checkpoints, found.records, found.unread)))
    elif found.checkpoints:
        output.use_units()
        text = page.render(
            found.checkpoints,
            found.records,
            found.unread,
            width=output.terminal_width(),
            colour=output.use_colour(off=no_color),
            zone=output.LocalZone(),
            whole=whole,
        )
        if not output.page(text, off=off):
            output.write(text)


def _judge_of(fail_on: list[str] | None) -> Callable[[Report], list[Judged]]:
    """Read the conditions before anything is looked up; raises UsageError."""
    if not fail_on:
        return lambda _: []
    from ckptprof.report import conditions  # noqa: PLC0415 # `--help` does not need it

    asked = conditions.parse(fail_on, conditions.NAMES)
    return lambda report: conditions.judge(report, asked)
