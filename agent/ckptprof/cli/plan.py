"""Plan how often to save and on what storage, from recorded checkpoints or your own figures."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from ckptprof.cli import filters, options, output
from ckptprof.cli.shared import typed_values
from ckptprof.cli.shared.database import expand_databases, read_database, read_report
from ckptprof.diagnose.plan.basis import GivenFigures, MeasuredFigures, check, measure
from ckptprof.diagnose.plan.checkpoint_plan import plan
from ckptprof.errors import NothingFoundError, StoreError, UsageError
from ckptprof.model import CheckpointQuery
from ckptprof.report import document
from ckptprof.report import plan as rendering

EXAMPLES = """
# From recorded checkpoints
ckptprof plan
# For one job, with 12 failures in 30 days
ckptprof plan --job 'train*' --failures 12/30d
# Does a save fit into the notice of a spot machine?
ckptprof plan --job 'train*' --grace 30s
# From figures only, before there is a job
ckptprof plan --parameters 405B --gpus 24000 --write 65GB/s
"""
_NEWEST = 200  # checkpoints used for medians, without --limit
_ALTERNATIVE = "or give --size or --parameters, --cost and --gpus"


def _figure(name: str, metavar: str, parse: Callable[[str, str], object], text: str) -> Any:
    return options.option(name, metavar, text, parser=lambda typed: parse(typed, name))


Parameters = Annotated[
    float | None, _figure("--parameters", "N", typed_values.count, "Number of model parameters, 14 bytes each: 405B.")
]
Size = Annotated[
    float | None,
    _figure("--size", "SIZE", typed_values.size, "Size of one checkpoint: 1.5TB (10^12 bytes) or 1.5TiB (2^40 bytes)."),
]
Gpus = Annotated[int | None, _figure("--gpus", "N", typed_values.whole, "Number of GPUs of the job.")]
Mttf = Annotated[
    float | None,
    _figure("--mttf", "TIME", typed_values.seconds, "Mean time between failures of the job: 3h."),
]
MttfPerGpu = Annotated[
    float | None,
    _figure(
        "--mttf-per-gpu",
        "TIME",
        typed_values.seconds,
        "Mean time between failures of one GPU: 50000h. Default: 49,600h (Micron and Lightbits).",
    ),
]
Failures = Annotated[
    typed_values.Failures | None,
    _figure("--failures", "N/TIME", typed_values.failures, "Number of failures in a period: 419/54d."),
]
Cost = Annotated[
    float | None, _figure("--cost", "TIME", typed_values.seconds, "How long a save blocks training (its stall): 30s.")
]
Duration = Annotated[
    float | None, _figure("--duration", "TIME", typed_values.seconds, "Time until an async save is written: 5m.")
]
Interval = Annotated[float | None, _figure("--interval", "TIME", typed_values.seconds, "Current save interval: 30m.")]
Restart = Annotated[
    float | None,
    _figure(
        "--restart",
        "TIME",
        typed_values.seconds,
        "Time that a restart takes, without the restore. Default: as measured on two or more restarts, else 5m.",
    ),
]
StepTime = Annotated[
    float | None,
    _figure("--step-time", "TIME", typed_values.seconds, "Duration of one training step; adds the interval in steps."),
]
Write = Annotated[
    float | None,
    _figure(
        "--write",
        "RATE",
        typed_values.rate,
        "Write throughput of the storage: 65GB/s. Gives the cost of a sync save.",
    ),
]
Read = Annotated[
    float | None,
    _figure(
        "--read", "RATE", typed_values.rate, "Read throughput of the storage: 90GB/s. Gives the time of a restore."
    ),
]
Directory = Annotated[
    str | None, typer.Option("--path", metavar="DIR", help="A directory: the plan shows when its file system is full.")
]
Free = Annotated[float | None, _figure("--free", "SIZE", typed_values.size, "Free space, instead of --path: 100TB.")]
Capacity = Annotated[
    float | None, _figure("--capacity", "SIZE", typed_values.size, "Size of all drives, for their endurance: 10PB.")
]
Keep = Annotated[
    int | None, _figure("--keep", "N", typed_values.whole, "Number of checkpoints to retain. Default: all.")
]
Grace = Annotated[
    float | None,
    _figure("--grace", "TIME", typed_values.seconds, "Notice before a job is killed: 30s. Does a save fit into it?"),
]
GpuHour = Annotated[
    float | None, _figure("--gpu-hour", "PRICE", typed_values.count, "Price of a GPU-hour, in any currency: 2.50.")
]


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
    capacity: Capacity = None,
    keep: Keep = None,
    grace: Grace = None,
    gpu_hour: GpuHour = None,
    db: options.Dbs = None,
    since: filters.Since = None,
    until: filters.Until = None,
    job: filters.Job = None,
    limit: filters.Limit = None,
    json: options.Json = False,
    no_color: options.NoColor = False,
) -> int:
    """Plan how often to save and on what storage, from recorded checkpoints or your own figures.

    Recorded checkpoints are read if --db, --since, --until, --job or --limit is given, or if none of --size,
    --parameters, --cost and --write is given. A given figure replaces the measured one.

    If the cost of a save is unknown, the plan names what is missing and the exit code is 3.
    """
    inputs = GivenFigures(
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
        capacity_bytes=capacity,
        keep=keep,
        notice_seconds=grace,
        gpu_hour_price=gpu_hour,
    )
    check(inputs)  # before opening a database
    wants_recorded = any(value is not None for value in (since, until, job, limit)) or (
        getattr(context.get_parameter_source("db"), "name", "")
        == "COMMANDLINE"  # CKPTPROF_DB alone does not select recorded checkpoints
    )
    measured, code = None, 0
    if wants_recorded or (size is None and parameters is None and cost is None and write is None):
        query = filters.query(since, until, job, None, _NEWEST if limit is None else limit, now_ns=time.time_ns())
        measured, code = _measured(db, query)
    made = plan(inputs, measured)
    if json:
        output.write(document.dump(document.to_document(made)))
    else:
        output.use_units()
        colour = output.use_colour(off=no_color)
        output.write(rendering.render(made, width=output.terminal_width(), colour=colour))
    return code if made.advice is not None else NothingFoundError.exit_code


def _free(path: str | None, free: float | None) -> float | None:
    if path is None:
        return free
    if free is not None:
        raise UsageError("--path and --free both give the free space", hint="give one of them")
    try:
        return float(shutil.disk_usage(path).free)  # available to this user
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        hint = "give a directory that exists, or --free 100TB"
        raise UsageError(f"--path {path!r}: {reason}", hint=hint) from error


def _measured(dbs: list[str] | None, query: CheckpointQuery) -> tuple[MeasuredFigures, int]:
    try:
        found, code = _read(expand_databases(dbs), query)
    except StoreError as error:
        error.hint = _ALTERNATIVE.removeprefix("or ") if error.hint is None else f"{error.hint}, {_ALTERNATIVE}"
        raise
    if found is None:
        if query.job is None and query.since_ns is None and query.until_ns is None:
            raise NothingFoundError("no complete save is recorded", hint=_ALTERNATIVE.removeprefix("or "))
        raise NothingFoundError(
            "no recorded complete save matches",
            hint=f"loosen --since and --job, {_ALTERNATIVE}",
        )
    return found, code


def _read(paths: Sequence[str | None], query: CheckpointQuery) -> tuple[MeasuredFigures | None, int]:
    if len(paths) > 1:  # a pid is one of a node
        report, code = read_report(paths, query)
        return measure(report.checkpoints), code
    with read_database(paths[0]) as reader:
        report = reader.report(query)
        return measure(report.checkpoints, reader.lives, report.watched.gaps), 0
