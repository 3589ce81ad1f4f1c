"""What detection and timelines keep in memory over hours, replayed: frames of recordings with later and later times.

    python benchmarks/hours.py --hours 3
    python benchmarks/hours.py --hours 3 everyday.ckptrec.gz

Without recordings it takes the trace captures of the tests, in an order that `--seed` chooses. Each turn has other
processes and other files than the one before. The table has, about every `--every` minutes of recorded time, the
private memory of this process, what detection says that it keeps, what it forgot early, and the CPU that it took: in
all, and for an hour of what was recorded since the row before.
Growth per hour is the slope of a straight line (least squares) through all rows after the first `--warm-up` minutes.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from contenders import ROOT
from figures import parser, show

sys.path.insert(0, str(ROOT / "tests" / "recording"))

from shifted import one_after_the_other
from told import STREAMS, SUFFIX, captures

from ckptprof.detect.pipeline import Detector
from ckptprof.recording import Frame, Unpacker, pack
from ckptprof.store.timeline import TimelineBuilder


def measured(paths: list[Path], hours: float, every_seconds: float) -> list[dict[str, Any]]:
    """Feed the frames as a recorder does; return the rows."""
    header, frames = one_after_the_other(paths, 3600 * hours)
    detector, timeline, pipe = Detector(header), TimelineBuilder(), Unpacker()
    list(pipe.feed(pack(header)))
    process, used_ns, due_s = psutil.Process(), 0, 0.0
    before_hour, before_ns = 0.0, 0
    rows: list[dict[str, Any]] = []
    for number, shifted in enumerate(frames):
        data = pack(shifted)
        began_ns = time.thread_time_ns()
        for frame in pipe.feed(data):
            assert isinstance(frame, Frame)
            detector.feed(frame)
            timeline.feed(frame)
            if number % 20 == 0:
                timeline.take(before_wall_ns=frame.wall_ns)
        used_ns += time.thread_time_ns() - began_ns
        at_s = (shifted.at_ns - header.at_ns) / 1e9
        if at_s >= due_s:
            due_s = at_s + every_seconds
            since = at_s / 3600 - before_hour
            an_hour = (used_ns - before_ns) / 1e9 / since if since else None
            before_hour, before_ns = at_s / 3600, used_ns
            rows.append(
                {
                    "hour": at_s / 3600,
                    "private MB": process.memory_full_info().uss / 1e6,
                    "kept MB": detector.kept_bytes / 1e6,
                    "forgotten early MB": detector.forgotten_bytes / 1e6,
                    "CPU s": used_ns / 1e9,
                    "CPU s an hour": an_hour,
                }
            )
    return rows


def growth(rows: list[dict[str, Any]], name: str, warm_up_hours: float) -> float | None:
    """Return how much a figure grew in an hour; None with fewer than two rows after the warm-up."""
    later = [(row["hour"], row[name]) for row in rows if row["hour"] >= warm_up_hours and row[name] is not None]
    return statistics.linear_regression(*zip(*later, strict=True)).slope if len(later) > 1 else None


def main() -> None:
    """Measure and print."""
    arguments = parser(__doc__)
    arguments.add_argument("recordings", nargs="*", type=Path)
    arguments.add_argument("--hours", type=float, default=3)
    arguments.add_argument("--every", type=float, default=10, help="minutes from row to row")
    arguments.add_argument("--warm-up", type=float, default=30, help="minutes that growth leaves out")
    arguments.add_argument("--seed", type=int, default=1)
    options = arguments.parse_args()
    paths = options.recordings or [STREAMS / f"{name}{SUFFIX}" for name in captures() if name.endswith(".trace")]
    random.Random(options.seed).shuffle(paths)  # noqa: S311 - an order, no secret
    rows = measured(paths, options.hours, 60 * options.every)
    grown = {name: growth(rows, name, options.warm_up / 60) for name in ("private MB", "kept MB", "CPU s an hour")}
    notes = [f"{name}: {by:+.2f} per hour" for name, by in grown.items() if by is not None]
    show(f"hours: {options.hours:g} h of {len(paths)} recordings", rows, as_json=options.json, notes=notes)


if __name__ == "__main__":
    main()
