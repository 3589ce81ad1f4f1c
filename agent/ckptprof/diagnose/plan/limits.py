"""Which figures a plan refuses, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ckptprof.diagnose.plan.figures import Given
from ckptprof.errors import UsageError

_CENTURIES = 1e11  # seconds: 3,000 years
_THREE_DIGITS = 999.5  # seconds: from here on three digits are none of a second
# field -> (its option, the lowest and the highest value that any machine could have)
_RANGES: Mapping[str, tuple[str, float, float]] = {
    "parameters": ("--parameters", 1, 1e18),
    "bytes_per_parameter": ("--bytes-per-parameter", 0.1, 1e4),
    "size_bytes": ("--size", 1, 1e21),
    "gpus": ("--gpus", 1, 1e9),
    "gpus_per_node": ("--per-node", 1, 1e6),
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
        if value is not None:
            _check_range(option, value, lowest, highest)
    for one, other in _RIVALS:
        if getattr(given, one) is not None and getattr(given, other) is not None:
            raise UsageError(
                f"{_RANGES[one][0]} and {_RANGES[other][0]} both say the same thing", hint="give one of them"
            )
    if given.bytes_per_parameter is not None and given.parameters is None:
        raise UsageError("--bytes-per-parameter says nothing without --parameters", hint="give --parameters 70B")
    cost, duration = given.cost_seconds, given.duration_seconds
    if cost is not None and duration is not None and duration < cost:
        raise UsageError(
            f"a save that blocks training for {_seconds(cost)} cannot be written after {_seconds(duration)}",
            hint="leave --duration out for a sync save; for an async one --cost is the part in which training waits",
        )


def check_mttf(mttf: float, *, cost: float | None, duration: float | None) -> None:
    """Raise UsageError if a save does not end before the next failure."""
    for value, what in ((cost, "a save blocks training for"), (duration, "a save takes")):
        if value is not None and value >= mttf:
            raise UsageError(
                f"{what} {_seconds(value)}, and it is only {_seconds(mttf)} from one failure to the next: "
                "most saves would never be completed",
                hint="check --mttf, --gpus, --cost and --duration; else save less at a time, or write faster",
            )


def _seconds(value: float) -> str:
    """Return seconds that stand beside others, so that 7,201 s are not those of 7,200 s."""
    return f"{value:,.3g} s" if value < _THREE_DIGITS else f"{value:,.0f} s"


def _check_range(option: str, value: float, lowest: float, highest: float) -> None:
    if math.isnan(value):
        raise UsageError(f"{option} is not a number", hint="leave it out if it is not known")
    if value < 0 or (value == 0 and lowest > 0):
        raise UsageError(f"{option} must be more than 0", hint="leave it out if it is not known")
    if value < lowest:
        raise UsageError(f"{option} {value:g} is too little to be meant: the least is {lowest:g}", hint=_UNITS)
    if value > highest:
        raise UsageError(f"{option} {value:g} is more than there is: the most is {highest:g}", hint=_UNITS)


_UNITS = "look at its unit: seconds, bytes or bytes per second are told here"
