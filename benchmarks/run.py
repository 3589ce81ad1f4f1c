"""Run the benchmarks one after the other: `make bench`, or with BENCH_FLAGS="--only tick report" some of them.

`--quick` takes small settings that prove that all of them run; their figures mean nothing.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from figures import parser

HERE = Path(__file__).resolve().parent
QUICK: dict[str, list[str]] = {
    "guest": ["--only", "idle", "one job", "--levels", "poll", "--windows", "1", "--window", "1", "--settle", "1"],
    "tick": ["--counts", "10", "--rounds", "1"],
    "store": ["--hours", "0.05", "--days", "0.1", "--narrow-minutes", "1", "--runs", "1"],
    "report": ["--days", "0.5", "--ranks", "4", "--many", "100", "--runs", "1"],
    "lateness": ["--seconds", "2", "--rates", "10", "--busy", "1"],
    "score": ["--loads", "alone", "--only", "sync: control"],
    "gains": ["--loads", "alone", "--only", "a sync for each file"],
    "soak": ["--minutes", "0.05", "--every", "2", "--levels", "poll", "--formats", "npz", "--tasks", "cp into", "mail"],
    "files_cost": ["--files", "300"],
    "fleet": ["--nodes", "64", "--days", "2"],
    "reliability": ["--only", "hotplugs", "--scale", "0.01"],
    "trace_cost": ["--rounds", "1", "--scale", "0.01"],
}


def main() -> None:
    """Run them; raises SystemExit with 1 if one failed."""
    arguments = parser(__doc__)
    arguments.add_argument("--quick", action="store_true")
    arguments.add_argument("--only", nargs="*", choices=list(QUICK), default=list(QUICK))
    options = arguments.parse_args()
    failed = []
    for name in options.only:
        command = [sys.executable, str(HERE / f"{name}.py"), *(QUICK[name] if options.quick else [])]
        if subprocess.run([*command, *(["--json"] if options.json else [])], check=False).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
        raise SystemExit(1)


if __name__ == "__main__":
    main()
