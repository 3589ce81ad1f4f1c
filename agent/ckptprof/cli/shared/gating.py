"""`--fail-on`: conditions that turn a report into an exit code, for CI gates and job epilogs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ckptprof.cli import options, output
from ckptprof.report.clean import clean

if TYPE_CHECKING:
    from ckptprof.report.conditions import Judged

HOLDS = 7  # a condition holds
NOT_JUDGED = 8  # no condition holds, but one cannot be judged


def _fail_on(example: str) -> Any:
    return options.given(
        "--fail-on",
        "CONDITION",
        f"Exit with {HOLDS} if this condition holds: '{example}'. Give several with commas, or repeat it.",
    )


FailOn = Annotated[list[str] | None, _fail_on("stall_p95>60s")]
FailOnChange = Annotated[list[str] | None, _fail_on("duration>10%")]
AllowUnknown = Annotated[
    bool,
    typer.Option(
        "--allow-unknown", help=f"Exit with 0, not {NOT_JUDGED}, if a condition of --fail-on cannot be judged."
    ),
]


def conclude(judged: Sequence[Judged], *, allow_unknown: bool) -> int:
    """Tell on stderr which conditions hold and which cannot be judged; return the exit code."""
    lines = []
    for one in judged:
        if one.holds:
            lines.append(f"ckptprof: --fail-on {clean(one.condition.text)}: it is {clean(one.told)}")
        elif one.holds is None:
            lines.append(f"ckptprof: --fail-on {clean(one.condition.text)} cannot be judged: {clean(one.told)}")
    if lines:
        sys.stdout.flush()  # what the lines are about stands before them
        output.write("\n".join(lines) + "\n", sys.stderr)
    if any(one.holds for one in judged):
        return HOLDS
    return NOT_JUDGED if not allow_unknown and any(one.holds is None for one in judged) else 0
