"""Compare two runs, before and after a change, and show what differs by more than noise."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Annotated

import msgspec

from ckptprof.cli import filters, options, output
from ckptprof.cli.database import named, reading_report
from ckptprof.cli.shared import gating, pages
from ckptprof.errors import NothingFoundError, StoreError, UsageError
from ckptprof.model import CheckpointQuery
from ckptprof.store.location import is_server

if TYPE_CHECKING:
    from ckptprof.report.comparison import Side

_FORMS = (
    "a database, several as 'nodes/*.db' or nodes/, a job (* and ? stand for any text), or a time range such as 2h..1h "
    "or 2026-03-20..2026-03-21"
)
_RANGE = ".."

EXAMPLES = """
# Two databases: before and after a change
ckptprof diff before.db after.db
# Two hours of one database
ckptprof diff 2h..1h 1h..now
# A page to look at and to mail
ckptprof diff before.db after.db --html diff.html
# Exit code 7 if saves take over a tenth longer, and that is more than noise
ckptprof diff before.db after.db --kind save --fail-on 'duration>10%'
"""
Before = Annotated[str, options.argument("A", f"The run before: {_FORMS}.")]
After = Annotated[str, options.argument("B", "The run after: the same forms.")]


def command(  # each argument is an option of the command line
    before: Before,
    after: After,
    *,
    db: options.Dbs = None,
    since: filters.Since = None,
    until: filters.Until = None,
    job: filters.Job = None,
    kind: filters.KindOption = None,
    fail_on: gating.FailOnChange = None,
    allow_unknown: gating.AllowUnknown = False,
    json: options.Json = False,
    html: pages.Html = None,
    out: pages.Out = None,
    force: pages.Force = False,
    show: pages.Open = False,
    no_color: options.NoColor = False,
) -> int:
    """Compare two runs, before and after a change, and show what differs by more than noise.

    A and B are databases, jobs of one database, or time ranges in it. The options select checkpoints on both sides. The
    exit code is 3 if one side has no checkpoint.

    --fail-on takes NAME, > or <, and a change: 'duration>10%', 'throughput<-10%', 'stall>5s'. The names for saves are
    duration, stall, size and throughput, with or without save_ before them; the names for restores are
    restore_duration, restore_size and restore_throughput. A condition holds only if the change is more than noise; then
    the exit code is 7. If there are too few checkpoints to judge, it is 8, or 0 with --allow-unknown.
    """
    from ckptprof.report import comparison as comparisons  # noqa: PLC0415 # `--help` needs none of these
    from ckptprof.report import conditions, diff, document  # noqa: PLC0415

    page = pages.asked(html=html, json=json, out=out, force=force, show=show)
    asked = conditions.parse(fail_on or (), comparisons.NAMES, relative=True)
    now_ns = time.time_ns()
    query = filters.query(since, until, job, kind, None, now_ns=now_ns)
    sides, codes = zip(*(_side(text, db, query, now_ns) for text in (before, after)), strict=True)
    comparison = comparisons.compare(*sides)
    if json:
        output.write(document.dump(diff.document(comparison)))
    elif page is not None:
        from ckptprof.report.html.page import render_difference  # noqa: PLC0415 # Jinja2: for this only

        output.use_units()
        page.put(render_difference(comparison, zone=output.LocalZone()), name="ckptprof-diff.html")
    else:
        output.use_units()
        width, colour = output.terminal_width(), output.use_colour(off=no_color)
        output.write(diff.render(comparison, width=width, colour=colour, zone=output.LocalZone()))
    return gating.conclude(comparisons.judge(comparison, asked), allow_unknown=allow_unknown) or max(codes)


def _side(text: str, dbs: list[str] | None, query: CheckpointQuery, now_ns: int) -> tuple[Side, int]:
    from ckptprof.report.comparison import Side  # noqa: PLC0415 # see `command`

    paths, narrowed = _selected(text, dbs, query, now_ns)
    report, code = reading_report(named(paths), narrowed)
    since_ns = narrowed.since_ns
    if since_ns is not None:  # what ran across the border between two ranges belongs to the one in which it began
        begun = tuple(one for one in report.checkpoints if one.start_ns >= since_ns)
        report = msgspec.structs.replace(report, checkpoints=begun)
    if not report.checkpoints and narrowed.job == text and "/" in text:  # a job's name may have one, too
        raise StoreError(f"no database at {text}, and no job of that name", hint=f"A and B are {_FORMS}")
    if not report.checkpoints:
        raise NothingFoundError(f"{text!r} has no checkpoint that fits", hint=f"A and B are {_FORMS}")
    return Side(selector=text, report=report), code


def _selected(
    text: str, dbs: list[str] | None, query: CheckpointQuery, now_ns: int
) -> tuple[list[str] | None, CheckpointQuery]:
    is_path = text.startswith(("/", "./", "../", "~/")) or text.endswith((".db", "/")) or os.path.isfile(text)  # noqa: PTH113 - no error
    if is_path or is_server(text):
        return [text], query
    if _RANGE in text and "/" not in text:
        return dbs, _within(text, query, now_ns)
    if query.job is not None:
        raise UsageError(f"{text!r} is taken for a job, and so is --job {query.job}", hint="leave --job away")
    return dbs, msgspec.structs.replace(query, job=options.text("A or B")(text))


def _within(text: str, query: CheckpointQuery, now_ns: int) -> CheckpointQuery:
    begin, _, end = text.partition(_RANGE)
    since_ns = filters.moment(begin, now_ns=now_ns, option="the begin of") if begin else None
    until_ns = filters.moment(end, now_ns=now_ns, option="the end of") if end else None
    since_ns = max((at for at in (since_ns, query.since_ns) if at is not None), default=None)
    until_ns = min((at for at in (until_ns, query.until_ns) if at is not None), default=None)
    if since_ns is not None and until_ns is not None and since_ns >= until_ns:
        raise UsageError(
            f"{text!r} is no time range: it ends before it begins", hint="2h..1h is the hour before the last"
        )
    return msgspec.structs.replace(query, since_ns=since_ns, until_ns=until_ns)
