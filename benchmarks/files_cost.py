"""What the detection costs for one save or restore of very many files: CPU of judging, the longest frame, memory.

    python benchmarks/files_cost.py --files 1000 10000 100000
    python benchmarks/files_cost.py --files 1000 10000 100000 --restored
    python benchmarks/files_cost.py --files 1000 10000 100000 --polled
    python benchmarks/files_cost.py --floods 300

Frames as the trace, or polling, would give them, five a second, are fed to a detector in a process of its own, which
collects garbage and encodes pending events as the recorder does; nothing is written to a disk. The save lasts ten
seconds, however many files it has. A row whose save is not told as one event with all its files is marked, and the
exit code is 1.

`--floods`: instead of a checkpoint a data set is written or read for so many seconds, file after file. A row has the
share of a core that this takes in the last minute, and what the process has grown to. Whatever is told of it is a
false alarm, and the exit code is 1.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import Any

import msgspec
import psutil

from contenders import ROOT
from figures import machine, parser, show

sys.path.insert(0, str(ROOT))

from tests.detect.stage import MIB, NUMPY, SECOND_NS, Stage
from tests.detect.tracer import activity, life

from ckptprof.detect.pipeline import Detector
from ckptprof.service.commands.agent_service import reduce_garbage_collection
from ckptprof.service.recorder.pending import encode
from ckptprof_collectors.samples import FileFact, Frame, ProcessInfo, ProcessIo, Sample

TICKS = 5  # a second
TRAINS_SECONDS, SAVES_SECONDS, AFTER_SECONDS = 5, 10, 30
PENDING_TICKS = 4  # the recorder stores what is pending as often, 0.75 s at least
FILE_BYTES = 64 << 10
PID = 10


FLOODS = {  # path, so many a second, whether they are written
    "shards written": ("/data/out/shard_{}.npy", 20, True),
    "samples written": ("/data/out/{}.npy", 20, True),
    "samples read": ("/data/in/{}.npy", 50, False),
}
FLOOD_FILE_BYTES = 2 * MIB
COUNTED_SECONDS = 60  # the last of a flood


class Fed:
    """A detector that is fed frames; counts what they cost, and keeps what was told."""

    def __init__(self, command: str, modules: tuple[str, ...], level: str = "trace") -> None:
        """Begin with a process that runs this."""
        self.stage = Stage()
        self.detector = Detector(msgspec.structs.replace(self.stage.header(), level=level))
        self.process = psutil.Process()
        self.before = self.most = self.process.memory_info().rss
        self.spent: list[float] = []
        self.told: dict[str, int | None] = {}
        self._info: list[Sample] = [ProcessInfo(PID, PID * 10, 1, 0, "python3", command, modules, {}, None)]

    def feed(self, at_s: float, samples: Iterable[Sample], moved_bytes: int, *, writes: bool) -> None:
        """Feed what was seen at a tick, by when so many bytes had moved."""
        counted = (0, moved_bytes) if writes else (moved_bytes, 0)
        frame = (*self._info, *samples, ProcessIo(PID, PID * 10, *counted, 9, 9, *counted, 0))
        self._info = []
        at_ns = self.stage.header().at_ns + int(at_s * SECOND_NS)
        began = time.process_time()
        for event in self.detector.ingest(Frame(at_ns, self.stage.wall(at_s), ("processes",), frame)):
            self.told[event.uid] = event.files
        self.spent.append(time.process_time() - began)
        self.most = max(self.most, self.process.memory_info().rss)


def measure(files: int, *, restored: bool = False, polled: bool = False) -> dict[str, Any]:
    """Feed a save of so many files to a detector, or a restore."""
    reduce_garbage_collection()
    fed = Fed("train.py", ("torch",), "poll" if polled else "trace")
    number, pending = 0, list[float]()
    for tick in range((TRAINS_SECONDS + SAVES_SECONDS + AFTER_SECONDS) * TICKS):
        at_s = tick / TICKS
        frame: list[Sample] = []
        due = round(files * min(1.0, max(0.0, (at_s - TRAINS_SECONDS) / SAVES_SECONDS)))
        for one in range(number + 1, due + 1):
            path, stamp = f"/ckpt/step_100/part_{one}.bin", fed.stage.wall(at_s)
            if polled:
                fact = FileFact(PID, PID * 10, 2049, one, path, FILE_BYTES, False, stamp, stamp, stamp, None, None)  # noqa: FBT003
                frame.append(fact)
                continue
            if not restored:
                frame.append(life("created", at_s, PID, inode=one, path=path))
            frame.append(activity(PID, path, at_s - 0.001, at_s, FILE_BYTES, inode=one, writes=not restored))
        number = due
        fed.feed(at_s, frame, due * FILE_BYTES, writes=not restored)
        if not tick % PENDING_TICKS:
            began = time.process_time()
            for event in fed.detector.pending(closely=False):
                encode(event)
            pending.append(time.process_time() - began)
    return {
        "files": files,
        "CPU s": sum(fed.spent),
        "us a file": sum(fed.spent) / files * 1e6,
        "longest frame ms": max(fed.spent) * 1e3,
        "pending us a file": sum(pending) / files * 1e6,
        "longest pending ms": max(pending) * 1e3,
        "grown by MB at most": (fed.most - fed.before) / MIB,
        "told whole": list(fed.told.values()) == [files],
    }


def flooded(name: str, seconds: int) -> dict[str, Any]:
    """Feed a flood to a detector."""
    path, rate, writes = FLOODS[name]
    fed = Fed("prepare.py", ("numpy",))
    number = waiting = 0
    for tick in range(seconds * TICKS):
        at_s = tick / TICKS
        frame: list[Sample] = []
        for _ in range(rate // TICKS):
            number += 1
            at, stamp = path.format(number), fed.stage.wall(at_s)
            used = activity(PID, at, at_s, at_s + 0.01, FLOOD_FILE_BYTES, inode=number, writes=writes)
            fact = FileFact(PID, PID * 10, 2049, number, at, FLOOD_FILE_BYTES, False, stamp, stamp, stamp, None, NUMPY)  # noqa: FBT003
            frame += [life("created", at_s, PID, inode=number, path=at), used, fact] if writes else [used]
        fed.feed(at_s, frame, number * FLOOD_FILE_BYTES, writes=writes)
        waiting = max(waiting, len(fed.detector._transfers.waiting))  # noqa: SLF001 - it is what is asked about
    counted = min(COUNTED_SECONDS, seconds)
    return {
        "flood": name,
        "files a second": rate,
        "share of a core": sum(fed.spent[-counted * TICKS :]) / counted,
        "grown by MB": (fed.most - fed.before) / MIB,
        "waiting at most": waiting,
        "false alarms": len(fed.told),
    }


def main() -> int:
    """Measure each number of files in a process of its own: memory does not fall to where it was."""
    made = parser(__doc__)
    made.add_argument("--files", type=int, nargs="+", default=[1_000, 10_000, 100_000], help="of the save")
    made.add_argument("--restored", action="store_true", help="not written, but read: at trace")
    made.add_argument("--polled", action="store_true", help="found by polling: written")
    made.add_argument("--row", action="store_true", help="print the row of one number as JSON, in this process")
    made.add_argument("--floods", type=int, metavar="SECONDS", help="no checkpoint, but data sets for so long")
    options = made.parse_args()
    notes = [f"{name}: {value}" for name, value in machine().items()]
    if options.floods:
        rows = [flooded(name, options.floods) for name in FLOODS]
        show("files_cost, floods", rows, as_json=options.json, notes=notes)
        return int(any(row["false alarms"] for row in rows))
    if options.row:
        print(json.dumps(measure(options.files[0], restored=options.restored, polled=options.polled)))
        return 0
    rows = []
    for files in options.files:
        how = [f"--{one}" for one in ("restored", "polled") if getattr(options, one)]
        command = [sys.executable, __file__, "--row", "--files", str(files), *how]
        rows.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
    show("files_cost", rows, as_json=options.json, notes=notes)
    return 0 if all(row["told whole"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
