"""The history of the server's schema: numbered steps, applied by its owner under a lock, each recorded.

A released step is never changed; a change of the schema is a new step at the end of `STEPS`.
"""

from __future__ import annotations

from sqlalchemy import Connection, text

from ckptprof.errors import StoreError
from ckptprof.store.fleet.server_views import SECOND_STEP

_MIGRATION_LOCK = 0x434B5054  # "CKPT"; of pg_advisory_xact_lock. The next number is that of the days
_MIN_SERVER_MAJOR = 14
NODE_ROLE, SITE_ROLE, READER_ROLE = "ckptprof_node", "ckptprof_site", "ckptprof_reader"
_TABLES = ("checkpoints", "sessions", "nodes", "quarantine")

# Derived by the server, for questions in SQL
_GENERATED_COLUMNS = (
    ("number", "bigint", "(detail->>'id')::bigint"),
    ("kind", "text", "detail->>'kind'"),
    ("job", "text", "detail->>'job'"),
    ("framework", "text", "detail->>'framework'"),
    ("step", "bigint", "(detail->>'step')::bigint"),
    ("run_key", "text", "detail#>>'{run,key}'"),
    ("place_key", "text", "detail#>>'{place,key}'"),
    ("path", "text", "detail->>'path'"),
    ("start_ns", "bigint", "(detail->>'start_ns')::bigint"),
    ("end_ns", "bigint", "(detail->>'end_ns')::bigint"),
    ("durable_ns", "bigint", "(detail->>'durable_ns')::bigint"),
    ("started", "timestamptz", "to_timestamp((detail->>'start_ns')::float8 / 1e9)"),
    ("bytes", "bigint", "(detail->>'bytes')::bigint"),
    ("files", "bigint", "(detail->>'files')::bigint"),
    ("stall_seconds", "float8", "(detail->>'stall_ns')::float8 / 1e9"),
    ('"limit"', "text", "detail#>>'{verdict,limit}'"),
    ("gpu_seconds", "float8", "(detail#>>'{cost,gpu_seconds}')::float8"),
)
_CREATE_ROLE = """DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{0}') THEN CREATE ROLE {0} NOLOGIN; END IF;
END $$"""
# A partition is created separately and attached, which waits for readers of the default partition, while later readers
# wait for it: with a short timeout, as rows may stay there until the next try. Rows of that day are moved. A day far
# from now gets no partition, so that no node can create thousands of them.
_ADD_DAY = """CREATE FUNCTION ckptprof.add_day(at_ns bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    low bigint := at_ns - at_ns % 86400000000000;
    high bigint := low + 86400000000000;
    name text := 'checkpoints_' || to_char(to_timestamp(low / 1e9) AT TIME ZONE 'UTC', 'YYYYMMDD');
BEGIN
    IF to_timestamp(low / 1e9) NOT BETWEEN now() - interval '400 days' AND now() + interval '2 days'
        OR to_regclass('ckptprof.' || name) IS NOT NULL THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(1129009237);
    IF to_regclass('ckptprof.' || name) IS NOT NULL THEN
        RETURN;
    END IF;
    EXECUTE format('CREATE TABLE ckptprof.%I (LIKE ckptprof.checkpoints INCLUDING ALL)', name);
    EXECUTE format('WITH moved AS (DELETE FROM ckptprof.checkpoints_other WHERE first_start_ns >= %s'
        ' AND first_start_ns < %s RETURNING first_start_ns, node, uid, revision, detail, received)'
        ' INSERT INTO ckptprof.%I (first_start_ns, node, uid, revision, detail, received) SELECT * FROM moved',
        low, high, name);
    EXECUTE format('ALTER TABLE ckptprof.checkpoints ATTACH PARTITION ckptprof.%I FOR VALUES FROM (%s) TO (%s)',
        name, low, high);
END $$"""
_DROP_BEFORE = """CREATE FUNCTION ckptprof.drop_before(oldest timestamptz) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    part text;
    dropped bigint := 0;
BEGIN
    FOR part IN SELECT c.relname FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid
        WHERE inhparent = 'ckptprof.checkpoints'::regclass AND c.relname ~ '^checkpoints_[0-9]{8}$'
        AND c.relname < 'checkpoints_' || to_char(oldest AT TIME ZONE 'UTC', 'YYYYMMDD')
    LOOP
        EXECUTE format('DROP TABLE ckptprof.%I', part);
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END $$"""

