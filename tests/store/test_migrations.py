"""The schema: its history, its agreement with the tables, its refusal of what is newer."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect

from ckptprof.errors import StoreError
from ckptprof.measures import BeforeMeasure, Measures, ThreadMeasure
from ckptprof.model import Checkpoint, CheckpointQuery, Kind, Moments, Overhead, Progress, Status, Succession
from ckptprof.store import migrations
from ckptprof.store import reader as reader_module
from ckptprof.store.migrations import APPLICATION_ID, LATEST_SCHEMA, STEPS, MigrationStep
from ckptprof.store.reader import StoreReader
from ckptprof.store.sql import BLOCK_TABLES, schema
from ckptprof.store.writer import StoreWriter
from ckptprof.verdicts import Cost, Limit

_FIXTURES = Path(__file__).parents[1] / "fixtures" / "store"
_OF_0_1 = 4
_POINTS = [
    Progress(60_000_000_000, 60_500_000_000, 1000, 0, 1000, Succession.NEXT, 2),
    Progress(60_600_000_000, 61_000_000_000, 234, 1000, 1500, Succession.ON, 2),
]


def test_tables_and_migrations_agree(writer: StoreWriter) -> None:
    """Every table and column that SQLAlchemy names exists, in that order, and takes None where it says so."""
    found = inspect(create_engine(f"sqlite:///{writer.path}"))
    for name, table in [*schema.metadata.tables.items(), *((name, schema.blocks) for name in BLOCK_TABLES)]:
        real = [(column["name"], column["nullable"]) for column in found.get_columns(name)]

        expected = [(column.name, bool(column.nullable)) for column in table.columns]
        assert [name for name, _ in real] == [name for name, _ in expected]
        assert real[1:] == expected[1:]


def put_released(path: Path, version: int = _OF_0_1) -> None:
    """Make a database of a released schema as it was then, from its text."""
    with contextlib.closing(sqlite3.connect(path)) as made:
        made.executescript((_FIXTURES / f"schema-{version}.sql").read_text(encoding="utf-8"))


def read_all(path: Path) -> Checkpoint:
    """Return the one checkpoint of a released database; its series and session are asserted."""
    with StoreReader(path) as reader:
        (listed,) = reader.report(CheckpointQuery()).checkpoints
        checkpoint = reader.checkpoint(1)
        series = reader.series("disk:vda", 0, 1 << 62)
        sessions = reader.sessions()
    assert (series.times_ns, series.columns) == ([60_000_000_000, 61_000_000_000], {"read_ios": [1, 5]})
    assert [session.host for session in sessions] == ["node-1"]
    assert checkpoint is not None
    assert (listed.verdict, listed.measures) == (checkpoint.verdict, None)  # these are read for one checkpoint only
    return checkpoint


@pytest.mark.parametrize("opener", [StoreReader, StoreWriter])
@pytest.mark.parametrize("version", [_OF_0_1, LATEST_SCHEMA])
def test_each_released_schema_is_brought_up_to_date(
    db: Path, version: int, opener: type[StoreReader | StoreWriter]
) -> None:
    """That of 0.1.0, and this one's, as they were then: a writer updates it; a reader reads it and changes nothing."""
    put_released(db, version)
    before = db.read_bytes()
    opener(db).close()
    assert opener is StoreWriter or db.read_bytes() == before
    checkpoint = read_all(db)

    assert (checkpoint.job, checkpoint.bytes) == ("train", 1234)
    assert (checkpoint.status, checkpoint.moments.committed_ns) == (Status.INCOMPLETE, 60_950_000_000)
    assert (checkpoint.metadata.created, checkpoint.metadata.at_least) == (20_000, True)
    assert checkpoint.overheads == (Overhead(reason="staging", bytes=1234, text="staged in /tmp"),)
    (writer,) = checkpoint.writers
    assert (writer.end_ns, writer.role) == (61_000_000_000, "thread")
    points = [point for stream in checkpoint.streams for point in stream.progress]
    assert (points, checkpoint.progress_left_out) == ((_POINTS, 3) if version > _OF_0_1 else ([], 0))
    (device,) = checkpoint.devices
    assert (device.device, device.requests, device.max_in_flight) == ("vda", 3, 2)
    assert checkpoint.verdict is not None
    assert (checkpoint.verdict.limit, checkpoint.verdict.accounts[1].limit) == (Limit.FLUSH, None)
    # Of names that 0.1.0 had others for
    assert (checkpoint.limitations, checkpoint.verdict.missing) == (("offsets",), ("the server",))
    assert (checkpoint.cuts, checkpoint.pattern.order_known_share_bytes) == ({"cut-at-start"}, 0.97)
    assert [stream.observed_by for stream in checkpoint.streams] == ["trace"]
    assert checkpoint.cost == Cost(stall_seconds=0.25, gpus=8, gpus_from="given", gpu_seconds=2.0)
    assert checkpoint.measures == Measures(
        threads=(
            ThreadMeasure(
                pid=1, tid=2, comm="python", start_ns=60_000_000_000, end_ns=61_000_000_000, samples=3,
                samples_by_state={"sync": 3},
            ),
        ),
        before=BeforeMeasure(blocked_ns=5),
        cores=2,
    )  # fmt: skip


