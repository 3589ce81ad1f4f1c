"""Plan how often to save and on what storage, from recorded checkpoints or from figures that you give."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from ckptprof.cli import filters, options, output
from ckptprof.cli.database import named, reading_report
from ckptprof.cli.shared import figures
from ckptprof.diagnose.plan.basis import Given, Measured, check, measure
from ckptprof.diagnose.plan.planning import plan
from ckptprof.errors import NothingFoundError, StoreError, UsageError
from ckptprof.model import CheckpointQuery
from ckptprof.report import document
from ckptprof.report import plan as rendering

EXAMPLES = """
# From the checkpoints that were recorded
ckptprof plan
# For one job, if you counted 12 failures in 30 days
ckptprof plan --job 'train*' --failures 12/30d
# From figures alone, before there is a job
ckptprof plan --parameters 405B --gpus 24000 --write 65GB/s
"""
_NEWEST = 200  # checkpoints that medians are taken of, unless --limit says otherwise
_OR_GIVE = "or give --size or --parameters, --cost and --gpus"


def _figure(name: str, metavar: str, parse: Callable[[str, str], object], text: str) -> Any:
    return options.given(name, metavar, text, parser=lambda typed: parse(typed, name))


Parameters = Annotated[
    float | None, _figure("--parameters", "N", figures.count, "Parameters of the model, of 14 bytes each: 405B.")
]
Size = Annotated[
    float | None,
    _figure("--size", "SIZE", figures.size, "Size of one checkpoint: 1.5TB (10^12 bytes) or 1.5TiB (2^40 bytes)."),
]
Gpus = Annotated[int | None, _figure("--gpus", "N", figures.whole, "GPUs that train together.")]
Mttf = Annotated[
    float | None, _figure("--mttf", "TIME", figures.seconds, "Mean time from one failure of the job to the next: 3h.")
]
MttfPerGpu = Annotated[
    float | None,
    _figure(
        "--mttf-per-gpu",
        "TIME",
        figures.seconds,
        "Mean time from one failure of a GPU to the next: 50000h. Default: 49,600h (Micron and Lightbits).",
    ),
]
Failures = Annotated[
    figures.Failures | None,
    _figure("--failures", "N/TIME", figures.failures, "How many failures you counted in how much time: 419/54d."),
]
Cost = Annotated[
    float | None, _figure("--cost", "TIME", figures.seconds, "How long a save blocks training (its stall): 30s.")
]
Duration = Annotated[
    float | None, _figure("--duration", "TIME", figures.seconds, "How long until an async save is written: 5m.")
]
Interval = Annotated[
    float | None, _figure("--interval", "TIME", figures.seconds, "The interval at which you save today: 30m.")
]
Restart = Annotated[
    float | None,
    _figure("--restart", "TIME", figures.seconds, "Time from a failure until a restore begins. Default: 5m."),
]
StepTime = Annotated[
    float | None,
    _figure("--step-time", "TIME", figures.seconds, "Time of one training step; the answer is then also in steps."),
]
Write = Annotated[
    float | None,
    _figure(
        "--write", "RATE", figures.rate, "Write throughput of the storage, 65GB/s; it gives the cost of a sync save."
    ),
]
Read = Annotated[
    float | None,
    _figure("--read", "RATE", figures.rate, "Read throughput of the storage, 90GB/s; it gives the time of a restore."),
]
Directory = Annotated[
    str | None, typer.Option("--path", metavar="DIR", help="A directory: the plan says when its file system is full.")
]
Free = Annotated[float | None, _figure("--free", "SIZE", figures.size, "Free space, as --path would find it: 100TB.")]
Keep = Annotated[int | None, _figure("--keep", "N", figures.whole, "How many checkpoints are kept. Default: all.")]


def command(  # each argument is an option of the command line
    context: typer.Context,
    *,
    parameters: Parameters = None,
    size: Size = None,
    gpus: Gpus = None,
    mttf: Mttf = None,
    mttf_per_gpu: MttfPerGpu = None,
    failures: Failures = None,
    cost: Cost = None,
    duration: Duration = None,
    interval: Interval = None,
    restart: Restart = None,
    step_time: StepTime = None,
    write: Write = None,
    read: Read = None,
    path: Directory = None,
    free: Free = None,
    keep: Keep = None,
    db: options.Dbs = None,
    since: filters.Since = None,
    until: filters.Until = None,
    job: filters.Job = None,
    limit: filters.Limit = None,
    json: options.Json = False,
    no_color: options.NoColor = False,
) -> int:
    """Plan how often to save and on what storage, from recorded checkpoints or from figures that you give.

    Recorded checkpoints are read if --db, --since, --until, --job or --limit is given, or if none of --size,
    --parameters, --cost and --write is given. A figure that you give is used instead of a measured one.

    If the recorded saves do not tell what a save costs, the plan says what is missing and the exit code is 3.
    """
    given = Given(
        parameters=parameters,
        size_bytes=size,
        gpus=gpus,
        mttf_seconds=mttf,
        mttf_per_gpu_seconds=mttf_per_gpu,
        failures=None if failures is None else failures.number,
        failures_seconds=None if failures is None else failures.seconds,
        cost_seconds=cost,
        duration_seconds=duration,
        interval_seconds=interval,
        restart_seconds=restart,
        step_seconds=step_time,
        write_bytes_per_second=write,
        read_bytes_per_second=read,
        free_bytes=_free(path, free),
        keep=keep,
    )
    check(given)  # before a database is looked for
    asked = any(value is not None for value in (since, until, job, limit)) or (
        getattr(context.get_parameter_source("db"), "name", "") == "COMMANDLINE"  # CKPTPROF_DB is no question
    )
    measured, code = None, 0
    if asked or (size is None and parameters is None and cost is None and write is None):
        query = filters.query(since, until, job, None, _NEWEST if limit is None else limit, now_ns=time.time_ns())
        measured, code = _measured(db, query)
    made = plan(given, measured)
    if json:
        output.write(document.dump(document.of(made)))
    else:
        output.use_units()
        colour = output.use_colour(off=no_color)
        output.write(rendering.render(made, width=output.terminal_width(), colour=colour))
    return code if made.advice is not None else NothingFoundError.exit_code


def _free(path: str | None, free: float | None) -> float | None:
    if path is None:
        return free
    if free is not None:
        raise UsageError("--path and --free both say how much is free", hint="give one of them")
    try:
        return float(shutil.disk_usage(path).free)  # what this user may take
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        hint = "give a directory that exists, or --free 100TB"
        raise UsageError(f"--path {path!r}: {why}", hint=hint) from error


def _measured(dbs: list[str] | None, query: CheckpointQuery) -> tuple[Measured, int]:
    try:
        report, code = reading_report(named(dbs), query)
    except StoreError as error:
        error.hint = _OR_GIVE.removeprefix("or ") if error.hint is None else f"{error.hint}, {_OR_GIVE}"
        raise
    found = measure(report.checkpoints)
    if found is None:
        if query.job is None and query.since_ns is None and query.until_ns is None:
            raise NothingFoundError("no complete save was recorded", hint=_OR_GIVE.removeprefix("or "))
        raise NothingFoundError(
            "no complete save was recorded that fits the question",
            hint=f"loosen --since and --job, {_OR_GIVE}",
        )
    return found, code
