"""Questions to the fleet: SQL files run by DuckDB, embedded, in memory and without extensions or network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import msgspec
import pyarrow as pa
from pyarrow import dataset

from ckptprof.cluster import answers
from ckptprof.cluster.model import ClusterCheckpoint, NodeRecord, NodeState
from ckptprof.errors import StoreError
from ckptprof.fleet import schema
from ckptprof.fleet.files import FleetFiles
from ckptprof.model import CheckpointQuery

_SQL = Path(__file__).parent / "sql"
_MEMORY_LIMIT = "1500MB"  # more is spilled to a temporary folder
_SETTINGS = {
    "autoinstall_known_extensions": "false",  # would connect to a server
    "autoload_known_extensions": "false",
    "memory_limit": _MEMORY_LIMIT,
}
ANSWERS: dict[str, type[answers.FleetAnswer]] = {
    "stragglers": answers.Stragglers,
    "cost": answers.Costs,
    "limits": answers.Limits,
    "newest": answers.NewestSteps,
    "collisions": answers.Collisions,
    "nodes": answers.Nodes,
}
_Type = TypeVar("_Type")


def node_state(record: NodeRecord) -> NodeState:
    """Return the state of the recorder of a node's database."""
    session = record.session
    last = max(record.checkpoints, key=lambda one: one.end_ns, default=None)
    return NodeState(
        host=record.host,
        database=record.database,
        version=None if session is None else session.version,
        level=None if session is None else session.level,
        kernel=None if session is None else session.kernel,
        clock=None if last is None else last.clock,
        watched=record.watched,
        checkpoints=len(record.checkpoints),
    )


@contextmanager
def translated_errors() -> Iterator[None]:
    """Turn what DuckDB and pyarrow raise within into a StoreError."""
    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError) as error:  # a full disk, a damaged file, one that is gone
        raise StoreError(str(error).partition("\n")[0]) from error


class FleetDatabase:
    """The tables of a fleet, and answers from them; every method raises CkptprofError with one clear line."""

    def __init__(self, temporary: Path | None = None) -> None:
        """`temporary`: the folder for what does not fit in memory."""
        where = {} if temporary is None else {"temp_directory": str(temporary)}
        self.connection = duckdb.connect(config={**_SETTINGS, **where})

    def close(self) -> None:
        """Close it."""
        self.connection.close()

    def add_files(self, name: str, store: FleetFiles, found: Sequence[str], row: type) -> None:
        """Add files as a view; null where a column is missing. DuckDB reads local ones itself."""
        rows, paths = schema.table_schema(row).empty_table(), [store.path(one) for one in found]
        query = f"CREATE OR REPLACE TEMP VIEW {name} AS FROM {name}_rows"
        if store.is_local and paths:
            quoted = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
            query += f" UNION ALL BY NAME FROM read_parquet([{quoted}], union_by_name = true, hive_partitioning = 0)"
        elif paths:
            rows = dataset.dataset(paths, schema=rows.schema, format="parquet", filesystem=store.filesystem)
        self.connection.register(f"{name}_rows", rows)
        self.connection.execute(query)

    def add_merged(self, merged: Iterable[ClusterCheckpoint], states: Iterable[NodeState]) -> None:
        """Add the tables of checkpoints that were merged in memory."""
        checkpoints, nodes = schema.cluster_tables(merged)
        self.connection.register("cluster_checkpoints", checkpoints)
        self.connection.register("cluster_nodes", nodes)
        self.connection.register("node_states", schema.node_table(states))

    @translated_errors()
    def select(self, query: CheckpointQuery, now_ns: int) -> int:
        """Restrict all further answers to a query; return the number of matching checkpoints."""
        words = {"since_ns": query.since_ns, "until_ns": query.until_ns, "job": query.job}
        self._set(**words, kind=None if query.kind is None else query.kind.value, oldest_ns=None, now_ns=now_ns)
        self.connection.execute((_SQL / "views.sql").read_text())
        if query.limit is not None:
            oldest = self.connection.execute(
                "SELECT start_ns, uid FROM checkpoints ORDER BY start_ns DESC, uid DESC LIMIT 1 OFFSET ?",
                [query.limit - 1],
            ).fetchall()
            if oldest:
                self._set(oldest_ns=oldest[0][0], oldest_uid=oldest[0][1])
        return int(self.connection.execute("SELECT count(*) FROM checkpoints").fetchall()[0][0])

    @translated_errors()
    def ask(self, question: str, of: type[_Type], **variables: object) -> _Type:
        """Return the answer to a question."""
        self._set(**{"by": None, "split_ns": None, "zone_seconds": 0, **variables})
        found = self.connection.execute((_SQL / f"{question}.sql").read_text())
        row = dict(zip([one[0] for one in found.description], found.fetchall()[0], strict=True))
        return msgspec.convert(row, of)

    def _set(self, **variables: Any) -> None:
        for name, value in variables.items():
            self.connection.execute(f'SET VARIABLE "{name}" = ?', [value])
