"""The schema: its history, its agreement with the tables, its refusal of what is newer."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import inspect

from ckptprof.errors import StoreError
from ckptprof.measures import Measures, ThreadMeasure
from ckptprof.model import Checkpoint, CheckpointQuery, DeviceShare, Kind, Metadata, Moments, Overhead, Status
from ckptprof.store import schema
from ckptprof.store.migrations import LATEST
from ckptprof.store.reader import StoreReader
from ckptprof.store.writer import StoreWriter
from ckptprof.verdicts import Cost, Limit

_FIXTURES = Path(__file__).parents[1] / "fixtures" / "store"


def test_tables_and_migrations_agree(writer: StoreWriter) -> None:
    """Every table and column that SQLAlchemy names exists, in that order, and takes None where it says so."""
    found = inspect(writer._connection)
    for name, table in schema.metadata.tables.items():
        real = [(column["name"], column["nullable"]) for column in found.get_columns(name)]

        expected = [(column.name, bool(column.nullable)) for column in table.columns]
        assert [name for name, _ in real] == [name for name, _ in expected]
        assert real[1:] == expected[1:]


@pytest.mark.parametrize("version", range(1, LATEST + 1))
def test_each_released_schema_is_brought_up_to_date(db: Path, version: int) -> None:
    """A database of each version, as it was then, opens, keeps its rows and can be read."""
    old = sqlite3.connect(db)
    old.executescript((_FIXTURES / f"schema-{version}.sql").read_text(encoding="utf-8"))
    old.close()
    StoreWriter(db).close()
    with StoreReader(db) as reader:
        (checkpoint,) = reader.report(CheckpointQuery()).checkpoints
        series = reader.series("disk:vda", 0, 1 << 62)
        sessions = reader.sessions()

    assert (checkpoint.job, checkpoint.bytes, len(checkpoint.writers)) == ("train", 1234, 1)
    assert (series.times_ns, series.columns) == ([60_000_000_000, 61_000_000_000], {"read_ios": [1, 5]})
    assert [session.host for session in sessions] == ["node-1"]


def test_devices_of_the_first_schema_keep_what_was_known_of_them(db: Path) -> None:
    """And what is asked of them since is not known; a reader that cannot upgrade says what does."""
    old = sqlite3.connect(db)
    old.executescript((_FIXTURES / "schema-1.sql").read_text(encoding="utf-8"))
    old.execute("INSERT INTO devices VALUES (1, 0, 'vda', 'block', 7, 1234, 0.5, '/c')")
    old.commit()
    old.close()
    with pytest.raises(StoreError, match=rf"older ckptprof \(schema 1, this one reads {LATEST}\)"):
        StoreReader(db)
    StoreWriter(db).close()
    with StoreReader(db) as reader:
        found = reader.checkpoint(1)

    assert found is not None
    assert found.devices == (
        DeviceShare(device="vda", kind="block", read_bytes=7, written_bytes=1234, busy_seconds=0.5, under="/c"),
    )


def test_checkpoints_of_the_second_schema_are_complete_and_of_an_unknown_course(db: Path) -> None:
    """What was not looked for then is not known now; what the third schema holds is read as it is."""
    found: list[Checkpoint] = []
    for version in (2, 3):
        path = db.with_name(f"{version}.db")
        old = sqlite3.connect(path)
        old.executescript((_FIXTURES / f"schema-{version}.sql").read_text(encoding="utf-8"))
        old.close()
        StoreWriter(path).close()
        with StoreReader(path) as reader:
            found += reader.report(CheckpointQuery()).checkpoints
    second, third = found

    assert (second.status, second.moments, second.overheads) == (Status.COMPLETE, Moments(), ())
    assert (second.written_bytes, second.unique_bytes, second.storage_bytes, second.cache) == (None, None, None, None)
    assert (second.writers[0].start_ns, second.writers[0].role) == (None, None)
    assert (third.status, third.moments.committed_ns) == (Status.INCOMPLETE, 60_950_000_000)
    assert (second.metadata, third.metadata.created, third.metadata.at_least) == (Metadata(), 20_000, True)
    assert third.overheads == (Overhead(reason="staging", bytes=1234, text="staged in /tmp"),)
    assert (third.writers[0].end_ns, third.writers[0].role) == (61_000_000_000, "thread")


def test_checkpoints_before_the_fourth_schema_have_no_diagnosis(db: Path) -> None:
    """None was made; what the fourth schema holds is read as it is, the measures for one checkpoint only."""
    found: list[tuple[Checkpoint, Checkpoint | None]] = []
    for version in (3, 4):
        path = db.with_name(f"{version}.db")
        old = sqlite3.connect(path)
        old.executescript((_FIXTURES / f"schema-{version}.sql").read_text(encoding="utf-8"))
        old.close()
        StoreWriter(path).close()
        with StoreReader(path) as reader:
            found.append((reader.report(CheckpointQuery()).checkpoints[0], reader.checkpoint(1)))
    (third, _), (fourth, whole) = found

    assert (third.verdict, third.cost, third.measures) == (None, None, None)
    assert fourth.verdict is not None
    assert whole is not None
    assert (fourth.verdict.limit, fourth.verdict.accounts[1].limit, fourth.measures) == (Limit.FLUSH, None, None)
    assert fourth.cost == Cost(stall_seconds=0.25, gpus=8, gpus_from="given", gpu_seconds=2.0)
    assert whole.measures == Measures(
        threads=(ThreadMeasure(pid=1, tid=2, comm="python", start_ns=60_000_000_000, end_ns=61_000_000_000),), cores=2
    )


def test_the_view_tells_the_limit(db: Path, writer: StoreWriter, checkpoint: Callable[..., Checkpoint]) -> None:
    """As words and seconds, to be grouped and summed; NULL where there was no diagnosis."""
    writer.add_checkpoints([checkpoint(uid="1"), checkpoint(uid="2", verdict=None, cost=None)])
    with sqlite3.connect(f"file:{db}?mode=ro", uri=True) as person:
        rows = person.execute(
            'SELECT "limit", limit_seconds, limit_confidence, expected_seconds, gpu_seconds FROM v_checkpoints'
        ).fetchall()
    person.close()

    assert rows == [("flush", 34 / 3, 0.1 + 0.2, 1 / 3, 8 / 7), (None,) * 5]


def test_a_newer_schema_is_refused_with_the_versions(db: Path) -> None:
    """By writer and reader, and the file stays as it is."""
    StoreWriter(db).close()
    with sqlite3.connect(db) as newer:
        newer.execute(f"PRAGMA user_version = {LATEST + 7}")
    newer.close()
    for opener in (StoreWriter, StoreReader):
        with pytest.raises(StoreError, match=rf"newer ckptprof \(schema {LATEST + 7}, this one knows up to {LATEST}\)"):
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

    assert rows == [
        ("incomplete", 2.0, 1.0, 1.5),
        ("incomplete", None, 2.0, None),
        ("incomplete", None, None, None),
    ]
