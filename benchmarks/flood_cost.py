"""What the detection costs while a data set is made or read: many files without an end, none of them a checkpoint.

    python benchmarks/flood_cost.py --seconds 900

Frames as the trace would give them are fed to the detector as fast as it takes them; nothing is written to a disk. A
row tells the share of a core that this would take in the last minute, and what the process has grown to. Whatever is
told is a false alarm, and the exit code is 1.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any

import psutil

from contenders import ROOT
from figures import machine, parser, show

sys.path.insert(0, str(ROOT))

from tests.detect.stage import MIB, NUMPY, SECOND_NS, Stage
from tests.detect.tracer import activity, life

from ckptprof.detect.pipeline import Detector
from ckptprof_collectors.samples import FileFact, Frame, ProcessInfo, ProcessIo, Sample

TICKS = 5  # a second
LAST_SECONDS = 60  # are counted
FILE_BYTES = 2 * MIB
PID = 10


@dataclass(frozen=True)
class Flood:
    """Files of one process, so many a second."""

    name: str
    path: str
    files_per_second: int
    writes: bool


FLOODS = (
    Flood("shards written", "/data/out/shard_{}.npy", 20, writes=True),
    Flood("samples written", "/data/out/{}.npy", 20, writes=True),
    Flood("samples read", "/data/in/{}.npy", 50, writes=False),
)


def samples(flood: Flood, stage: Stage, number: int, at_s: float) -> list[Sample]:
    """Return what is seen of one file."""
    path = flood.path.format(number)
    used = activity(PID, path, at_s, at_s + 0.01, FILE_BYTES, inode=number, writes=flood.writes)
    if not flood.writes:
        return [used]
    stamp = stage.wall(at_s)
    fact = FileFact(PID, PID * 10, 2049, number, path, FILE_BYTES, False, stamp, stamp, stamp, None, NUMPY)  # noqa: FBT003 - it is no folder
    return [life("created", at_s, PID, inode=number, path=path), used, fact]


def measure(flood: Flood, seconds: int) -> dict[str, Any]:
    """Feed one flood to a detector of its own."""
    stage = Stage()
    detector = Detector(stage.header())
    own = psutil.Process()
    before = own.memory_info().rss
    told = number = waiting = 0
    began = time.process_time()
    counted = min(LAST_SECONDS, seconds)
    for tick in range(seconds * TICKS):
        at_s = tick / TICKS
        if tick == (seconds - counted) * TICKS:
            began = time.process_time()
        frame: list[Sample] = []
        if not tick:
            frame.append(ProcessInfo(PID, PID * 10, 1, 0, "python3", "prepare.py", ("numpy",), {}, None))
        for _ in range(flood.files_per_second // TICKS):
            number += 1
            frame += samples(flood, stage, number, at_s)
        moved = number * FILE_BYTES
        counts = (0, moved, 9, 9, 0, moved, 0) if flood.writes else (moved, 0, 9, 9, moved, 0, 0)
        frame.append(ProcessIo(PID, PID * 10, *counts))
        at_ns = stage.header().at_ns + int(at_s * SECOND_NS)
        told += len(detector.feed(Frame(at_ns, stage.wall(at_s), ("processes",), tuple(frame))))
        waiting = max(waiting, len(detector._transfers.waiting))  # noqa: SLF001 - it is what is asked about
    return {
        "flood": flood.name,
        "files a second": flood.files_per_second,
        "share of a core": (time.process_time() - began) / counted,
        "grown by MB": (own.memory_info().rss - before) / MIB,
        "waiting at most": waiting,
        "false alarms": told,
    }


def main() -> int:
    """Measure each flood in turn."""
    made = parser(__doc__)
    made.add_argument("--seconds", type=int, default=300, help="of each flood, as the detector sees it")
    options = made.parse_args()
    rows = [measure(flood, options.seconds) for flood in FLOODS]
    notes = [f"{name}: {value}" for name, value in machine().items()]
    show("flood_cost", rows, as_json=options.json, notes=notes)
    return 1 if any(row["false alarms"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