_FIRST_STEP = (
    *(_CREATE_ROLE.format(role) for role in (NODE_ROLE, SITE_ROLE, READER_ROLE)),
    """CREATE TABLE ckptprof.nodes (
        node text, database text, change bigint NOT NULL, last_id bigint NOT NULL, lost bigint NOT NULL,
        version text NOT NULL, last_seen timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (node, database))""",
    """CREATE TABLE ckptprof.sessions (
        node text, database text, uid text, host text NOT NULL, boot_id text NOT NULL, kernel text NOT NULL,
        version text NOT NULL, level text NOT NULL, start_ns bigint NOT NULL, end_ns bigint NOT NULL,
        clean boolean NOT NULL, dropped_frames bigint NOT NULL, PRIMARY KEY (node, database, uid))""",
    """CREATE TABLE ckptprof.quarantine (
        node text, uid text, revision bigint NOT NULL, reason text NOT NULL, event bytea,
        received timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (node, uid))""",
    "CREATE TABLE ckptprof.checkpoints (first_start_ns bigint, node text, uid text, revision bigint NOT NULL,"
    " detail jsonb NOT NULL, received timestamptz NOT NULL DEFAULT now(), "
    + ", ".join(f"{name} {kind} GENERATED ALWAYS AS ({of}) STORED" for name, kind, of in _GENERATED_COLUMNS)
    + ", PRIMARY KEY (first_start_ns, node, uid)) PARTITION BY RANGE (first_start_ns)",
    "CREATE TABLE ckptprof.checkpoints_other PARTITION OF ckptprof.checkpoints DEFAULT",
    "CREATE INDEX ON ckptprof.checkpoints (run_key, kind, step)",
    "CREATE INDEX ON ckptprof.checkpoints (node, start_ns)",
    _ADD_DAY,
    _DROP_BEFORE,
    "REVOKE ALL ON FUNCTION ckptprof.add_day(bigint), ckptprof.drop_before(timestamptz) FROM PUBLIC",
    f"GRANT EXECUTE ON FUNCTION ckptprof.add_day(bigint) TO {NODE_ROLE}, {SITE_ROLE}",
    f"GRANT USAGE ON SCHEMA ckptprof TO {NODE_ROLE}, {SITE_ROLE}, {READER_ROLE}",
    f"GRANT DELETE ON ckptprof.sessions TO {NODE_ROLE}, {SITE_ROLE}",
    f"GRANT SELECT ON ckptprof.steps TO {NODE_ROLE}, {SITE_ROLE}, {READER_ROLE}",
    *(
        statement
        for table in _TABLES
        for statement in (
            f"ALTER TABLE ckptprof.{table} ENABLE ROW LEVEL SECURITY",
            f"GRANT SELECT, INSERT, UPDATE ON ckptprof.{table} TO {NODE_ROLE}, {SITE_ROLE}",
            f"GRANT SELECT ON ckptprof.{table} TO {READER_ROLE}",
            # A node is identified by its login
            f"CREATE POLICY own ON ckptprof.{table} TO {NODE_ROLE} USING (node = session_user::text)",
            f"CREATE POLICY site ON ckptprof.{table} TO {SITE_ROLE} USING (true)",
            f"CREATE POLICY reads ON ckptprof.{table} FOR SELECT TO {READER_ROLE} USING (true)",
        )
    ),
)
STEPS: tuple[tuple[str, ...], ...] = (_FIRST_STEP, SECOND_STEP)
_REQUIRED_STEP = (
    1  # for shipping and reading: the second step is for SQL queries, so nodes may be newer than the server
)


def migrate(connection: Connection) -> int:
    """Bring the server to the newest schema, one process at a time; return its number. Raises StoreError."""
    with connection.begin():
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _MIGRATION_LOCK})
        _check_server(connection)
        connection.execute(text("CREATE SCHEMA IF NOT EXISTS ckptprof"))
        connection.execute(
            text(
                "CREATE TABLE IF NOT EXISTS ckptprof.steps"
                " (step int PRIMARY KEY, applied timestamptz NOT NULL DEFAULT now())"
            )
        )
        applied = _applied_step(connection)
        for number, statements in enumerate(STEPS, start=1):
            if number <= applied:
                continue
            for statement in statements:
                connection.execution_options(no_parameters=True).exec_driver_sql(statement)
            connection.execute(text("INSERT INTO ckptprof.steps (step) VALUES (:step)"), {"step": number})
    return max(applied, len(STEPS))


def check_version(connection: Connection) -> None:
    """Raise StoreError if the server's schema is older than required; a newer one is compatible."""
    version = _applied_step(connection)
    if version < _REQUIRED_STEP:
        raise StoreError(
            f"the server has schema {version}, this ckptprof needs {_REQUIRED_STEP}",
            hint="as its owner, with this version: ckptprof ship --prepare",
        )


def _applied_step(connection: Connection) -> int:
    return int(connection.execute(text("SELECT coalesce(max(step), 0) FROM ckptprof.steps")).scalar_one())


def _check_server(connection: Connection) -> None:
    major = int(connection.execute(text("SHOW server_version_num")).scalar_one()) // 10_000
    if major < _MIN_SERVER_MAJOR:
        raise StoreError(f"PostgreSQL {major} is too old", hint=f"{_MIN_SERVER_MAJOR} is the oldest")
