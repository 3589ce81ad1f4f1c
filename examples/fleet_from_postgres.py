r"""Take the checkpoints of a PostgreSQL server, to which nodes shipped before 0.2, along to a fleet of files.

psql URL -c "\copy (SELECT node, revision, first_start_ns, detail FROM ckptprof.checkpoints) TO 'fleet.csv' CSV HEADER"
python fleet_from_postgres.py fleet.csv s3://bucket/ckptprof
ckptprof fleet compact --db s3://bucket/ckptprof
"""

from __future__ import annotations

import csv
import sys
from itertools import islice
from typing import Any

import msgspec

from ckptprof.fleet import files, schema
from ckptprof.fleet.files import FleetFiles
from ckptprof.store.checkpoint_rows import decode_checkpoint

DATABASE = "postgres"
ROWS = 1000  # of a file


def main(dump: str, url: str) -> None:
    """Write an inbox for each node of a dump."""
    csv.field_size_limit(1 << 24)
    store, number = FleetFiles(url), 0
    with open(dump, encoding="utf-8", newline="") as lines:  # noqa: PTH123 # as typed
        rows = csv.DictReader(lines)
        while some := list(islice(rows, ROWS)):
            by_node: dict[str, list[dict[str, Any]]] = {}
            for row in some:
                numbers = {name: int(row[name]) for name in ("revision", "first_start_ns")}
                checkpoint = msgspec.structs.asdict(decode_checkpoint(row["detail"]))
                by_node.setdefault(row["node"], []).append({**checkpoint, **numbers, "database": DATABASE, "lost": 0})
            for node, mine in by_node.items():
                name = f"{files.inbox_folder(node)}/{DATABASE}-{number}-{number + len(some)}.parquet"
                store.put(name, files.to_parquet(schema.table_of(mine, schema.ShippedRow)))
            number += len(some)
    print(f"{number} checkpoints written")


if __name__ == "__main__":
    main(*sys.argv[1:])
