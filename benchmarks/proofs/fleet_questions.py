"""What questions of a large fleet cost on the PostgreSQL server that nodes ship to, and what its rows cost.

Rows are made on the server out of a few that a node has really shipped: each node saves so many times a day, in runs of
64 nodes. Each view is asked for all of it, with its plan.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from ckptprof.service.shipping.shipper import Shipper, to_server
from ckptprof.store.fleet.server_views import VIEWS
from ckptprof.store.fleet.target import parse_target

sys.path[:0] = [str(folder) for folder in Path(__file__).resolve().parents[1:3]]
from tests.cluster.nodes import GOOD, Job  # noqa: E402 - likewise
from tests.cluster.test_commands import write  # noqa: E402 - likewise
from tests.postgres import Server, served  # noqa: E402 - likewise

from figures import parser, show  # noqa: E402 - found by the line above

NODES_OF_A_RUN = 64
_DAY_NS = 86_400_000_000_000
_MAKE = """INSERT INTO ckptprof.checkpoints (first_start_ns, node, uid, revision, detail)
SELECT start_ns, 'node-' || n, 'made-' || n || '-' || start_ns, 1, detail || jsonb_build_object(
    'id', save, 'step', save * 100, 'job', 'job-' || n / {run}, 'start_ns', start_ns, 'durable_ns', NULL,
    'end_ns', start_ns + 8000000000 + (random() * 1e9)::bigint + CASE WHEN n % 97 = 5 THEN 4000000000 ELSE 0 END,
    'uid', 'made-' || n || '-' || start_ns,
    'run', (detail->'run') || jsonb_build_object('key', 'slurm:alpha/' || 10000 + n / {run}, 'node', n % {run},
        'nodes', {run}, 'user', 'user-' || n / {run} % 40, 'account', 'team-' || n / {run} % 8))
FROM (SELECT detail FROM ckptprof.checkpoints WHERE node LIKE 'train%' LIMIT 1) AS real,
    generate_series(0, {nodes} - 1) AS n, generate_series({first}, {last}) AS save,
    LATERAL (SELECT {day_ns} + (save % {saves})::bigint * ({day} / {saves}) + (random() * 1e8)::bigint AS start_ns
    ) AS at"""

_LIKE = """INSERT INTO ckptprof.{table} SELECT (jsonb_populate_record(NULL::ckptprof.{table},
    to_jsonb(one) || jsonb_build_object('node', 'node-' || n))).*
FROM (SELECT * FROM ckptprof.{table} LIMIT 1) AS one, generate_series(0, {nodes} - 1) AS n"""


def main(argv: Sequence[str] | None = None) -> None:
    """Print one line of figures for each question, and its plan."""
    options = parser(__doc__)
    options.add_argument("--nodes", type=int, default=1000)
    options.add_argument("--days", type=int, default=30)
    options.add_argument("--saves", type=int, default=24, help="of each node and day")
    options.add_argument("--jit", action="store_true", help="let the server compile, as it does by default")
    options.add_argument("--work-mem", default="64MB", help="of the server, for each sort")
    options.add_argument("--plans", action="store_true", help="print them")
    given = options.parse_args(argv)
    plans: list[str] = []
    with served() as server:
        fleet = server.database()
        server.ask(f"ALTER DATABASE {fleet} SET jit = {'on' if given.jit else 'off'}")
        server.ask(f"ALTER DATABASE {fleet} SET work_mem = '{given.work_mem}'")
        _shipped(server, fleet)
        made = _made(server, fleet, given.nodes, given.days, given.saves)
        rows = []
        for view in VIEWS:
            rows.append(_asked(server, fleet, view))
            plans += [f"\n{view}", *_plan(server, fleet, view)] if given.plans else []
    show("fleet_questions", rows, as_json=given.json, notes=[made, *plans])


def _shipped(server: Server, fleet: str) -> None:
    """Ship a real job, whose rows are the pattern."""
    records, _ = Job(nodes=2, saves=2, clocks=dict.fromkeys(range(2), GOOD)).seen()
    with tempfile.TemporaryDirectory() as folder:
        for db in write(Path(folder) / "nodes", records):
            Shipper(db, to_server(parse_target(server.url(fleet))), names=True).send()


def _made(server: Server, fleet: str, nodes: int, days: int, saves: int) -> str:
    """Make the rows of all days; return what that took."""
    today_ns = time.time_ns() // _DAY_NS * _DAY_NS
    begun = time.monotonic()
    for day in range(days):
        day_ns = today_ns - (days - 1 - day) * _DAY_NS
        server.ask(f"SELECT ckptprof.add_day({day_ns})", fleet)
        values = {"run": NODES_OF_A_RUN, "nodes": nodes, "saves": saves, "day": _DAY_NS, "day_ns": day_ns}
        server.ask(_MAKE.format(first=day * saves, last=day * saves + saves - 1, **values), fleet)
    seconds = time.monotonic() - begun
    for table in ("nodes", "sessions"):
        server.ask(_LIKE.format(table=table, nodes=nodes), fleet)
    server.ask("VACUUM ANALYZE ckptprof.checkpoints", fleet)
    rows = nodes * days * saves
    ((size,),) = server.ask(f"SELECT pg_database_size('{fleet}')::int8")
    return f"{rows:,} rows at {rows / seconds:,.0f} a second, {int(str(size)) / rows:,.0f} bytes each"


def _asked(server: Server, fleet: str, view: str) -> dict[str, object]:
    """Ask for all of it three times; return the least that it took, and how much was found."""
    took = []
    statement = f"SELECT count(found::text) FROM ckptprof.{view} AS found"  # noqa: S608 # all columns of all rows
    for _ in range(3):
        begun = time.monotonic()
        ((found,),) = server.ask(statement, fleet)
        took.append(time.monotonic() - begun)
    return {"view": view, "rows": found, "seconds": min(took)}


def _plan(server: Server, fleet: str, view: str) -> list[str]:
    statement = f"EXPLAIN (ANALYZE, BUFFERS) SELECT * FROM ckptprof.{view}"  # noqa: S608 # our own names
    return [str(line) for (line,) in server.ask(statement, fleet)]


if __name__ == "__main__":
    main()
