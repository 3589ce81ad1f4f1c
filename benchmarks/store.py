"""Bytes per stored point, points stored per second of CPU, and what queries over the stored month cost.

716 series: 12 disks of 12, 10 NICs of 6 and 64 processes of 8 counters. Real-like: bursts of 90 s every 15 minutes, a
little noise between them. Worst case: every counter moves by a random 20-bit number each second. Minutes are written as
the agent writes them, then hours are compacted. The peers: SQLAlchemy Core's `executemany` of narrow rows (time,
series, value), and for size the blocks that promtool makes of the same points.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import BigInteger, Column, Integer, MetaData, Table, create_engine, insert

from ckptprof.model import Session
from ckptprof.store.reader import StoreReader
from ckptprof.store.timeline import WINDOW_NS, Window
from ckptprof.store.writer import StoreWriter
from figures import median, parser, show

SECOND_NS = 1_000_000_000
HOUR_NS = 3600 * SECOND_NS
ENTITIES = [(f"disk:nvme{n}n1", 12) for n in range(12)]
ENTITIES += [(f"nic:eth{n}", 6) for n in range(10)]
ENTITIES += [(f"process:{4000 + n}:77", 8) for n in range(64)]
SERIES = sum(width for _, width in ENTITIES)
Increment = Callable[[random.Random, int, bool], int]


def real(dice: random.Random, second: int, idle: bool) -> int:  # noqa: FBT001 - one of two kinds of increment
    """Return an increment as of a node that trains: 24 % of them are not zero, and whole sectors or pages."""
    if second % 900 < 90 and not idle:
        return dice.getrandbits(12) << 12
    return dice.getrandbits(5) << 3 if dice.random() < 0.18 else 0


def busy(dice: random.Random, _second: int, _idle: bool) -> int:  # noqa: FBT001 - likewise
    """Return an increment that no codec can do much about."""
    return dice.getrandbits(20)


class Node:
    """The counters of a node; gives them minute by minute."""

    def __init__(self, increment: Increment, seed: int = 7) -> None:
        """Start all at zero."""
        self._dice = random.Random(seed)  # noqa: S311 - made-up counters
        self._increment = increment
        self._totals = {entity: [self._dice.getrandbits(40) for _ in range(width)] for entity, width in ENTITIES}
        self._fields = {width: tuple(f"c{at}" for at in range(width)) for _, width in ENTITIES}

    def minute(self, start_ns: int) -> list[Window]:
        """Return one window per entity, of a point per second."""
        begin = start_ns // SECOND_NS
        windows = []
        for number, (entity, width) in enumerate(ENTITIES):
            totals = self._totals[entity]
            columns = [array("Q") for _ in range(width)]
            for second in range(begin, begin + 60):
                for at in range(width):
                    totals[at] += self._increment(self._dice, second, number % 3 == 2)
                    columns[at].append(totals[at])
            offset = self._dice.randrange(2_000_000)  # ticks do not fall on the second
            times = array("q", [second * SECOND_NS + offset for second in range(begin, begin + 60)])
            windows.append(Window(entity, start_ns, self._fields[width], times, tuple(columns)))
        return windows


def session(start_ns: int, end_ns: int) -> Session:
    """Return a life of the agent that covers these times."""
    return Session(
        uid="life", host="node-1", boot_id="boot", kernel="6.18", version="0", level="poll",
        start_ns=start_ns, end_ns=end_ns, clean=True,
    )  # fmt: skip


def minutes(increment: Increment, start_ns: int, hours: float) -> Iterator[list[Window]]:
    """Yield the minutes of a node."""
    node = Node(increment)
    for number in range(int(hours * 60)):
        yield node.minute(start_ns + number * WINDOW_NS)


def stored(path: Path, increment: Increment, hours: float) -> dict[str, Any]:
    """Write hours as the agent does and return what that took."""
    start_ns = time.time_ns() // HOUR_NS * HOUR_NS - int(hours + 3) * HOUR_NS
    writer = StoreWriter(path, ballast_bytes=0)
    writer.start_session(session(start_ns, start_ns + int(hours * HOUR_NS)))
    empty = path.stat().st_size
    spent = compacting = 0
    for windows in minutes(increment, start_ns, hours):
        before = time.process_time_ns()
        writer.add_windows(windows)
        spent += time.process_time_ns() - before
    before = time.process_time_ns()
    writer.maintain(start_ns + int((hours + 1) * HOUR_NS))
    compacting = time.process_time_ns() - before
    writer.close()
    with_pages = path.stat().st_size
    points = SERIES * int(hours * 3600)
    used = _used(path) - empty
    return {
        "points": points,
        "bytes_per_point": used / points,
        "file_bytes_per_point": (with_pages - empty) / points,
        "days30_mb": used / points * SERIES * 86400 * 30 / 1e6,
        "ingest_mpoints_per_cpu_s": points / (spent + compacting) * 1e3,
        "of_it_compacting": compacting / (spent + compacting),
    }


def _used(path: Path) -> int:
    engine = create_engine(f"sqlite:///{path}")
    with engine.connect() as connection:
        pages, free, size = (
            connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("page_count", "freelist_count", "page_size")
        )
    engine.dispose()
    return int((pages - free) * size)


def narrow(path: Path, increment: Increment, count: int) -> dict[str, Any]:
    """Store the first minutes as narrow rows by `executemany`, a transaction per 10 s."""
    engine = create_engine(f"sqlite:///{path}")
    metadata = MetaData()
    table = Table("points", metadata, Column("ts", BigInteger), Column("sid", Integer), Column("v", BigInteger))
    metadata.create_all(engine)
    spent = points = 0
    for windows in minutes(increment, 1_700_000_000 * SECOND_NS, count / 60):
        rows = _rows(windows)
        for start in range(0, len(rows), SERIES * 10):
            part = rows[start : start + SERIES * 10]
            before = time.process_time_ns()
            with engine.begin() as connection:
                connection.execute(insert(table), part)
            spent += time.process_time_ns() - before
        points += len(rows)
    engine.dispose()
    return {"bytes_per_point": path.stat().st_size / points, "ingest_mpoints_per_cpu_s": points / spent * 1e3}


def prometheus(directory: Path, increment: Increment, hours: float) -> float | None:
    """Return the bytes per sample of Prometheus's own blocks of the same points; None without promtool."""
    promtool = shutil.which("promtool")
    if promtool is None:
        return None
    begin_ns = time.time_ns() // (2 * HOUR_NS) * 2 * HOUR_NS - 48 * HOUR_NS
    text, blocks = directory / "points.txt", directory / "blocks"
    series: dict[tuple[str, int], list[str]] = {}
    for windows in minutes(increment, begin_ns, hours):
        for window in windows:
            for at, column in enumerate(window.columns):
                lines = series.setdefault((window.entity, at), [])
                lines += [
                    f"{value} {time_ns / 1e9:.3f}" for value, time_ns in zip(column, window.times_ns, strict=True)
                ]
    with text.open("w") as stream:
        stream.write("# TYPE node counter\n")
        for (entity, at), lines in series.items():
            stream.writelines(f'node_total{{entity="{entity}",field="{at}"}} {line}\n' for line in lines)
        stream.write("# EOF\n")
    subprocess.run(
        [promtool, "tsdb", "create-blocks-from", "openmetrics", str(text), str(blocks)], check=True, capture_output=True
    )
    size = sum(entry.stat().st_size for entry in blocks.rglob("*") if entry.is_file())
    return size / sum(map(len, series.values()))