def test_what_an_older_version_judged_is_marked(db: Path) -> None:
    """Its sentence says so, and it promises no gain: both may be known to be wrong by now."""
    put_released(db)
    with contextlib.closing(sqlite3.connect(db)) as old:
        old.execute("""UPDATE checkpoints SET verdict = json_set(
            verdict, '$.sentence', '1 s in fsync.', '$.expected_seconds', 1.5)""")
        old.commit()
    StoreWriter(db).close()

    verdict = read_all(db).verdict
    assert verdict is not None
    assert (verdict.sentence, verdict.expected_seconds) == ("1 s in fsync. (Decided by an older ckptprof.)", None)


def test_what_is_made_now_is_what_was_released(db: Path) -> None:
    """Every table, column, default, index and view, however the statements that made them were laid out."""
    released = db.with_name("released.db")
    put_released(released, LATEST_SCHEMA)
    older = db.with_name("older.db")
    put_released(older)
    for path in (db, older):
        StoreWriter(path).close()

        assert laid_out(path) == laid_out(released)


def laid_out(path: Path) -> dict[str, object]:
    """Return what a database consists of: columns and keys of tables, other statements without their line breaks."""
    with contextlib.closing(sqlite3.connect(path)) as opened:
        parts = opened.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        return {name: _table(opened, name, sql) if kind == "table" else sql.split() for kind, name, sql in parts}


def _table(opened: sqlite3.Connection, name: str, sql: str) -> list[object]:
    parts = ("table_xinfo", "foreign_key_list", "index_list")
    return [
        *(word in sql for word in ("AUTOINCREMENT", "WITHOUT ROWID")),
        *(opened.execute(f"PRAGMA {part}({name})").fetchall() for part in parts),
    ]


