"""Tables as they are taken along: every row and column that the database holds."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import pytest
from tests.store.conftest import START_NS

from ckptprof.errors import StoreError
from ckptprof.model import Checkpoint, CheckpointQuery, Kind, Session
from ckptprof.store import records
from ckptprof.store.reader import StoreReader
from ckptprof.store.writer import StoreWriter

ALL = CheckpointQuery()
OF_TABLES = ("checkpoints", "writers", "devices", "streams", "evidence", "sessions")


@pytest.fixture
def reader(
    writer: StoreWriter, db: Path, checkpoint: Callable[..., Checkpoint], session: Callable[..., Session]
) -> StoreReader:
    """Return a database of three checkpoints, one of them a copy, opened."""
    writer.start_session(session())
    kinds = (Kind.SAVE, Kind.RESTORE, Kind.COPY)
    writer.add_checkpoints([checkpoint(uid=str(number), kind=kind) for number, kind in enumerate(kinds)])
    return StoreReader(db)


@pytest.mark.parametrize("name", OF_TABLES)
def test_every_column_is_taken(reader: StoreReader, db: Path, name: str) -> None:
    """As SQLite itself tells them, but for blocks of bytes, which are a table of their own."""
    with reader.records(name, ALL) as found:
        taken = [field.name for field in found.fields]
        rows = list(found.rows)

    with sqlite3.connect(db) as raw:
        raw.row_factory = sqlite3.Row
        chosen = "" if name == "sessions" else f"WHERE {'id' if name == 'checkpoints' else 'checkpoint_id'} < 3"
        stored = raw.execute(f"SELECT * FROM {name} {chosen}").fetchall()  # noqa: S608 # a table of ours
        columns = [row[1] for row in raw.execute(f"PRAGMA table_info({name})")]
    assert taken == [column for column in columns if column not in ("timeline", "progress")]
    assert rows == [tuple(row[column] for column in taken) for row in stored]
    assert rows


@pytest.mark.parametrize("name", records.VIEW_NAMES)
def test_a_view_is_what_sql_shows(reader: StoreReader, name: str) -> None:
    """The same columns; a time is a moment in UTC, to the microsecond of its seconds."""
    with reader.records(name, ALL) as found:
        columns = [field.name for field in found.fields]
        rows = list(found.rows)
    shown = reader.run_query(f"SELECT * FROM {name}")  # noqa: S608 # a view of ours

    assert columns == list(shown.columns)
    plain = [tuple(value.timestamp() if isinstance(value, datetime) else value for value in row) for row in rows]
    key = columns.index("id" if "id" in columns else "checkpoint_id")
    assert plain == [pytest.approx(row, abs=1e-6) for row in shown.rows if name == "v_sessions" or row[key] < 3]
    assert all(value.tzinfo is timezone.utc for row in rows for value in row if isinstance(value, datetime))
    assert rows


def test_a_timeline_is_a_table(reader: StoreReader, checkpoint: Callable[..., Checkpoint]) -> None:
    """A row for each of its points, of the checkpoints that were asked for."""
    points = checkpoint().timeline
    with reader.records("timeline", CheckpointQuery(kind=Kind.COPY)) as found:
        rows = list(found.rows)

    assert rows == [(3, point.start_ns, point.end_ns, point.bytes) for point in points]


def test_the_offsets_of_streams_are_a_table(reader: StoreReader, checkpoint: Callable[..., Checkpoint]) -> None:
    """A row for each point, with the place of its stream."""
    points = [(place, point) for place, stream in enumerate(checkpoint().streams) for point in stream.progress]
    with reader.records("progress", CheckpointQuery(kind=Kind.COPY)) as found:
        rows = list(found.rows)

    assert {(row[1], row[2], row[5]) for row in rows} == {(place, p.start_ns, p.low_offset) for place, p in points}
    assert len(rows) == len(points) > 0


def test_accounts_are_those_of_the_verdict(reader: StoreReader, checkpoint: Callable[..., Checkpoint]) -> None:
    """Each with its limit and seconds."""
    verdict = checkpoint().verdict
    assert verdict is not None
    with reader.records("v_accounts", CheckpointQuery(kind=Kind.SAVE)) as found:
        rows = list(found.rows)

    assert sorted(row[2] for row in rows) == sorted(account.seconds for account in verdict.accounts)


def test_times_are_told_from_durations() -> None:
    """A moment is one since 1970, a length is not."""
    holds = {one.name: records._value_kind(one) for one in records._TABLES["checkpoints"].c}

    assert (holds["start_ns"], holds["durable_ns"], holds["stall_ns"]) == ("time_ns", "time_ns", "duration_ns")
    assert (holds["bytes"], holds["verdict"], holds["limit"], holds["confidence"]) == ("whole", "json", "text", "real")


def test_json_of_the_database_is_known() -> None:
    """Whatever column holds JSON is named so; a column that is new has to be looked at."""
    text = {one.name for one in records._TABLES["checkpoints"].c if records._value_kind(one) in ("text", "json")}

    assert text - records._JSON == {
        "uid", "kind", "job", "framework", "path", "mode", "level", "pattern_class", "status", "cache", "limit",
    }  # fmt: skip


def test_a_damaged_block_is_told_as_one(reader: StoreReader, db: Path) -> None:
    """By the error of the store, while rows are taken."""
    with sqlite3.connect(db) as raw:
        raw.execute("UPDATE checkpoints SET timeline = x'00ff00'")

    with reader.records("timeline", ALL) as found, pytest.raises(StoreError):
        list(found.rows)


def test_a_time_chooses(reader: StoreReader) -> None:
    """As it does for a report."""
    with reader.records("writers", CheckpointQuery(until_ns=START_NS - 1)) as found:
        assert list(found.rows) == []
