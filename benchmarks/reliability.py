"""Whether what is promised under faults and attacks holds: each proof does it to a real agent and says what was seen.

    python benchmarks/reliability.py --only kills shutdowns --scale 0.1

Needs root. `--scale` shortens the long ones: 1 is what docs/reliability.md asks for. `--markdown` prints the table of
that page. The exit code is 1 if something does not hold.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import asdict

from figures import markdown, parser, show
from proofs import attacks, brokendisks, hotplugs, kills, nodes
from proofs.proving import Row, say

PROOFS: dict[str, Callable[[float], list[Row]]] = {
    "kills": lambda scale: kills.prove(_count(500, scale)),
    "shutdowns": lambda scale: brokendisks.shutdowns(_count(10, scale)),
    "disks": lambda _: brokendisks.prove(),
    "hotplugs": lambda scale: hotplugs.hotplugs(_count(1000, scale)),
    "attacks": attacks.prove,
    "nodes": lambda _: nodes.prove(),
}


def _count(whole: int, scale: float) -> int:
    return max(2, round(whole * scale))


def main() -> int:
    """Run them one after the other."""
    made = parser(__doc__)
    made.add_argument("--only", nargs="*", choices=list(PROOFS), default=list(PROOFS))
    made.add_argument("--scale", type=float, default=0.1, help="of the full counts")
    made.add_argument("--markdown", action="store_true", help="print the table of the page")
    options = made.parse_args()
    rows: list[Row] = []
    for name in options.only:
        began = time.monotonic()
        try:
            found = PROOFS[name](options.scale)
        except (RuntimeError, OSError, AssertionError) as error:
            found = [Row(name, "it was tried", "to end", f"{type(error).__name__}: {str(error)[-500:]}", holds=False)]
        for row in found:
            say(f"{row.proof}: {row.seen}: {'holds' if row.holds else 'DOES NOT HOLD'}")
        say(f"{name}: {time.monotonic() - began:.0f} s")
        rows += found
    if options.markdown:
        print(markdown([{**asdict(row), "holds": "yes" if row.holds else "**no**"} for row in rows]))
    else:
        show("reliability", [asdict(row) for row in rows], as_json=options.json)
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