def _rows(windows: Sequence[Window]) -> list[dict[str, int]]:
    rows = []
    for at in range(60):
        sid = 0
        for window in windows:
            for column in window.columns:
                rows.append({"ts": window.times_ns[at] // SECOND_NS, "sid": sid, "v": column[at] or 0})
                sid += 1
    return rows


def month(path: Path, days: float) -> tuple[int, int]:
    """Store `days` days of 12 disks and 10 NICs, by way of compacted hours; return when they begin and end."""
    end_ns = time.time_ns() // HOUR_NS * HOUR_NS
    start_ns = end_ns - round(days * 24) * HOUR_NS
    dice = random.Random(3)  # noqa: S311 - made-up counters
    writer = StoreWriter(path, ballast_bytes=0)
    writer.start_session(session(start_ns, end_ns))
    names = [(entity, width) for entity, width in ENTITIES if not entity.startswith("process")]
    for hour_ns in range(start_ns, end_ns, HOUR_NS):
        windows = []
        for entity, width in names:
            moved = [dice.getrandbits(24) if at % 900 < 90 else 0 for at in range(3600)]
            total, column = hour_ns // SECOND_NS << 20, array("Q")
            for step in moved:
                total += step
                column.append(total)
            times = array("q", range(hour_ns, hour_ns + HOUR_NS, SECOND_NS))
            fields = tuple(f"c{at}" for at in range(width))
            windows.append(Window(entity, hour_ns, fields, times, (column,) * width))
        writer.add_windows(windows)
        writer.maintain(hour_ns + 2 * HOUR_NS)
    writer.close()
    return start_ns, end_ns


def asked(path: Path, start_ns: int, end_ns: int, runs: int) -> list[dict[str, Any]]:
    """Return the medians of the queries that have a budget."""
    disks = [entity for entity, _ in ENTITIES if entity.startswith("disk")]
    with StoreReader(path) as reader:

        def last_hour() -> int:
            return len(reader.series(disks[0], end_ns - HOUR_NS, end_ns).times_ns)

        def whole_month() -> int:
            return sum(len(reader.series(disk, start_ns, end_ns, step_seconds=60).times_ns) for disk in disks)

        rows = []
        for name, query, budget in (
            ("last hour of one device at 1 s", last_hour, 5),
            ("all days of 12 devices at 1 min", whole_month, 100),
        ):
            spent = []
            for _ in range(runs):
                before = time.perf_counter()
                points = query()
                spent.append((time.perf_counter() - before) * 1e3)
            rows.append(
                {"query": name, "points": points, "ms": median(spent), "first_ms": spent[0], "budget_ms": budget}
            )
    return rows


def main() -> None:
    """Measure and print."""
    arguments = parser(__doc__)
    arguments.add_argument("--hours", type=float, default=6, help="of stored history; extrapolated to 30 days")
    arguments.add_argument("--days", type=float, default=30, help="of history for the queries")
    arguments.add_argument("--narrow-minutes", type=int, default=3)
    arguments.add_argument("--runs", type=int, default=9)
    options = arguments.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="ckptprof-bench-") as directory:
        for name, increment in (("real-like", real), ("worst case", busy)):
            ours = stored(Path(directory) / f"{name}.db", increment, options.hours)
            theirs = narrow(Path(directory) / f"{name}-narrow.db", increment, options.narrow_minutes)
            peer = prometheus(Path(directory), increment, min(options.hours, 1))
            shutil.rmtree(Path(directory) / "blocks", ignore_errors=True)
            rows.append(
                {
                    "data": name,
                    **ours,
                    "prometheus_bytes_per_point": peer,
                    "size_ratio": ours["bytes_per_point"] / peer if peer else None,
                    "narrow_bytes_per_point": theirs["bytes_per_point"],
                    "narrow_mpoints_per_cpu_s": theirs["ingest_mpoints_per_cpu_s"],
                    "ingest_ratio": ours["ingest_mpoints_per_cpu_s"] / theirs["ingest_mpoints_per_cpu_s"],
                }
            )
        path = Path(directory) / "month.db"
        queries = asked(path, *month(path, options.days), options.runs)
    show(f"store, {SERIES} series at 1 s", rows, as_json=options.json)
    show(f"store, queries over {options.days:g} days", queries, as_json=options.json)


if __name__ == "__main__":
    main()
