"""What a fleet of files costs: compaction and each question, in seconds, memory and requests.

    python benchmarks/fleet.py --nodes 10240 --days 30      # 29.5 million rows

Each node saves 96 times a day, in runs of 64 nodes with 8 ranks each. A day of at most 1,024 nodes is made of one
recorded save, shipped (in one file a node: a node writes 96 small ones) and compacted. Tables of other nodes and days
are copies of it, with other names, uids and times; of v1/days only the newest copy is made, which the last day is
joined with. Questions are answered by days alone, and with a last day of 64 nodes in inboxes; that is compacted then.
Each step is a process of its own.
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
from itertools import product
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

STEP: dict[str, Any] = {"nodes": 1000, "days": 3, "day": 0, "fleet": "fleet"}
SAVES, NODES_OF_RUN, RANKS, SOME = 96, 64, 8, 1024
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
            "uid": f"{dice.getrandbits(128):032x}", "id": day * SAVES + save + 1, "job": f"run-0{run}", "step": step,
            "start_ns": start_ns, "end_ns": end_ns, "stall_ns": end_ns - start_ns, "path": f"/ckpt/{run}/step_{step}",
            "ranks": RANKS * NODES_OF_RUN,
            "run": msgspec.to_builtins(
                Run(key=f"slurm:alpha/0{run}.0", scheduler="slurm", job=str(run), nodes=NODES_OF_RUN, node=place)
            ),
            "place": msgspec.to_builtins(Place(key=f"nfs:filer:/ckpt:{run * 10**6 + step}", shared=True)),
            "clock": msgspec.to_builtins(Clock(synchronised=True, bound_ns=10_000_000)),
            "writers": [
                {**base["writers"][0], "pid": 100 + rank, "rank": RANKS * place + rank, "end_ns": end_ns}
                for rank in range(RANKS)
            ],
            "database": "db", "first_start_ns": start_ns, "revision": 2, "lost": 0,
        }  # fmt: skip
        yield base


def ship(store: FleetFiles, nodes: int, day: int) -> None:
    """Write the inboxes of a day."""
    dice = random.Random(day)  # noqa: S311 - made-up checkpoints
    for node in range(nodes):
        table = schema.table_of(rows_of(node, day, dice), schema.ShippedRow)
        host = f"node-0{node}"
        store.put(f"{files.inbox_folder(host)}/db-{day}-{day + 1}.parquet", files.to_parquet(table))
        beat(store, host, day)


def beat(store: FleetFiles, host: str, day: int) -> None:
    """Write the state of a node."""
    watched = Watched(start_ns=BEGIN_NS, end_ns=BEGIN_NS + (day + 1) * DAY_NS)
    state = NodeState(
        host=host, database="db", version="1", level="trace", kernel="6", clock=None, watched=watched,
        checkpoints=SAVES,
    )  # fmt: skip
    path = Path(store.path(files.heartbeat_name(host, "db")))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(state))


_MACROS = """
    CREATE MACRO other(name, g) AS regexp_replace(name, '(node-|run-|alpha/)0', '\\1' || g);
    CREATE MACRO later(ns) AS ns + getvariable('number') * 86400000000000;
    CREATE MACRO another(uid, g) AS md5(uid || getvariable('number') || ' ' || g)"""
_OTHERS = {  # the tables of all nodes on a later day, of those of some nodes on the first one (v1/days of the last)
    files.DAYS: """
        another(uid, g) AS uid, later(start_ns) AS start_ns, later(end_ns) AS end_ns,
        later(first_start_ns) AS first_start_ns, step + getvariable('number') * 9600 AS step, other(node, g) AS node,
        other(job, g) AS job, struct_update(run, "key" := other(run."key", g)) AS run""",
    files.CLUSTER_CHECKPOINTS: """
        struct_update(whole, uid := another(whole.uid, g), start_ns := later(whole.start_ns),
            end_ns := later(whole.end_ns), step := whole.step + getvariable('number') * 9600,
            job := other(whole.job, g), run := struct_update(whole.run, "key" := other(whole.run."key", g))) AS whole,
        other(run_key, g) AS run_key, other(job_key, g) AS job_key, other(join_key, g) AS join_key,
        getvariable('day') AS day""",
    files.CLUSTER_NODES: """
        another(uid, g) AS uid, another(checkpoint, g) AS checkpoint, other(host, g) AS host,
        later(start_ns) AS start_ns, later(end_ns) AS end_ns""",
}


def copy(options: Namespace) -> None:
    """Make all nodes and days but the last of some nodes on the first day, and the states of all nodes."""
    some = min(options.nodes, SOME)
    days = [compaction.day_of(BEGIN_NS + one * DAY_NS) for one in range(options.days - 1)]
    with duckdb.connect(config={"memory_limit": "2GB", "threads": 1}) as connection:
        connection.execute(_MACROS)
        for number, day in enumerate(days):
            connection.execute(f"SET VARIABLE day = '{day}'; SET VARIABLE number = {number}")
            joined = json.dumps([f"{files.DAYS}/day={one}/days.parquet" for one in compaction.neighbours(day)])
            for folder, columns in [*_OTHERS.items()][day != days[-1] :]:
                new = Path(options.folder, "fleet", folder, f"day={day}", f"{folder.rpartition('/')[2]}.parquet")
                new.parent.mkdir(parents=True)
                old = f"{options.folder}/first/{folder}/day={days[0]}/*.parquet"
                connection.execute(
                    f"COPY (SELECT old.* REPLACE ({columns}) FROM range({options.nodes // some}) AS groups(g),"  # noqa: S608 - ours
                    f" read_parquet('{old}', hive_partitioning = false) AS old) TO '{new}' (FORMAT parquet,"
                    f" COMPRESSION zstd, KV_METADATA {{'{compaction.JOINED.decode()}': '{joined}'}})"
                )
    for node, group in product(range(some), range(options.nodes // some)):
        beat(FleetFiles(f"{options.folder}/fleet"), f"node-{group}{node}", options.days - 2)


def counted() -> Counter[str]:
    """Count what stores are asked from now on; files that engines open themselves are not counted."""
    counts: Counter[str] = Counter()
    for name in ("put", "read", "names", "_delete"):
        method = getattr(FleetFiles, name)

        def count(*given: Any, name: str = name, method: Any = method) -> Any:
            counts[name] += 1
            return method(*given)

        setattr(FleetFiles, name, count)
    return counts


def child(options: Namespace) -> None:
    """Do one step; print what it took."""
    store = FleetFiles(f"{options.folder}/{options.fleet}")
    began, cpu, counts, number = time.monotonic(), time.process_time(), counted(), 0
    if options.child == "ship":
        ship(store, options.nodes, options.day)
    elif options.child == "copy":
        copy(options)
    elif options.child == "compact":
        number = compaction.compact(store, keep_days=None, now_ns=0, progress=lambda _: None).rows
    else:
        tables, missing = open_fleet(store.url, Path(options.folder))
        number = tables.select(CheckpointQuery(), time.time_ns())
        tables.ask(options.child, questions.ANSWERS[options.child], by="job")
        assert not missing, missing
    told = {
        "what": options.child,
        "rows": number,
        **{name: counts[name] for name in ("names", "read", "put", "_delete")},
        "seconds": round(time.monotonic() - began, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    print(json.dumps(told))


def main() -> None:
    """Ship and compact the first day, copy it, and ask; then with the last day open, and compacted."""
    arguments = parser(__doc__)
    for name, value in {"folder": ".build/fleet", **STEP}.items():
        arguments.add_argument(f"--{name}", type=type(value), default=value)
    arguments.add_argument("--child", default="")
    options = arguments.parse_args()
    if options.child:
        child(options)
        return
    shutil.rmtree(options.folder, ignore_errors=True)
    Path(options.folder).mkdir(parents=True)
    store, notes = FleetFiles(f"{options.folder}/fleet"), []
    run("ship", options, fleet="first", nodes=min(options.nodes, SOME))
    rows = [run("compact", options, fleet="first")]
    run("copy", options)
    rows += [run(question, options) for question in questions.ANSWERS]
    run("ship", options, nodes=NODES_OF_RUN, day=options.days - 1)
    rows += [run(what, options) for what in (*questions.ANSWERS, "compact", *questions.ANSWERS)]
    for folder in (files.DAYS, files.CLUSTER_CHECKPOINTS, files.CLUSTER_NODES):
        found = store.names(folder)
        number = sum(parquet.read_metadata(f"{options.folder}/fleet/{name}").num_rows for name in found)
        notes.append(f"{folder}: {len(found)} files, {number:,} rows, {sum(found.values()) / number:.0f} bytes a row")
    shutil.rmtree(options.folder)
    show("a fleet of files", rows, as_json=options.json, notes=notes)


def run(what: str, options: Namespace, **other: object) -> dict[str, Any]:
    """Do one step in a process of its own; return what it took."""
    words = [sys.executable, __file__, "--child", what]
    for name in ("folder", *STEP):
        words += [f"--{name}", str(other.get(name, getattr(options, name)))]
    return dict(json.loads(subprocess.check_output(words)))


if __name__ == "__main__":
    main()
