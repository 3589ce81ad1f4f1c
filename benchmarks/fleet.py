"""What a fleet of files costs: shipping, compaction and each question, in seconds, memory and requests.

    python benchmarks/fleet.py --nodes 10000 --days 30      # 28.8 million rows, in some 20 minutes and 5 GB

Each node saves 96 times a day, in runs of 64 nodes with 8 ranks each. Rows are made of one recorded save, written as
inboxes hold them, but for a day and a node each (a node writes 96 small files). The first day is shipped and compacted;
the days after it are copies of its tables, later by days, with other uids. `--last NODES`: so many nodes ship the last
day, which is compacted after the questions were answered with it open. Each step is a process of its own.
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

import duckdb
import msgspec
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
        beat(store, node, day)
    return size


def beat(store: FleetFiles, node: int, day: int) -> None:
    """Write the state of a node."""
    watched = Watched(start_ns=BEGIN_NS, end_ns=BEGIN_NS + (day + 1) * DAY_NS)
    state = NodeState(
        host="", database=f"db-{node}", version="1", level="trace", kernel="6", clock=None, watched=watched,
        checkpoints=SAVES,
    )  # fmt: skip
    store.put(files.heartbeat_name(f"node-{node}", f"db-{node}"), msgspec.json.encode(state))


LATER = {  # a table of a later day from that of the first one
    files.DAYS: """
        SELECT * REPLACE (md5(uid || '{day}') AS uid, start_ns + {later} AS start_ns, end_ns + {later} AS end_ns,
            first_start_ns + {later} AS first_start_ns, step + {steps} AS step)
        FROM read_parquet('{old}', hive_partitioning = false)""",
    files.CLUSTER_CHECKPOINTS: """
        SELECT * REPLACE (struct_update(whole, uid := md5(whole.uid || '{day}'), start_ns := whole.start_ns + {later},
            end_ns := whole.end_ns + {later}, step := whole.step + {steps}) AS whole, '{day}' AS day)
        FROM read_parquet('{old}', hive_partitioning = false)""",
    files.CLUSTER_NODES: """
        SELECT * REPLACE (md5(uid || '{day}') AS uid, md5(checkpoint || '{day}') AS checkpoint,
            start_ns + {later} AS start_ns, end_ns + {later} AS end_ns)
        FROM read_parquet('{old}', hive_partitioning = false)""",
}


def copy(options: Namespace) -> None:
    """Make all days but the last of the first one."""
    days = [compaction.day_of(BEGIN_NS + one * DAY_NS) for one in range(options.days - 1)]
    with duckdb.connect(config={"memory_limit": "2GB"}) as connection:
        for number, day in enumerate(days):
            joined = json.dumps([f"{files.DAYS}/day={one}/copy.parquet" for one in compaction.neighbours(day)])
            for folder, query in LATER.items():
                name = "copy" if folder == files.DAYS else folder.rpartition("/")[2]
                new = Path(options.folder, "fleet", folder, f"day={day}", f"{name}.parquet")
                new.parent.mkdir(parents=True)
                old = f"{options.folder}/first/{folder}/day={days[0]}/*.parquet"
                words = {"day": day, "later": number * DAY_NS, "steps": number * SAVES * 100, "old": old}
                connection.execute(
                    f"COPY ({query.format(**words)}) TO '{new}' (FORMAT parquet, COMPRESSION zstd,"
                    f" KV_METADATA {{'{compaction.JOINED.decode()}': '{joined}'}})"
                )


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
    """Do one step; print what it took."""
    temporary = Path(options.folder) / "temporary"
    temporary.mkdir(exist_ok=True)
    store = FleetFiles(f"{options.folder}/{options.fleet}")
    began, cpu, counts, number = time.monotonic(), time.process_time(), counted(store), 0
    if options.child == "ship":
        number = ship(store, options.nodes, options.day)
    elif options.child == "copy":
        copy(options)
        for node in range(options.nodes):
            beat(store, node, options.days - 2)
    elif options.child == "compact":
        number = compaction.compact(store, keep_days=None, now_ns=0, progress=lambda _: None).rows
    else:
        tables, missing = open_fleet(store.url, temporary)
        number = tables.select(CheckpointQuery(), time.time_ns())
        tables.ask(options.child, questions.ANSWERS[options.child], by="job")
        assert not missing, missing
    told = {
        "what": f"{options.child} {options.fleet}" if options.child in ("ship", "compact") else options.child,
        "rows": number,
        **{name: counts[name] for name in ("names", "read", "put", "delete")},
        "seconds": round(time.monotonic() - began, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    print(json.dumps(told))


def main() -> None:
    """Ship and compact the first day, copy it, and ask; then with the last day open, and compacted."""
    arguments = parser(__doc__)
    arguments.add_argument("--nodes", type=int, default=1000)
    arguments.add_argument("--days", type=int, default=3)
    arguments.add_argument("--last", type=int, default=NODES_OF_RUN)
    arguments.add_argument("--folder", default=".build/fleet")
    arguments.add_argument("--fleet", default="fleet")
    arguments.add_argument("--day", type=int, default=0)
    arguments.add_argument("--child", default="")
    options = arguments.parse_args()
    if options.child:
        child(options)
        return
    shutil.rmtree(options.folder, ignore_errors=True)
    Path(options.folder).mkdir(parents=True)
    store, rows, notes = FleetFiles(f"{options.folder}/fleet"), [], []
    run("ship", options, fleet="first")
    rows.append(run("compact", options, fleet="first"))
    run("copy", options)
    rows += [run(question, options) for question in questions.ANSWERS]
    run("ship", options, nodes=options.last, day=options.days - 1)
    rows += [run(question, options) for question in questions.ANSWERS]
    rows.append(run("compact", options))
    rows += [run(question, options) for question in questions.ANSWERS]
    for folder in (files.DAYS, files.CLUSTER_CHECKPOINTS, files.CLUSTER_NODES):
        found = store.names(folder)
        number = sum(parquet.read_metadata(f"{options.folder}/fleet/{name}").num_rows for name in found)
        notes.append(f"{folder}: {len(found)} files, {number:,} rows, {sum(found.values()) / number:.0f} bytes a row")
    shutil.rmtree(options.folder)
    show("a fleet of files", rows, as_json=options.json, notes=notes)


def run(what: str, options: Namespace, **other: object) -> dict[str, Any]:
    """Do one step in a process of its own; return what it took."""
    words = [sys.executable, __file__, "--child", what]
    for name in ("folder", "fleet", "nodes", "days", "day"):
        words += [f"--{name}", str(other.get(name, getattr(options, name)))]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    main()
