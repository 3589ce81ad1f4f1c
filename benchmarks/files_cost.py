"""What the detection costs for one save or restore of very many files: CPU of judging, the longest frame, memory.

    python benchmarks/files_cost.py --files 1000 10000 100000
    python benchmarks/files_cost.py --files 1000 10000 100000 --restored

Frames as the trace would give them, five a second, are fed to a detector in a process of its own, which collects
garbage as the recorder does; nothing is written to a disk. The save lasts ten seconds, however many files it has. A row
whose save is not told as one event with all its files is marked, and the exit code is 1.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import psutil

from contenders import ROOT
from figures import machine, parser, show

sys.path.insert(0, str(ROOT))

from tests.detect.stage import MIB, SECOND_NS, Stage
from tests.detect.tracer import activity, life

from ckptprof.detect.pipeline import Detector
from ckptprof.service.recorder.garbage import collect_seldom
from ckptprof_collectors.samples import Frame, ProcessInfo, ProcessIo, Sample

TICKS = 5  # a second
TRAINS_SECONDS, SAVES_SECONDS, AFTER_SECONDS = 5, 10, 30
FILE_BYTES = 64 << 10
PID = 10


def measure(files: int, *, restored: bool = False) -> dict[str, Any]:
    """Feed a save of so many files to a detector, or a restore."""
    collect_seldom()
    stage = Stage()
    detector = Detector(stage.header())
    own = psutil.Process()
    before, most = own.memory_info().rss, 0
    spent: list[float] = []
    told: dict[str, int | None] = {}
    number = 0
    for tick in range((TRAINS_SECONDS + SAVES_SECONDS + AFTER_SECONDS) * TICKS):
        at_s = tick / TICKS
        frame: list[Sample] = []
        if not tick:
            frame.append(ProcessInfo(PID, PID * 10, 1, 0, "python3", "train.py", ("torch",), {}, None))
        due = round(files * min(1.0, max(0.0, (at_s - TRAINS_SECONDS) / SAVES_SECONDS)))
        for one in range(number + 1, due + 1):
            path = f"/ckpt/step_100/part_{one}.bin"
            if not restored:
                frame.append(life("created", at_s, PID, inode=one, path=path))
            frame.append(activity(PID, path, at_s - 0.001, at_s, FILE_BYTES, inode=one, writes=not restored))
        number = due
        moved = due * FILE_BYTES
        counted = (moved, 0) if restored else (0, moved)
        frame.append(ProcessIo(PID, PID * 10, *counted, 9, 9, *counted, 0))
        at_ns = stage.header().at_ns + int(at_s * SECOND_NS)
        began = time.process_time()
        for event in detector.feed(Frame(at_ns, stage.wall(at_s), ("processes",), tuple(frame))):
            told[event.uid] = event.files
        spent.append(time.process_time() - began)
        most = max(most, own.memory_info().rss)
    return {
        "files": files,
        "CPU s": sum(spent),
        "us a file": sum(spent) / files * 1e6,
        "longest frame ms": max(spent) * 1e3,
        "grown by MB at most": (most - before) / MIB,
        "told whole": list(told.values()) == [files],
    }


def main() -> int:
    """Measure each number of files in a process of its own: memory does not fall to where it was."""
    made = parser(__doc__)
    made.add_argument("--files", type=int, nargs="+", default=[1_000, 10_000, 100_000], help="of the save")
    made.add_argument("--restored", action="store_true", help="not written, but read")
    made.add_argument("--row", action="store_true", help="print the row of one number as JSON, in this process")
    options = made.parse_args()
    if options.row:
        print(json.dumps(measure(options.files[0], restored=options.restored)))
        return 0
    rows = []
    for files in options.files:
        how = ["--restored"] if options.restored else []
        command = [sys.executable, __file__, "--row", "--files", str(files), *how]
        rows.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
    notes = [f"{name}: {value}" for name, value in machine().items()]
    show("files_cost", rows, as_json=options.json, notes=notes)
    return 0 if all(row["told whole"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
