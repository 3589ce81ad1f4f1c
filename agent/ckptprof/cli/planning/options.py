"""The options of `plan`: figures with units, turned into numbers as they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer

from ckptprof.cli.planning import units

_T = TypeVar("_T")


def _option(name: str, metavar: str, parse: Callable[[str, str], _T], text: str) -> Any:
    def parser(typed: str) -> _T:
        return parse(typed, name)

    return typer.Option(name, metavar=metavar, parser=parser, help=text, show_default=False)


Parameters = Annotated[
    float | None, _option("--parameters", "N", units.count, "Parameters of the model, of 14 bytes each: 405B.")
]
Size = Annotated[
    float | None,
    _option("--size", "SIZE", units.size, "Size of one checkpoint: 1.5TB (10^12 bytes) or 1.5TiB (2^40 bytes)."),
]
Gpus = Annotated[int | None, _option("--gpus", "N", units.whole, "GPUs that train together.")]
Mttf = Annotated[
    float | None,
    _option("--mttf", "TIME", units.seconds, "Mean time from one failure of the job to the next: 3h."),
]
MttfPerGpu = Annotated[
    float | None,
    _option(
        "--mttf-per-gpu",
        "TIME",
        units.seconds,
        "Mean time from one failure of a GPU to the next: 50000h. Default: 49,600h (Micron and Lightbits).",
    ),
]
Failures = Annotated[
    units.Failures | None,
    _option("--failures", "N/TIME", units.failures, "How many failures you counted in how much time: 419/54d."),
]
Cost = Annotated[
    float | None, _option("--cost", "TIME", units.seconds, "How long a save blocks training (its stall): 30s.")
]
Duration = Annotated[
    float | None, _option("--duration", "TIME", units.seconds, "How long until an async save is written: 5m.")
]
Interval = Annotated[
    float | None, _option("--interval", "TIME", units.seconds, "The interval at which you save today: 30m.")
]
Restart = Annotated[
    float | None,
    _option("--restart", "TIME", units.seconds, "Time from a failure until a restore begins. Default: 5m."),
]
StepTime = Annotated[
    float | None,
    _option("--step-time", "TIME", units.seconds, "Time of one training step; the answer is then also in steps."),
]
Write = Annotated[
    float | None,
    _option(
        "--write", "RATE", units.rate, "Write throughput of the storage, 65GB/s; it gives the cost of a sync save."
    ),
]
Read = Annotated[
    float | None,
    _option("--read", "RATE", units.rate, "Read throughput of the storage, 90GB/s; it gives the time of a restore."),
]
Path = Annotated[
    str | None,
    typer.Option("--path", metavar="DIR", help="A directory: the plan says when its file system is full."),
]
Free = Annotated[float | None, _option("--free", "SIZE", units.size, "Free space, as --path would find it: 100TB.")]
Keep = Annotated[int | None, _option("--keep", "N", units.whole, "How many checkpoints are kept. Default: all.")]
