"""The schema's history: each released schema, and the migration to the next.

The schema of 0.1.0 has the number 4. Databases of versions between releases are refused: a recorder sets them aside.
"""

from __future__ import annotations

from sqlite3 import Connection
from typing import NamedTuple

from ckptprof.errors import StoreError
from ckptprof.store.connection import transaction
from ckptprof.store.problems import REPLACE_HINT, StoreDamagedError
from ckptprof.store.sql import BLOCK_TABLES, compiled

APPLICATION_ID = 0x434B5054  # "CKPT": by which file(1) and ckptprof recognise the databases
LATEST_SCHEMA = 13


class MigrationStep(NamedTuple):
    """A change of the schema."""

    to: int
    statements: tuple[str, ...]


# No view calls json_extract: that fails for readers that do not trust the schema (PRAGMA trusted_schema = OFF), such as
# our own; json_tree may be used there. No column of a view is called like a keyword of SQL.
_VIEWS = (
    """CREATE VIEW v_checkpoints AS SELECT
        id, kind, status, job, framework, step, ranks, start_ns / 1e9 AS start_time, end_ns / 1e9 AS end_time,
        committed_ns / 1e9 AS committed_time, durable_ns / 1e9 AS durable_time,
        (end_ns - start_ns) / 1e9 AS duration_seconds,
        CASE kind WHEN 'save' THEN
            max(0, durable_ns - coalesce(committed_ns, end_ns)) / 1e9
        END AS at_risk_seconds,
        bytes, bytes * 1e9 / max(end_ns - start_ns, 1) AS bytes_per_second, files, path, mode,
        stall_ns / 1e9 AS stall_seconds, written_bytes, unique_bytes,
        CASE kind WHEN 'save' THEN written_bytes * 1.0 / nullif(unique_bytes, 0) END AS write_amplification,
        storage_bytes, cache, pattern_class, level, confidence,
        "limit" AS limited_by, limit_seconds, limit_confidence, expected_seconds, gpu_seconds FROM checkpoints""",
    """CREATE VIEW v_accounts AS SELECT
        checkpoints.id AS checkpoint_id,
        max(CASE part.key WHEN 'limit' THEN part.atom END) AS limited_by,
        max(CASE part.key WHEN 'seconds' THEN part.atom END) AS seconds,
        max(CASE part.key WHEN 'text' THEN part.atom END) AS text
        FROM checkpoints, json_tree(checkpoints.verdict, '$.accounts') AS part
        WHERE part.key IN ('limit', 'seconds', 'text') GROUP BY checkpoints.id, part.path""",
    """CREATE VIEW v_ranks AS SELECT
        checkpoint_id, rank, pid, comm, role, bytes, start_ns / 1e9 AS start_time, end_ns / 1e9 AS end_time
        FROM writers""",
    """CREATE VIEW v_devices AS SELECT
        checkpoint_id, device, kind, under, read_bytes, written_bytes, busy_seconds, requests, mean_request_bytes,
        sequential_share_bytes, latency_p50_seconds, latency_p99_seconds, max_in_flight FROM devices""",
    """CREATE VIEW v_annotations AS SELECT
        id AS checkpoint_id, start_ns / 1000000 AS time, end_ns / 1000000 AS time_end,
        kind || coalesce(' of step ' || step, '') || ' by ' || job || coalesce(': ' || "limit", '') AS text,
        kind || coalesce(',' || "limit", '') AS tags FROM checkpoints""",
    """CREATE VIEW v_sessions AS SELECT
        id, host, kernel, version, level, start_ns / 1e9 AS start_time, end_ns / 1e9 AS end_time, clean,
        dropped_frames FROM sessions""",
)
_ADDED_COLUMNS = (
    "blocked TEXT NOT NULL DEFAULT '[]'", "committed_ns INTEGER", '"limit" TEXT', "limit_seconds REAL",
    "limit_confidence REAL", "expected_seconds REAL", "gpu_seconds REAL", "progress BLOB",
    "progress_left_out INTEGER NOT NULL DEFAULT 0", "sent TEXT", "run TEXT", "place TEXT", "clock TEXT",
    "owner INTEGER", "stored_bytes INTEGER NOT NULL DEFAULT 5600",
)  # fmt: skip
_CREATE_ALL = (
    *compiled.TABLES.values(),
    *map(compiled.BLOCK_TABLE.format, BLOCK_TABLES),
    *compiled.INDEXES.values(),
    *_VIEWS,
)
_FROM_SCHEMA_4 = (
    *(f"ALTER TABLE checkpoints ADD COLUMN {column}" for column in _ADDED_COLUMNS),
    # In one pass, as each one rewrites a large database. A verdict of an older version may be known to be wrong by now:
    # its word is marked, and its gain left out.
    """UPDATE checkpoints SET
        committed_ns = iif(json_valid(moments), json_extract(moments, '$.committed_ns'), NULL),
        gpu_seconds = iif(json_valid(cost), json_extract(cost, '$.gpu_seconds'), NULL),
        "limit" = iif(json_valid(verdict), json_extract(verdict, '$.limit'), NULL),
        limit_seconds = iif(json_valid(verdict), json_extract(verdict, '$.seconds'), NULL),
        limit_confidence = iif(json_valid(verdict), json_extract(verdict, '$.confidence'), NULL),
        verdict = iif(json_valid(verdict), json_set(replace(verdict, '"lacking":', '"missing":'), '$.sentence',
            json_extract(verdict, '$.sentence') || ' (Decided by an older ckptprof.)', '$.expected_seconds', NULL),
            verdict),
        pattern = replace(pattern, '"order_seen_share_bytes":', '"order_known_share_bytes":'),
        measures = replace(replace(replace(measures, '"held_ns":', '"blocked_ns":'), '"looks":', '"samples":'),
            '"looks_in":', '"samples_by_state":')""",
    "UPDATE evidence SET name = 'cut-at-start' WHERE name = 'cut-at-begin'",
    "PRAGMA writable_schema = ON",  # else a broken view of a user stops a renaming
    "ALTER TABLE checkpoints RENAME COLUMN blind TO limitations",
    "ALTER TABLE streams RENAME COLUMN seen_by TO observed_by",
    "ALTER TABLE entities RENAME COLUMN seen_ns TO observed_ns",
    "PRAGMA writable_schema = OFF",
    compiled.TABLES["pending"],
    compiled.TABLES["outbox"],
    """INSERT INTO outbox (checkpoint_id, revision, first_start_ns)
        SELECT id, 1, start_ns FROM checkpoints ORDER BY id""",
    compiled.INDEXES["checkpoints_by_owner"],
    "DROP VIEW v_checkpoints",
    "DROP VIEW v_sessions",
    *_VIEWS,
)
STEPS: dict[int, MigrationStep] = {
    0: MigrationStep(LATEST_SCHEMA, _CREATE_ALL),
    4: MigrationStep(LATEST_SCHEMA, _FROM_SCHEMA_4),
}


