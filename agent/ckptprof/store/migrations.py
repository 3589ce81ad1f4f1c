"""The schema's history: numbered steps, each in a transaction of its own, recorded in PRAGMA user_version.

The first step makes schema 4: those before it were never released. A released step is never changed; a change of the
schema is a new step at the end of `STEPS`.
"""

from __future__ import annotations

from sqlite3 import Connection
from typing import NamedTuple

from ckptprof.errors import StoreError
from ckptprof.store.connection import transaction
from ckptprof.store.problems import MOVE_AWAY, StoreDamagedError

APPLICATION_ID = 0x434B5054  # "CKPT": what file(1) and we know our databases by
OLDEST = 4


class Step(NamedTuple):
    """One change of the schema: statements, in order."""

    statements: tuple[str, ...]


_BLOCKS = "CREATE TABLE {} (id INTEGER PRIMARY KEY, layout INTEGER NOT NULL, data BLOB NOT NULL)"
_CHILD = "checkpoint_id INTEGER NOT NULL REFERENCES checkpoints (id) ON DELETE CASCADE, ordinal INTEGER NOT NULL"

_FIRST = Step(
    (
        """CREATE TABLE sessions (
            id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, host TEXT NOT NULL, boot_id TEXT NOT NULL,
            kernel TEXT NOT NULL, version TEXT NOT NULL, level TEXT NOT NULL, start_ns INTEGER NOT NULL,
            end_ns INTEGER NOT NULL, clean INTEGER NOT NULL, dropped_frames INTEGER NOT NULL)""",
        """CREATE TABLE checkpoints (
            id INTEGER PRIMARY KEY AUTOINCREMENT, uid TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, job TEXT NOT NULL,
            framework TEXT, step INTEGER, ranks INTEGER, start_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL,
            durable_ns INTEGER, bytes INTEGER NOT NULL, files INTEGER NOT NULL, path TEXT, mode TEXT,
            stall_ns INTEGER, level TEXT NOT NULL, confidence REAL NOT NULL, pattern_class TEXT,
            pattern TEXT NOT NULL, verdict TEXT, blind TEXT NOT NULL, timeline BLOB NOT NULL,
            status TEXT NOT NULL DEFAULT 'complete', moments TEXT NOT NULL DEFAULT '{}',
            metadata TEXT NOT NULL DEFAULT '{}', written_bytes INTEGER, unique_bytes INTEGER,
            overheads TEXT NOT NULL DEFAULT '[]', storage_bytes INTEGER, cache TEXT, cost TEXT, measures TEXT)""",
        "CREATE INDEX checkpoints_by_start ON checkpoints (start_ns)",
        f"""CREATE TABLE writers ({_CHILD}, pid INTEGER NOT NULL, comm TEXT NOT NULL, bytes INTEGER NOT NULL,
            rank INTEGER, start_ns INTEGER, end_ns INTEGER, role TEXT,
            PRIMARY KEY (checkpoint_id, ordinal)) WITHOUT ROWID""",
        f"""CREATE TABLE evidence ({_CHILD}, name TEXT NOT NULL, weight REAL NOT NULL, text TEXT NOT NULL,
            PRIMARY KEY (checkpoint_id, ordinal)) WITHOUT ROWID""",
        f"""CREATE TABLE streams ({_CHILD}, pid INTEGER NOT NULL, comm TEXT NOT NULL, path TEXT NOT NULL,
            bytes INTEGER NOT NULL, size INTEGER, start_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL, class TEXT,
            seen_by TEXT NOT NULL, PRIMARY KEY (checkpoint_id, ordinal)) WITHOUT ROWID""",
        f"""CREATE TABLE devices ({_CHILD}, device TEXT NOT NULL, kind TEXT NOT NULL, read_bytes INTEGER NOT NULL,
            written_bytes INTEGER NOT NULL, busy_seconds REAL, under TEXT, requests INTEGER, mean_request_bytes REAL,
            sequential_share_bytes REAL, latency_p50_seconds REAL, latency_p99_seconds REAL, max_in_flight INTEGER,
            PRIMARY KEY (checkpoint_id, ordinal)) WITHOUT ROWID""",
        """CREATE TABLE entities (
            id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, seen_ns INTEGER NOT NULL)""",
        "CREATE TABLE layouts (id INTEGER PRIMARY KEY, fields TEXT NOT NULL UNIQUE)",
        _BLOCKS.format("minutes"),
        _BLOCKS.format("hours"),
        _BLOCKS.format("rollups"),
        """CREATE VIEW v_checkpoints AS SELECT
            id, kind, status, job, framework, step, ranks, start_ns / 1e9 AS start_time, end_ns / 1e9 AS end_time,
            json_extract(moments, '$.committed_ns') / 1e9 AS committed_time, durable_ns / 1e9 AS durable_time,
            (end_ns - start_ns) / 1e9 AS duration_seconds,
            CASE kind WHEN 'save' THEN
                max(0, durable_ns - coalesce(json_extract(moments, '$.committed_ns'), end_ns)) / 1e9
            END AS at_risk_seconds,
            bytes, bytes * 1e9 / max(end_ns - start_ns, 1) AS bytes_per_second, files, path, mode,
            stall_ns / 1e9 AS stall_seconds, written_bytes, unique_bytes,
            CASE kind WHEN 'save' THEN written_bytes * 1.0 / nullif(unique_bytes, 0) END AS write_amplification,
            storage_bytes, cache, pattern_class, level, confidence,
            json_extract(verdict, '$.limit') AS "limit", json_extract(verdict, '$.seconds') AS limit_seconds,
            json_extract(verdict, '$.confidence') AS limit_confidence,
            json_extract(verdict, '$.expected_seconds') AS expected_seconds,
            json_extract(cost, '$.gpu_seconds') AS gpu_seconds FROM checkpoints""",
        """CREATE VIEW v_sessions AS SELECT
            id, host, kernel, version, level, start_ns / 1e9 AS start_time, end_ns / 1e9 AS end_time, clean,
            dropped_frames FROM sessions""",
    )
)

