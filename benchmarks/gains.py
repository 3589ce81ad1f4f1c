"""What a remedy gains: the duration that `show` promises, against one that is measured.

A job of the hold-out saves (or restores) with a planted fault and with its remedy in turns; both levels record the same
run, alone and beside four busy loops on each core. A promise holds within a factor of 1.5 or 0.2 s: of a limit's own
remedy against the remedy under the same load, of more CPU (crowded) against the fault alone. Needs root.
`--keep` and `--kept` as of score.py.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from figures import markdown, parser, show
from score import Case, Event, replayed, run

LOADS = ("alone", "crowded")
FACTOR, SECONDS = 1.5, 0.2  # by which a promise may be off
_RAW = "pointed"  # writes as fast as one thread can
FAULTS = (  # `accused`: causes with a remedy of their own, which the second rounds do not have
    Case("gzip", "gzipped", remedy=_RAW, size_mb=24, seconds=1.0),
    Case("bz2", "packed", remedy=_RAW, size_mb=8, seconds=1.0),
    Case("npz, compressed", "squeezed", remedy="npz", size_mb=24, seconds=1.0),
    Case("numbers pickled one by one", "pickled", remedy="numbers", size_mb=160, seconds=1.0),
    Case("a sync for each row", "journaled", remedy="synced", size_mb=6, ground="few writes", seconds=1.0),
    Case("a sync for each file", "synced-files", remedy="synced", size_mb=64, seconds=1.0),
    Case("O_SYNC", "synced-each-call", remedy="synced", size_mb=6, ground="few writes", seconds=1.0),
    Case("os.sync", "synced-with-all", remedy="synced", size_mb=20, beside="unsynced", ground="slow", seconds=1.0,
         accused=("throttled",)),
    Case("small direct writes", "in-small-direct", remedy="direct", size_mb=256, seconds=1.0),
    Case("thousands of files", "scattered", remedy=_RAW, size_mb=24, seconds=1.0),
    Case("a slow device", "held", remedy="synced", size_mb=48, ground="ext4", seconds=1.0),
    Case("written twice", "synced-and-copied", remedy="synced", size_mb=40, ground="slow", seconds=1.0,
         accused=("throttled",)),
    Case("one rank compresses for two", "packed-by-first", remedy="packed-by-part", size_mb=32, ranks=2, seconds=1.0),
    Case("gathered", "gathered", remedy="sharded", size_mb=256, ranks=2, seconds=1.0),
    Case("by page faults", "load-by-faults", remedy="load-large", size_mb=96, prepared=True, seconds=1.0),
    Case("small direct reads", "load-small-direct", remedy="load-large-direct", ground="few operations", size_mb=16,
         prepared=True, seconds=1.0),
)  # fmt: skip


def rows(events: list[Event]) -> Iterator[dict[str, Any]]:
    """Yield each promise for a save with a fault beside what was measured."""
    measured: dict[tuple[str, str, bool], list[float]] = {}
    for one in events:
        if one.truth is not None and one.level == "trace":
            measured.setdefault((one.case.name, one.load, one.truth["planted"]), []).append(one.blocked_seconds)
    for one in events:
        if one.truth is None or not one.truth["planted"]:
            continue
        verdict = (one.told or {}).get("verdict") or {"limit": "missed"}
        other = verdict.get("alternative") or {}
        promises = [
            (verdict["limit"], verdict.get("expected_seconds")),
            (other.get("limit"), other.get("expected_seconds")),
        ]
        for limit, promised in promises[: 1 + bool(other)]:
            key = (one.case.name, "alone", True) if limit == "cpu" else (one.case.name, one.load, False)
            is_other = one.load == "alone" if limit == "cpu" else verdict.get("cause") in one.case.accused
            real = median(measured[key]) if key in measured and not is_other else None
            yield {
                "fault": one.case.name, "load": one.load, "level": one.level, "took, s": one.blocked_seconds,
                "limit": limit, "cause": verdict.get("cause") if limit == verdict["limit"] else "or",
                "promised, s": promised, "measured, s": real, "holds": _holds(promised, real),
            }  # fmt: skip


def _holds(promised: float | None, real: float | None) -> bool | None:
    if promised is None or real is None:
        return None
    return abs(promised - real) <= SECONDS or max(promised, real) <= FACTOR * min(promised, real)


def main() -> int:
    """Run them; ends with 1 if a run failed."""
    options = parser(__doc__)
    options.add_argument("--only", nargs="*", default=[], help="faults by how they begin")
    options.add_argument("--loads", nargs="*", default=list(LOADS), choices=LOADS)
    options.add_argument("--keep", type=Path, help="a folder for what is recorded of each run")
    options.add_argument("--kept", type=Path, help="a folder of which all is replayed")
    options.add_argument("--markdown", action="store_true")
    chosen = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what is mounted and held is taken away
    events: list[Event] = []
    try:
        return _measure(chosen, events)
    finally:  # a run that is ended shows what it has
        table = list(rows(events))
        held = [one["holds"] for one in table if one["holds"] is not None]
        if chosen.markdown:
            print(markdown(table))
        else:
            show("gains", table, as_json=chosen.json, notes=[f"{sum(held)} of {len(held)} promises hold"])


def _measure(chosen: argparse.Namespace, events: list[Event]) -> int:
    failures = 0
    for load in chosen.loads:
        folder = (chosen.kept or chosen.keep) and (chosen.kept or chosen.keep) / load
        if chosen.keep is not None:
            folder.mkdir(parents=True, exist_ok=True)
        for case in FAULTS:
            if chosen.only and not any(case.name.startswith(name) for name in chosen.only):
                continue
            try:
                events += replayed(case, load, folder) if chosen.kept else run(case, load, folder)
            except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
                failures += 1
                print(f"{case.name}: {error}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
