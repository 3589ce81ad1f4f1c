"""The options of `plan`: figures with units, turned into numbers as they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer

from ckptprof.cli import plan_units

_T = TypeVar("_T")


def _option(name: str, metavar: str, parse: Callable[[str, str], _T], text: str) -> Any:
    def parser(typed: str) -> _T:
        return parse(typed, name)

    return typer.Option(name, metavar=metavar, parser=parser, help=text, show_default=False)


Parameters = Annotated[float | None, _option("--parameters", "N", plan_units.count, "Of the model: 405B, 1.4T.")]
BytesPerParameter = Annotated[
    float | None,
    _option(
        "--bytes-per-parameter",
        "N",
        plan_units.plain,
        "In a checkpoint; without it 14: weights in 16 bits, and a master copy and two moments in 32.",
    ),
]
Size = Annotated[
    float | None,
    _option("--size", "SIZE", plan_units.size, "Of one checkpoint: 1.5TB (10^12 bytes) or 1.5TiB (2^40 bytes)."),
]
Gpus = Annotated[int | None, _option("--gpus", "N", plan_units.whole, "That train together.")]
PerNode = Annotated[int | None, _option("--per-node", "N", plan_units.whole, "GPUs in a node; without it 8.")]
Mttf = Annotated[
    float | None, _option("--mttf", "TIME", plan_units.seconds, "From one failure of the job to the next: 3h.")
]
MttfPerGpu = Annotated[
    float | None,
    _option(
        "--mttf-per-gpu",
        "TIME",
        plan_units.seconds,
        "The same for one GPU: 50000h. Without any of these 49,600h, as Micron and Lightbits report.",
    ),
]
Failures = Annotated[
    tuple[int, float] | None,
    _option("--failures", "N/TIME", plan_units.failures, "Failures that you counted in a time: 419/54d."),
]
Cost = Annotated[
    float | None, _option("--cost", "TIME", plan_units.seconds, "How long a save holds training (its stall): 30s.")
]
Duration = Annotated[
    float | None, _option("--duration", "TIME", plan_units.seconds, "How long until an async save is written: 5m.")
]
Interval = Annotated[float | None, _option("--interval", "TIME", plan_units.seconds, "At which you save today: 30m.")]
Restart = Annotated[
    float | None,
    _option("--restart", "TIME", plan_units.seconds, "From a failure until a restore begins; without it 5m."),
]
StepTime = Annotated[
    float | None,
    _option("--step-time", "TIME", plan_units.seconds, "Of one training step, to have the answer in steps."),
]
Write = Annotated[
    float | None,
    _option("--write", "RATE", plan_units.rate, "What the storage takes, 65GB/s: gives a sync save's cost."),
]
Read = Annotated[
    float | None, _option("--read", "RATE", plan_units.rate, "What the storage gives, 90GB/s: gives a restore's time.")
]
Path = Annotated[
    str | None,
    typer.Option("--path", metavar="DIR", help="Tell when the file system of this directory is full."),
]
Free = Annotated[
    float | None, _option("--free", "SIZE", plan_units.size, "The same for so much free space elsewhere: 100TB.")
]
Keep = Annotated[int | None, _option("--keep", "N", plan_units.whole, "How many checkpoints are kept; without it all.")]
