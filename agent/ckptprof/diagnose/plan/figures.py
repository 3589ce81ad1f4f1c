"""The figures that a plan is made from: what may be given, and where each came from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum

import msgspec

from ckptprof.errors import UsageError

_CENTURIES = 1e11  # seconds: 3,000 years
_THREE_DIGITS = 999.5  # seconds: from here on three digits are none of a second


class Origin(str, Enum):
    """Where a figure came from."""

    GIVEN = "given"
    MEASURED = "measured"  # from checkpoints that were recorded
    ASSUMED = "assumed"
    DERIVED = "worked out"  # from figures that stand beside it


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One number in the base unit of its name (seconds, bytes, bytes per second), with its origin."""

    value: float
    origin: Origin
    text: str = ""  # from what, for a person


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What was given; None: not."""

    parameters: float | None = None
    size_bytes: float | None = None
    gpus: int | None = None
    mttf_seconds: float | None = None
    mttf_per_gpu_seconds: float | None = None
    failures: int | None = None  # counted in
    failures_seconds: float | None = None
    cost_seconds: float | None = None  # how long a save holds training
    duration_seconds: float | None = None  # until a save is written
    interval_seconds: float | None = None  # as it is today
    restart_seconds: float | None = None
    step_seconds: float | None = None
    write_bytes_per_second: float | None = None
    read_bytes_per_second: float | None = None
    free_bytes: float | None = None
    keep: int | None = None


# field -> (its option, the lowest and the highest value that any machine could have)
_RANGES: Mapping[str, tuple[str, float, float]] = {
    "parameters": ("--parameters", 1, 1e18),
    "size_bytes": ("--size", 1, 1e21),
    "gpus": ("--gpus", 1, 1e9),
    "mttf_seconds": ("--mttf", 1e-3, _CENTURIES),
    "mttf_per_gpu_seconds": ("--mttf-per-gpu", 1e-3, 1e16),
    "failures": ("--failures", 1, 1e12),
    "failures_seconds": ("--failures", 1e-3, _CENTURIES),
    "cost_seconds": ("--cost", 1e-6, _CENTURIES),
    "duration_seconds": ("--duration", 1e-6, _CENTURIES),
    "interval_seconds": ("--interval", 1e-6, _CENTURIES),
    "restart_seconds": ("--restart", 0, _CENTURIES),
    "step_seconds": ("--step-time", 1e-6, _CENTURIES),
    "write_bytes_per_second": ("--write", 1, 1e18),
    "read_bytes_per_second": ("--read", 1, 1e18),
    "free_bytes": ("--free", 0, 1e24),
    "keep": ("--keep", 1, 1e9),
}
# What says the same thing twice; the first of a pair wins nothing: one has to go
_RIVALS = (
    ("size_bytes", "parameters"),
    ("mttf_seconds", "mttf_per_gpu_seconds"),
    ("mttf_seconds", "failures"),
    ("failures", "mttf_per_gpu_seconds"),
    ("cost_seconds", "write_bytes_per_second"),
)


def check(given: Given) -> None:
    """Raise UsageError for a figure that is impossible by itself, or that another one contradicts."""
    for name, (option, lowest, highest) in _RANGES.items():
        value = getattr(given, name)
        if value is None or (lowest <= value <= highest and (value > 0 or not lowest)):
            continue
        if math.isnan(value) or value <= 0:
            why = "is not a number" if math.isnan(value) else "must be more than 0"
            raise UsageError(f"{option} {why}", hint="leave it out if it is not known")
        why = f"too little to be meant: the least is {lowest:g}"
        if value > highest:
            why = f"more than there is: the most is {highest:g}"
        hint = "look at its unit: seconds, bytes or bytes per second are told here"
        raise UsageError(f"{option} {value:g} is {why}", hint=hint)
    for pair in _RIVALS:
        if all(getattr(given, name) is not None for name in pair):
            both = " and ".join(_RANGES[name][0] for name in pair)
            raise UsageError(f"{both} both say the same thing", hint="give one of them")
    cost, duration = given.cost_seconds, given.duration_seconds
    if cost is not None and duration is not None and duration < cost:
        raise UsageError(
            f"a save that blocks training for {_seconds(cost)} cannot be written after {_seconds(duration)}",
            hint="leave --duration out for a sync save; for an async one --cost is the part in which training waits",
        )


def check_mttf(mttf: float, cost: Figure | None, duration: Figure | None) -> None:
    """Raise UsageError if a save does not end before the next failure."""
    for figure, what in ((cost, "a save blocks training for"), (duration, "a save takes")):
        if figure is not None and figure.value >= mttf:
            raise UsageError(
                f"{what} {_seconds(figure.value)}, and it is only {_seconds(mttf)} from one failure to the next: "
                "most saves would never be completed",
                hint="check --mttf, --gpus, --cost and --duration; else save less at a time, or write faster",
            )


def _seconds(value: float) -> str:
    """Return seconds that stand beside others, so that 7,201 s are not those of 7,200 s."""
    return f"{value:,.3g} s" if value < _THREE_DIGITS else f"{value:,.0f} s"