def test_the_next_schema_is_reached_in_one_step(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the latest, whose rows stay, and from nothing; a reader sees it, too."""
    put_released(db, LATEST_SCHEMA)
    fresh = db.with_name("fresh.db")
    step = MigrationStep(LATEST_SCHEMA + 1, ("ALTER TABLE sessions ADD COLUMN colour TEXT",))
    monkeypatch.setitem(STEPS, LATEST_SCHEMA, step)
    for module in (migrations, reader_module):
        monkeypatch.setattr(module, "LATEST_SCHEMA", LATEST_SCHEMA + 1)
    with StoreReader(db) as reader:
        assert reader.run_query("SELECT count(colour) FROM sessions").rows == [(0,)]
    for path in (db, fresh, db):
        StoreWriter(path).close()

        with contextlib.closing(sqlite3.connect(path)) as opened:
            assert opened.execute("PRAGMA user_version").fetchone() == (LATEST_SCHEMA + 1,)
            assert opened.execute("SELECT count(colour) FROM sessions").fetchone() == (0,)
    read_all(db)


def test_a_reader_of_an_older_schema_sees_what_its_writer_adds(db: Path) -> None:
    """While the service of the older version still runs, and after this version's service took it over."""
    put_released(db)
    with StoreReader(db) as reader, contextlib.closing(sqlite3.connect(db)) as old:
        old.execute("PRAGMA journal_mode = WAL")
        for job in ("before", "during", "after"):
            old.execute("UPDATE checkpoints SET job = ?", (job,))
            old.commit()
            if job == "after":
                StoreWriter(db).close()
            reader.reopen_if_newer()
            assert [found.job for found in reader.report(CheckpointQuery()).checkpoints] == [job]
            assert reader.run_query("SELECT job FROM v_checkpoints").rows == [(job,)]
            with pytest.raises(StoreError, match="read-only"), reader._snapshot() as raw:
                raw.execute("DELETE FROM sessions")


@pytest.mark.parametrize("version", [3, 5, LATEST_SCHEMA - 1])
def test_a_schema_of_no_release_is_kept_aside(db: Path, version: int) -> None:
    """A reader says what it is; what records next keeps it as it was, and begins a new database."""
    with contextlib.closing(sqlite3.connect(db)) as made:
        made.executescript(f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {version}")
        made.execute("CREATE TABLE checkpoints (id INTEGER PRIMARY KEY)")

    with pytest.raises(StoreError, match=rf"between releases \(schema {version}; 0.1.0 has 4") as refused:
        StoreReader(db)
    writer = StoreWriter(db)
    writer.close()

    assert "sets it aside" in (refused.value.hint or "")
    assert writer.set_aside_path is not None
    assert list(laid_out(writer.set_aside_path)) == ["checkpoints"]
    assert (writer.set_aside_reason or "").endswith(
        f"between releases (schema {version}; 0.1.0 has 4, this one {LATEST_SCHEMA})"
    )
    with StoreReader(db) as reader:
        assert reader.entities() == []
        assert reader.report(CheckpointQuery()).watched.set_aside == (str(writer.set_aside_path),)


def test_the_view_tells_the_limit(db: Path, writer: StoreWriter, checkpoint: Callable[..., Checkpoint]) -> None:
    """As words and seconds, to be grouped and summed; NULL where there was no diagnosis."""
    writer.add_checkpoints([checkpoint(uid="1"), checkpoint(uid="2", verdict=None, cost=None)])
    with sqlite3.connect(f"file:{db}?mode=ro", uri=True) as person:
        rows = person.execute(
            "SELECT limited_by, limit_seconds, limit_confidence, expected_seconds, gpu_seconds FROM v_checkpoints"
        ).fetchall()
    person.close()

    assert rows == [("flush", 34 / 3, 0.1 + 0.2, 1 / 3, 8 / 7), (None,) * 5]


def test_all_views_work_for_who_does_not_trust_the_schema(
    db: Path, writer: StoreWriter, checkpoint: Callable[..., Checkpoint]
) -> None:
    """As our own reader, and hardened tools: no view calls what such a connection forbids."""
    writer.add_checkpoints([checkpoint(uid="1"), checkpoint(uid="2", verdict=None, cost=None)])
    with contextlib.closing(sqlite3.connect(f"file:{db}?mode=ro", uri=True)) as person:
        person.execute("PRAGMA trusted_schema = OFF")
        person.row_factory = sqlite3.Row
        names = [name for (name,) in person.execute("SELECT name FROM sqlite_master WHERE type = 'view'")]
        told = {name: [dict(row) for row in person.execute(f"SELECT * FROM {name}")] for name in names}  # noqa: S608

    kept = checkpoint(uid="1")
    assert kept.verdict is not None
    accounts = [(one.limit and one.limit.value, one.seconds, one.text) for one in kept.verdict.accounts]
    assert sorted(told) == ["v_accounts", "v_annotations", "v_checkpoints", "v_devices", "v_ranks", "v_sessions"]
    assert [tuple(row.values()) for row in told["v_accounts"]] == [(1, *one) for one in accounts]
    assert [row["rank"] for row in told["v_ranks"]] == [one.rank for one in kept.writers] * 2
    assert [row["device"] for row in told["v_devices"]] == [one.device for one in kept.devices] * 2
    assert [row["limited_by"] for row in told["v_checkpoints"]] == [kept.verdict.limit.value, None]
    assert [row["time"] for row in told["v_annotations"]] == [kept.start_ns // 1_000_000] * 2


def test_what_is_damaged_keeps_no_database_from_being_brought_up_to_date(db: Path) -> None:
    """A verdict that is no JSON has no limit; a view of a user that does not work stays as it is."""
    put_released(db)
    with contextlib.closing(sqlite3.connect(db)) as damaged:
        damaged.execute("UPDATE checkpoints SET verdict = 'x'")
        damaged.execute("CREATE VIEW mine AS SELECT json_extract(moments, '$.a') FROM v_checkpoints, elsewhere")
        damaged.commit()
    StoreWriter(db).close()

    with contextlib.closing(sqlite3.connect(db)) as person:
        assert person.execute("SELECT limited_by, gpu_seconds FROM v_checkpoints").fetchall() == [(None, 2.0)]


def test_a_newer_schema_is_refused_with_the_versions(db: Path) -> None:
    """By writer and reader, and the file stays as it is."""
    StoreWriter(db).close()
    with sqlite3.connect(db) as newer:
        newer.execute(f"PRAGMA user_version = {LATEST_SCHEMA + 7}")
    newer.close()
    for opener in (StoreWriter, StoreReader):
        with pytest.raises(
            StoreError, match=rf"newer ckptprof \(schema {LATEST_SCHEMA + 7}, this one knows up to {LATEST_SCHEMA}\)"
        ):
            opener(db)


def test_an_interrupted_creation_is_finished(db: Path) -> None:
    """An empty file, as a crash between making it and filling it leaves, becomes a database."""
    db.touch()
    StoreWriter(db).close()
    with StoreReader(db) as reader:
        assert reader.entities() == []


def test_people_and_grafana_have_views_in_seconds(db: Path, writer: StoreWriter, checkpoint: object) -> None:
    """Plain SQL over plain rows, without ckptprof."""
    writer.add_checkpoints([checkpoint(start_ns=10**18, end_ns=10**18 + 500_000_000, durable_ns=None)])  # type: ignore[operator] # a fixture
    with sqlite3.connect(f"file:{db}?mode=ro", uri=True) as person:
        row = person.execute("SELECT start_time, duration_seconds, durable_time FROM v_checkpoints").fetchone()
    person.close()

    assert row == (1e9, 0.5, None)


def test_the_view_tells_risk_and_amplification(
    db: Path, writer: StoreWriter, checkpoint: Callable[..., Checkpoint]
) -> None:
    """From the commit, where there was one, to the disk; nothing is told of what was not seen."""
    course = {"start_ns": 0, "end_ns": 10**9, "durable_ns": 3 * 10**9}
    writer.add_checkpoints(
        [
            checkpoint(uid="1", **course, moments=Moments(committed_ns=2 * 10**9), written_bytes=30, unique_bytes=20),
            checkpoint(uid="2", **course, moments=Moments(), written_bytes=None, unique_bytes=0),
            checkpoint(uid="3", **course, kind=Kind.RESTORE, moments=Moments()),
        ]
    )
    with sqlite3.connect(f"file:{db}?mode=ro", uri=True) as person:
        rows = person.execute(
            "SELECT status, committed_time, at_risk_seconds, write_amplification FROM v_checkpoints ORDER BY id"
        ).fetchall()
    person.close()

    assert rows == [("incomplete", 2.0, 1.0, 1.5), ("incomplete", None, 2.0, None), ("incomplete", None, None, None)]
