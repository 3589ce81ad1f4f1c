"""Whether the verdicts are right: planted faults with known causes (tests/e2e/faults), each with its control.

Real throttled devices, shaped links, FUSE and S3 mounts, lowered dirty limits, slow jobs; needs root, sshfs, s3fs and
socat. Both levels look at the same runs. `--markdown` prints tables: a line for each fault,
then what was said of what (the confusion matrix).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contenders import ROOT
from figures import markdown, parser, show

sys.path[:0] = [str(ROOT / "tests/e2e/faults"), str(ROOT / "tests/e2e"), str(ROOT / "examples")]
from fault_bench import LEVELS, Outcome, run_case  # noqa: E402 - found by the line above
from fault_cases import CASES  # noqa: E402 - likewise

GAIN = 0.25  # a promise is right if it is so near


def row(one: Outcome) -> dict[str, Any]:
    """Return the figures of one fault at one level."""
    return {
        "fault": one.case.name,
        "mb": one.size_mb,
        "level": one.level,
        "with_seconds": one.fault.seconds,
        "without_seconds": one.control.seconds,
        "promised_seconds": one.fault.expected_seconds,
        "promise_error_percent": None if one.gain_error is None else 100 * one.gain_error,
        "said": _counted(one.fault.limits),
        "said_without": _counted(one.control.limits),
    }


def _counted(limits: Sequence[str]) -> str:
    return ", ".join(f"{limit} x{count}" for limit, count in Counter(limits).most_common()) or "nothing seen"


def summary(outcomes: Sequence[Outcome]) -> str:
    """Return how often each level was right."""
    lines = []
    for level in LEVELS:
        mine = [one for one in outcomes if one.level == level]
        told, right = sum(max(1, len(one.fault.limits)) for one in mine), sum(one.right for one in mine)
        controls, well = sum(len(one.control.limits) for one in mine), sum(one.control_right for one in mine)
        gains = [one.gain_error for one in mine if one.gain_error is not None]
        near = sum(abs(gain) <= GAIN for gain in gains)
        lines.append(
            f"{level}: {right} of {told} verdicts right, {well} of {controls} on controls, "
            f"{near} of {len(gains)} promises within 25 %"
        )
    return "\n".join(lines)


def confusion(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Return what was planted against what was said."""
    pairs = Counter((one.level, one.case.limits[0], limit) for one in outcomes for limit in one.fault.limits)
    pairs += Counter((one.level, "(control)", limit) for one in outcomes for limit in one.control.limits)
    return [
        {"level": level, "planted": planted, "said": said, "events": count}
        for (level, planted, said), count in sorted(pairs.items())
    ]


def main() -> int:
    """Run them; ends with 1 if a run failed."""
    options = parser(__doc__)
    options.add_argument("--only", nargs="*", default=[], help="names, or how they begin")
    options.add_argument("--sizes", type=int, default=2, choices=(1, 2))
    options.add_argument("--saves", type=int, default=3)
    options.add_argument("--scale", type=int, default=1, help="sizes are so many times those of the cases")
    options.add_argument("--markdown", action="store_true")
    options.add_argument("--keep", type=Path, help="write all that was told of each event to this file")
    chosen = options.parse_args()
    outcomes: list[Outcome] = []
    failures = 0
    for case in CASES:
        if chosen.only and not any(case.name.startswith(name) for name in chosen.only):
            continue
        for size_mb in (chosen.scale * size for size in case.sizes_mb[: chosen.sizes]):
            try:
                found = run_case(case, size_mb, saves=chosen.saves, whole=chosen.keep is not None)
            except (RuntimeError, OSError, AssertionError, subprocess.TimeoutExpired) as error:
                failures += 1
                print(f"{case.name} {size_mb}: {error}", file=sys.stderr)
                continue
            outcomes += found
            for one in found:
                print(*row(one).values(), sep=" | ", file=sys.stderr, flush=True)
            if chosen.keep is not None:
                _keep(chosen.keep, found)
    rows, pairs = [row(one) for one in outcomes], confusion(outcomes)
    if chosen.markdown:
        print(markdown(rows), summary(outcomes), markdown(pairs), sep="\n\n")
    else:
        show("faults", rows, as_json=chosen.json)
        show("faults, confusion", pairs, as_json=chosen.json)
        print(summary(outcomes), file=sys.stderr)
    return 1 if failures else 0


def _keep(path: Path, outcomes: Sequence[Outcome]) -> None:
    with path.open("a", encoding="utf-8") as stream:
        for one in outcomes:
            for name, told in (("fault", one.fault), ("control", one.control)):
                kept = {
                    "at": time.time(), "case": one.case.name, "size_mb": one.size_mb, "level": one.level, "run": name,
                    "truth_seconds": told.truth_seconds, "events": told.events,
                }  # fmt: skip
                stream.write(json.dumps(kept) + "\n")


if __name__ == "__main__":
    sys.exit(main())
