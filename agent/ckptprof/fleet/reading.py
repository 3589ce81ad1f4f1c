"""The tables of a fleet for its questions: compacted days, and what inboxes have beside them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from ckptprof.cluster.model import NodeState
from ckptprof.errors import StoreError
from ckptprof.fleet import files, schema
from ckptprof.fleet.compaction import JOIN_KEY, DayRow, Joiner, day_of, neighbours, read_inbox, read_states
from ckptprof.fleet.files import FleetFiles
from ckptprof.fleet.questions import FleetDatabase, translated_errors

_TRIES = 5
MAX_JOINED_ROWS = 200_000  # that a question joins by itself: of inboxes, and of the same runs around them


def open_fleet(url: str, temporary: Path) -> tuple[FleetDatabase, list[str]]:
    """Return the tables of a fleet, and what of it is missing there, one line each; raises StoreError."""
    store = FleetFiles(url)
    for _ in range(_TRIES):
        names = _merged_names(store)
        try:
            tables, missing = _read(store, names, temporary)
        except StoreError:
            if _merged_names(store).keys() >= names.keys():
                raise
            continue  # `compact` deleted what it had merged
        if _merged_names(store).keys() >= names.keys():
            return tables, missing
        tables.close()
    raise StoreError(f"{url} changes while it is read", hint="wait until `ckptprof fleet compact` is done")


def _merged_names(store: FleetFiles) -> dict[str, int]:
    """Return the files that `compact` deletes."""
    return {**store.names(files.INBOX), **store.names(files.DAYS)}


@translated_errors()
def _read(store: FleetFiles, names: dict[str, int], temporary: Path) -> tuple[FleetDatabase, list[str]]:
    inbox = {name: size for name, size in names.items() if name.startswith(f"{files.INBOX}/")}
    days = [name for name in files.parquet_files(names) if name not in inbox]
    compacted = [store.names(folder) for folder in (files.CLUSTER_CHECKPOINTS, files.CLUSTER_NODES)]
    states, missing = read_states(store, files.heartbeat_files(inbox))
    database = FleetDatabase(temporary)
    connection = database.connection
    for name, row, found in zip(
        ("compacted_checkpoints", "compacted_nodes"), (schema.FleetCheckpoint, schema.FleetNode), compacted, strict=True
    ):
        database.add_files(name, store, files.parquet_files(found), row)
    rejoined, checkpoints, nodes = _join_inbox(store, inbox, days, states, missing)
    connection.register("rejoined", rejoined)
    connection.register("open_checkpoints", checkpoints)
    connection.register("open_nodes", nodes)
    connection.execute(
        "CREATE TEMP VIEW cluster_checkpoints AS SELECT * FROM compacted_checkpoints"
        " WHERE (day, join_key) NOT IN (SELECT day, join_key FROM rejoined)"
        " UNION ALL BY NAME SELECT * FROM open_checkpoints"
    )
    connection.execute(
        "CREATE TEMP VIEW cluster_nodes AS SELECT * FROM compacted_nodes"
        " WHERE checkpoint NOT IN (SELECT checkpoint FROM open_nodes) UNION ALL BY NAME SELECT * FROM open_nodes"
    )
    connection.register("node_states", schema.node_table(states))
    return database, missing


def _join_inbox(
    store: FleetFiles, inbox: dict[str, int], days: Sequence[str], states: Sequence[NodeState], missing: list[str]
) -> tuple[Any, Any, Any]:
    """Join what is in inboxes with the days around it: the days and keys, their checkpoints and the nodes of these."""
    columns = schema.table_schema(DayRow)
    fresh = pa.concat_tables(
        [columns.empty_table(), *(rows.select(columns.names) for _, rows in read_inbox(store, inbox, missing))]
    )
    touched = {day_of(at_ns or 0) for at_ns in fresh.column("first_start_ns").to_pylist()}
    affected = sorted({near for day in touched for near in neighbours(day)})
    around = {near for day in affected for near in neighbours(day)}
    old = [name for name in days if files.partition_of(name) in around]
    checkpoints = [schema.table_schema(schema.FleetCheckpoint).empty_table()]
    nodes = [schema.table_schema(schema.FleetNode).empty_table()]
    with TemporaryDirectory(prefix="ckptprof-fleet-") as folder:
        joiner = Joiner(states, Path(folder))
        joiner.connection.register("fresh", fresh)
        joiner.database.add_files("old", store, old, DayRow)
        # A revision may have another key than the one before it
        joiner.connection.execute(
            f"CREATE TEMP TABLE keys AS SELECT {JOIN_KEY} AS join_key FROM fresh UNION SELECT {JOIN_KEY} FROM old"  # noqa: S608 # our own names
            ' WHERE (node, "database", uid) IN (SELECT (node, "database", uid) FROM fresh)'
        )
        keys = "SELECT join_key FROM keys"
        (number,) = joiner.connection.execute(
            f"SELECT count(*) + (SELECT count(*) FROM fresh) FROM old WHERE {JOIN_KEY} IN ({keys})"  # noqa: S608 # our own names
        ).fetchall()[0]
        if number > MAX_JOINED_ROWS:
            missing.append(f"{store.url}: what was shipped since the last `ckptprof fleet compact`")
            affected = []
        for day in affected:
            near = set(neighbours(day))
            some = [name for name in old if files.partition_of(name) in near]
            joiner.database.add_files("days", store, some, DayRow)
            for key, merged in joiner.join("(SELECT * FROM fresh UNION ALL BY NAME SELECT * FROM days)", day, keys):
                for tables, table in zip((checkpoints, nodes), schema.cluster_tables(merged, day, key), strict=True):
                    tables.append(table)
        pairs = [
            {"day": day, "join_key": key} for day in affected for (key,) in joiner.connection.execute(keys).fetchall()
        ]
        joiner.database.close()
    return (
        pa.Table.from_pylist(pairs, schema=pa.schema([("day", pa.string()), ("join_key", pa.string())])),
        pa.concat_tables(checkpoints),
        pa.concat_tables(nodes),
    )