def read_pragma(connection: Connection, name: str) -> int:
    """Read a numeric PRAGMA."""
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def check_version(connection: Connection, where: str) -> int:
    """Check and return the schema version, 0 if empty; raises StoreError for a foreign or unreleased schema."""
    version = read_pragma(connection, "user_version")
    if read_pragma(connection, "application_id") != APPLICATION_ID:
        if version or connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise StoreError(f"{where} is a database of another program", hint="give another path with --db")
        return 0
    if version > LATEST_SCHEMA:
        raise StoreError(
            f"{where} was written by a newer ckptprof (schema {version}, this one knows up to {LATEST_SCHEMA})",
            hint="upgrade ckptprof, or give another path with --db",
        )
    if version < 0:
        raise StoreDamagedError(f"{where} is damaged: its schema has the number {version}", hint=REPLACE_HINT)
    if version != LATEST_SCHEMA and version not in STEPS:
        raise StoreDamagedError(
            f"{where} was written by a ckptprof between releases (schema {version}; 0.1.0 has 4, this "
            f"one {LATEST_SCHEMA})",
            hint="only the ckptprof that wrote it can read it; the next recorder sets it aside",
        )
    _refuse_foreign_schema(connection, where)
    return version


def _refuse_foreign_schema(connection: Connection, where: str) -> None:
    """Refuse schemas of other programs: triggers and views in them could run for ever at each read or write."""
    foreign = connection.execute(
        "SELECT 'trigger', name FROM sqlite_master WHERE type = 'trigger' UNION ALL"
        " SELECT 'computed column', m.name || '.' || c.name FROM sqlite_master AS m, pragma_table_xinfo(m.name) AS c"
        " WHERE m.type = 'table' AND c.hidden <> 0"
    ).fetchone()
    if foreign:
        kind, name = foreign
        text = f"{where} was changed by another program: it has the {kind} {name!r}"
        raise StoreError(text, hint="give another path with --db")


def migrate(connection: Connection, where: str) -> None:
    """Bring the database to the latest schema; raises as `check_version`."""
    version = check_version(connection, where)
    while version != LATEST_SCHEMA:
        version, statements = STEPS[version]
        with transaction(connection, durable=True):
            for statement in statements:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {version}")
