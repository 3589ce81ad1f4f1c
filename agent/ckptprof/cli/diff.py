"""Compare two runs, before and after a change, and show differences larger than noise."""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec

from ckptprof.cli import filters, options, output
from ckptprof.cli.shared import fail_conditions, html_option
from ckptprof.cli.shared.database import expand_databases, read_report
from ckptprof.errors import NothingFoundError, StoreError, UsageError
from ckptprof.model import CheckpointQuery

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
# A page to view or mail
ckptprof diff before.db after.db --html diff.html
# Exit code 7 if saves take over 10 % longer, beyond noise
ckptprof diff before.db after.db --kind save --fail-on 'duration>10%'
"""
Before = Annotated[str, options.argument("A", f"The first run: {_FORMS}.")]
After = Annotated[str, options.argument("B", "The second run, in the same forms.")]


def command(  # each argument is an option of the command line
    before: Before,
    after: After,
    *,
    db: options.Dbs = None,
    since: filters.Since = None,
    until: filters.Until = None,
    job: filters.Job = None,
    kind: filters.KindOption = None,
    fail_on: fail_conditions.FailOnChange = None,
    allow_unknown: fail_conditions.AllowUnknown = False,
    json: options.Json = False,
    html: html_option.Html = None,
    out: html_option.Out = None,
    force: html_option.Force = False,
    show: html_option.Open = False,
    no_color: options.NoColor = False,
) -> int:
    """Compare two runs, before and after a change, and show differences larger than noise.

    A and B are databases, jobs of one database, or time ranges in it. The options select checkpoints on both sides. The
    exit code is 3 if one side has no checkpoint.

    --fail-on takes NAME, > or <, and a change: 'duration>10%', 'throughput<-10%', 'stall>5s'. The names for saves are
    duration, stall, size and throughput, with or without the prefix save_; the names for restores are
    restore_duration, restore_size and restore_throughput. A condition is met only if the change exceeds noise;
    then the exit code is 7. With too few checkpoints to decide, it is 8, or 0 with --allow-unknown.
    """
    from ckptprof.report import comparison as comparisons  # noqa: PLC0415 # `--help` needs none of these
    from ckptprof.report import conditions, diff, document  # noqa: PLC0415

    page = html_option.requested_page(html=html, json=json, out=out, force=force, show=show)
    conditions_given = conditions.parse(fail_on or (), comparisons.NAMES, relative=True)
    now_ns = time.time_ns()
    query = filters.query(since, until, job, kind, None, now_ns=now_ns)
    sides, codes = zip(*(_load_side(text, db, query, now_ns) for text in (before, after)), strict=True)
    comparison = comparisons.compare(*sides)
    if json:
        output.write(document.dump(diff.document(comparison)))
    elif page is not None:
        from ckptprof.report.html.page import render_difference  # noqa: PLC0415 # Jinja2: for this only

        output.use_units()
        page.put(render_difference(comparison, zone=output.LocalZone()), name="ckptprof-diff.html")
    else:
        output.write_text(partial(diff.render, comparison), no_color=no_color)
    return fail_conditions.report_conditions(
        comparisons.evaluate(comparison, conditions_given), allow_unknown=allow_unknown
    ) or max(codes)


def _load_side(text: str, dbs: list[str] | None, query: CheckpointQuery, now_ns: int) -> tuple[Side, int]:
    from ckptprof.report.comparison import Side  # noqa: PLC0415 # see `command`

    paths, narrowed = _resolve(text, dbs, query, now_ns)
    report, code = read_report(expand_databases(paths), narrowed)
    since_ns = narrowed.since_ns
    if since_ns is not None:  # a checkpoint across the border of two ranges belongs to the range in which it started
        started = tuple(one for one in report.checkpoints if one.start_ns >= since_ns)
        report = msgspec.structs.replace(report, checkpoints=started)
    if not report.checkpoints and narrowed.job == text and "/" in text:  # a job's name may have one, too
        raise StoreError(f"no database at {text}, and no job of that name", hint=f"A and B are {_FORMS}")
    if not report.checkpoints:
        raise NothingFoundError(f"{text!r} has no matching checkpoint", hint=f"A and B are {_FORMS}")
    return Side(selector=text, report=report), code


def _resolve(
    text: str, dbs: list[str] | None, query: CheckpointQuery, now_ns: int
) -> tuple[list[str] | None, CheckpointQuery]:
    is_path = text.startswith(("/", "./", "../", "~/")) or text.endswith((".db", "/")) or os.path.isfile(text)  # noqa: PTH113 - no error
    if is_path:
        return [text], query
    if _RANGE in text and "/" not in text:
        return dbs, _narrow(text, query, now_ns)
    if query.job is not None:
        raise UsageError(f"{text!r} and --job {query.job} both name a job", hint="leave --job out")
    return dbs, msgspec.structs.replace(query, job=options.text("A or B")(text))


def _narrow(text: str, query: CheckpointQuery, now_ns: int) -> CheckpointQuery:
    start, _, end = text.partition(_RANGE)
    since_ns = filters.moment(start, now_ns=now_ns, option="the start of") if start else None
    until_ns = filters.moment(end, now_ns=now_ns, option="the end of") if end else None
    since_ns = max((at for at in (since_ns, query.since_ns) if at is not None), default=None)
    until_ns = min((at for at in (until_ns, query.until_ns) if at is not None), default=None)
    if since_ns is not None and until_ns is not None and since_ns >= until_ns:
        raise UsageError(
            f"{text!r} is not a time range: it ends before it starts", hint="2h..1h is the hour before the last"
        )
    return msgspec.structs.replace(query, since_ns=since_ns, until_ns=until_ns)
