"""What a fleet of files costs: shipping, compaction and each question, in seconds, memory and requests.

    python benchmarks/fleet.py --nodes 10000 --days 30      # 28.8 million rows; --nodes 1000 --days 3 is a hundredth

Each node saves 96 times a day, in runs of 64 nodes with 8 ranks each. Rows are made of one recorded save, written as
inboxes hold them, but for a day and a node each (a node writes 96 small files). A child process compacts day by day,
as the hourly run does, and one answers each question.
"""

from __future__ import annotations

import json
import random
import resource
import shutil
import subprocess
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import parquet

from ckptprof.cluster.model import NodeState
from ckptprof.fleet import compaction, files, questions, schema
from ckptprof.fleet.files import FleetFiles
from ckptprof.fleet.reading import open_fleet
from ckptprof.model import CheckpointQuery, Clock, Place, Run, Watched
from figures import parser, show

sys.path.append(str(Path(__file__).resolve().parents[1]))
from tests.cluster.nodes import recorded

SAVES, NODES_OF_RUN, RANKS = 96, 64, 8
BEGIN_NS = 1_774_000_800 * 10**9 // 86_400_000_000_000 * 86_400_000_000_000
EVERY_NS = 900 * 10**9
DAY_NS = 86_400 * 10**9


def rows_of(node: int, day: int, dice: random.Random) -> Iterator[dict[str, Any]]:
    """Yield the rows of a node and a day."""
    base = msgspec.to_builtins(recorded())
    run, place = divmod(node, NODES_OF_RUN)
    for save in range(SAVES):
        start_ns = BEGIN_NS + day * DAY_NS + save * EVERY_NS + run * 10**9 + dice.randrange(20_000_000)
        end_ns = start_ns + 8 * 10**9 + dice.randrange(10**9)
        step = (day * SAVES + save) * 100
        base |= {
            "uid": f"{dice.getrandbits(128):032x}", "id": day * SAVES + save + 1, "job": f"run-{run}", "step": step,
            "start_ns": start_ns, "end_ns": end_ns, "stall_ns": end_ns - start_ns, "path": f"/ckpt/{run}/step_{step}",
            "ranks": RANKS * NODES_OF_RUN,
            "run": msgspec.to_builtins(
                Run(key=f"slurm:alpha/{run}.0", scheduler="slurm", job=str(run), nodes=NODES_OF_RUN, node=place)
            ),
            "place": msgspec.to_builtins(Place(key=f"nfs:filer:/ckpt:{run * 10**6 + step}", shared=True)),
            "clock": msgspec.to_builtins(Clock(synchronised=True, bound_ns=10_000_000)),
            "writers": [
                {**base["writers"][0], "pid": 100 + rank, "rank": RANKS * place + rank, "end_ns": end_ns}
                for rank in range(RANKS)
            ],
            "database": f"db-{node}", "first_start_ns": start_ns, "revision": 2, "lost": 0,
        }  # fmt: skip
        yield base


def ship(store: FleetFiles, nodes: int, day: int) -> int:
    """Write the inboxes of a day; return their bytes."""
    dice, size = random.Random(day), 0  # noqa: S311 - made-up checkpoints
    for node in range(nodes):
        table = schema.table_of(rows_of(node, day, dice), schema.ShippedRow)
        data = files.to_parquet(table)
        size += len(data)
        store.put(f"{files.inbox_folder(f'node-{node}')}/db-{node}-{day}-{day + 1}.parquet", data)
        watched = Watched(start_ns=BEGIN_NS, end_ns=BEGIN_NS + (day + 1) * DAY_NS)
        state = NodeState(
            host="", database=f"db-{node}", version="1", level="trace", kernel="6", clock=None, watched=watched,
            checkpoints=SAVES,
        )  # fmt: skip
        store.put(files.heartbeat_name(f"node-{node}", f"db-{node}"), msgspec.json.encode(state))
    return size


def counted(store: FleetFiles) -> Counter[str]:
    """Count what a store is asked from now on; files that engines open themselves are not counted."""
    counts: Counter[str] = Counter()
    for name in ("put", "read", "names", "delete"):
        method = getattr(store, name)

        def count(*given: Any, name: str = name, method: Any = method) -> Any:
            counts[name] += 1
            return method(*given)

        setattr(store, name, count)
    return counts


def child(options: Namespace) -> None:
    """Compact, or answer a question; print what that took."""
    temporary = Path(options.folder) / "temporary"
    temporary.mkdir(exist_ok=True)
    began, cpu = time.monotonic(), time.process_time()
    if options.child == "compact":
        store = FleetFiles(f"{options.folder}/fleet")
        counts = counted(store)
        done = compaction.compact(store, keep_days=None, now_ns=0, progress=lambda _: None)
        number = done.rows
    else:
        tables, _ = open_fleet(f"{options.folder}/fleet", temporary)
        number = tables.select(CheckpointQuery(), time.time_ns())
        tables.ask(options.child, questions.ANSWERS[options.child], by="job")
        counts = Counter()
    told = {
        "rows": number,
        **{name: counts[name] for name in ("names", "read", "put", "delete")},
        "seconds": round(time.monotonic() - began, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    print(json.dumps(told))


def main() -> None:
    """Ship and compact day by day, then ask."""
    arguments = parser(__doc__)
    arguments.add_argument("--nodes", type=int, default=1000)
    arguments.add_argument("--days", type=int, default=3)
    arguments.add_argument("--folder", default=".build/fleet")
    arguments.add_argument("--child", default="")
    options = arguments.parse_args()
    if options.child:
        child(options)
        return
    shutil.rmtree(options.folder, ignore_errors=True)
    store, rows, notes = FleetFiles(f"{options.folder}/fleet"), [], []
    for day in range(options.days):
        size = ship(store, options.nodes, day)
        rows.append({"what": f"compact day {day}", **run("compact", options)})
        notes.append(f"day {day}: {size / options.nodes / SAVES:.0f} bytes a row in inboxes")
    for folder in (files.DAYS, files.CLUSTER_CHECKPOINTS, files.CLUSTER_NODES):
        found = store.names(folder)
        number = sum(parquet.read_metadata(pa.BufferReader(store.read(name))).num_rows for name in found)
        notes.append(f"{folder}: {len(found)} files, {number:,} rows, {sum(found.values()) / number:.0f} bytes a row")
    rows += [{"what": question, **run(question, options)} for question in questions.ANSWERS]
    shutil.rmtree(options.folder)
    show("a fleet of files", rows, as_json=options.json, notes=notes)


def run(what: str, options: Namespace) -> dict[str, Any]:
    """Do one thing in a process of its own; return what it took."""
    words = [sys.executable, __file__, "--folder", options.folder, "--child", what]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    main()