# What the agent would tell if it ended now; its next start tells it.
_UNTOLD = Step(("CREATE TABLE untold (uid TEXT NOT NULL PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID",))

# What pictures and other programs ask for, as columns: a view that calls json_extract fails for who does not trust the
# schema (PRAGMA trusted_schema = OFF), as our own reader does not; json_tree may be used there.
_FIGURES = (
    ("committed_ns", "INTEGER", "moments", "$.committed_ns"),
    ('"limit"', "TEXT", "verdict", "$.limit"),
    ("limit_seconds", "REAL", "verdict", "$.seconds"),
    ("limit_confidence", "REAL", "verdict", "$.confidence"),
    ("expected_seconds", "REAL", "verdict", "$.expected_seconds"),
    ("gpu_seconds", "REAL", "cost", "$.gpu_seconds"),
)
_PICTURES = Step(
    (
        "ALTER TABLE checkpoints ADD COLUMN blocked TEXT NOT NULL DEFAULT '[]'",
        *(f"ALTER TABLE checkpoints ADD COLUMN {name} {kind}" for name, kind, _, _ in _FIGURES),
        # At once: each pass over a large database writes all of it again
        "UPDATE checkpoints SET "  # noqa: S608 # as above
        + ", ".join(
            f"{name} = iif(json_valid({of}), json_extract({of}, '{at}'), NULL)" for name, _, of, at in _FIGURES
        ),
        "DROP VIEW v_checkpoints",
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
            "limit", limit_seconds, limit_confidence, expected_seconds, gpu_seconds FROM checkpoints""",
        """CREATE VIEW v_accounts AS SELECT
            checkpoints.id AS checkpoint_id,
            max(CASE part.key WHEN 'limit' THEN part.atom END) AS "limit",
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
    )
)

_PROGRESS = Step(
    (
        "ALTER TABLE checkpoints ADD COLUMN progress BLOB",
        "ALTER TABLE checkpoints ADD COLUMN progress_left_out INTEGER NOT NULL DEFAULT 0",
    )
)

_FORMAT_2 = Step(())  # of new blocks (blocks.py); those of before stay as they are

_SENT_AND_RUN = Step(("ALTER TABLE checkpoints ADD COLUMN sent TEXT", "ALTER TABLE checkpoints ADD COLUMN run TEXT"))

_PLACE_AND_CLOCK = Step(
    ("ALTER TABLE checkpoints ADD COLUMN place TEXT", "ALTER TABLE checkpoints ADD COLUMN clock TEXT")
)

# In which order checkpoints changed, for who takes them elsewhere (ADR 0018).
_OUTBOX = Step(
    (
        """CREATE TABLE outbox (
            change INTEGER PRIMARY KEY AUTOINCREMENT,
            checkpoint_id INTEGER NOT NULL UNIQUE REFERENCES checkpoints (id) ON DELETE CASCADE,
            revision INTEGER NOT NULL, first_start_ns INTEGER NOT NULL)""",
        """INSERT INTO outbox (checkpoint_id, revision, first_start_ns)
            SELECT id, 1, start_ns FROM checkpoints ORDER BY id""",
    )
)

STEPS: tuple[Step, ...] = (
    _FIRST, _UNTOLD, _PICTURES, _PROGRESS, _FORMAT_2, _SENT_AND_RUN, _PLACE_AND_CLOCK, _OUTBOX,
)  # fmt: skip
LATEST = OLDEST + len(STEPS) - 1


def pragma(connection: Connection, name: str) -> int:
    """Return a numeric PRAGMA."""
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def check_version(connection: Connection, where: str) -> int:
    """Return the schema's version, 0 for an empty database; raises StoreError if it is not ours, too old or newer."""
    version = pragma(connection, "user_version")
    if pragma(connection, "application_id") != APPLICATION_ID:
        if version or connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise StoreError(f"{where} is a database of another program", hint="give another path with --db")
        return 0
    if version > LATEST:
        raise StoreError(
            f"{where} was written by a newer ckptprof (schema {version}, this one knows up to {LATEST})",
            hint="upgrade ckptprof, or give another path with --db",
        )
    if version < 0:
        raise StoreDamagedError(f"{where} is damaged: its schema has the number {version}", hint=MOVE_AWAY)
    if 0 < version < OLDEST:
        raise StoreError(
            f"{where} was written by a ckptprof that was never released (schema {version}, the first is {OLDEST})",
            hint="move it away: a new one is made; only the ckptprof that wrote the old one reads it",
        )
    _check_schema(connection, where)
    return version


def _check_schema(connection: Connection, where: str) -> None:
    """Refuse what no ckptprof made, and what runs at each reading or writing, for ever or to any length."""
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
    """Bring the database to the latest schema; raises StoreError if it is not ours, too old or newer."""
    version = check_version(connection, where)
    for number, step in enumerate(STEPS, start=OLDEST):
        if number <= version:
            continue
        with transaction(connection, durable=True):
            for statement in step.statements:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {number}")
