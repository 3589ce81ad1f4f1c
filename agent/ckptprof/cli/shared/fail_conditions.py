"""`--fail-on`: conditions that turn a report into an exit code, for CI gates and job epilogs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ckptprof.cli import options, output
from ckptprof.report.clean import clean

if TYPE_CHECKING:
    from ckptprof.report.conditions import ConditionResult

CONDITION_MET = 7  # a condition is met
CONDITION_UNKNOWN = 8  # no condition is met, but one cannot be decided


def _fail_on(example: str) -> Any:
    return options.option(
        "--fail-on",
        "CONDITION",
        f"Exit with {CONDITION_MET} if this condition is met: '{example}'. Separate several with commas, or repeat it.",
    )


FailOn = Annotated[list[str] | None, _fail_on("stall_p95>60s")]
FailOnChange = Annotated[list[str] | None, _fail_on("duration>10%")]
AllowUnknown = Annotated[
    bool,
    typer.Option(
        "--allow-unknown", help=f"Exit with 0, not {CONDITION_UNKNOWN}, if a condition of --fail-on cannot be decided."
    ),
]


def report_conditions(results: Sequence[ConditionResult], *, allow_unknown: bool) -> int:
    """Report on stderr which conditions are met and which cannot be decided; return the exit code."""
    lines = []
    for one in results:
        if one.is_met:
            lines.append(f"ckptprof: --fail-on {clean(one.condition.text)}: it is {clean(one.explanation)}")
        elif one.is_met is None:
            lines.append(f"ckptprof: --fail-on {clean(one.condition.text)} cannot be decided: {clean(one.explanation)}")
    if lines:
        sys.stdout.flush()  # the report comes before these lines
        output.write("\n".join(lines) + "\n", sys.stderr)
    if any(one.is_met for one in results):
        return CONDITION_MET
    return CONDITION_UNKNOWN if not allow_unknown and any(one.is_met is None for one in results) else 0
