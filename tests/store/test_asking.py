"""A question in SQL: what it finds, and that nothing else can be done by it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from ckptprof.errors import CkptprofError, UsageError
from ckptprof.model import Checkpoint
from ckptprof.store.reader import StoreReader
from ckptprof.store.writer import StoreWriter


def endless(select: str) -> str:
    """Return a statement that counts for ever, and asks this of the numbers."""
    return f"WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) {select}"  # noqa: S608 # what a user types


@pytest.fixture
def reader(writer: StoreWriter, db: Path, checkpoint: Callable[..., Checkpoint]) -> StoreReader:
    """Return a database of three checkpoints, opened."""
    writer.add_checkpoints([checkpoint(uid=str(number), step=number) for number in range(3)])
    return StoreReader(db)


def test_a_select_is_answered(reader: StoreReader) -> None:
    """By its own names of columns, in its own order."""
    answer = reader.run_query("SELECT step AS s, limited_by, NULL AS no FROM v_checkpoints ORDER BY s DESC LIMIT 2")

    assert answer.columns == ("s", "limited_by", "no")
    assert [(row[0], row[2]) for row in answer.rows] == [(2, None), (1, None)]
    assert not answer.is_truncated


@pytest.mark.parametrize(
    "attack",
    [
        "DELETE FROM checkpoints", "UPDATE checkpoints SET bytes = 0", "INSERT INTO pending VALUES ('a', 'b')",
        "DROP TABLE checkpoints", "CREATE TEMP TABLE t (x)", "ATTACH '{}' AS other", "DETACH main",
        "VACUUM INTO '{}'", "PRAGMA journal_mode = DELETE", "PRAGMA query_only = OFF", "SELECT load_extension('{}')",
        "SELECT * FROM pragma_database_list", "BEGIN", "COMMIT", "SAVEPOINT s", "REINDEX", "ANALYZE",
        "WITH x AS (SELECT 1) DELETE FROM checkpoints", "REPLACE INTO pending VALUES ('a', 'b')",
    ],
)  # fmt: skip
def test_all_else_is_refused(reader: StoreReader, db: Path, attack: str) -> None:
    """It is told that only SELECT is allowed; the database holds the same, and no file was made."""
    other = db.with_name("other.db")
    before = db.read_bytes()
    with pytest.raises(UsageError, match="only SELECT is allowed"):
        reader.run_query(attack.format(other))

    assert db.read_bytes() == before
    assert not other.exists()
    assert reader.run_query("SELECT count(*) FROM checkpoints").rows == [(3,)]


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("SELECT 1; SELECT 2", "one statement"),
        ("", "returns no rows"),
        ("-- nothing", "returns no rows"),
        ("SELEC 1", "syntax error"),
        ("SELECT nope FROM v_ranks", "no such column"),
        ("SELECT * FROM nope", "no such table"),
    ],
)
def test_what_is_no_question_is_told(reader: StoreReader, statement: str, told: str) -> None:
    """As a mistake of who asks, never as a damaged database."""
    with pytest.raises(UsageError, match=told):
        reader.run_query(statement)


def test_an_answer_is_bounded_in_rows(reader: StoreReader) -> None:
    """It is cut, and says so; one of just so many rows is whole."""
    assert reader.run_query("SELECT step FROM checkpoints", rows=2).is_truncated
    assert not reader.run_query("SELECT step FROM checkpoints", rows=3).is_truncated
    assert len(reader.run_query(endless("SELECT x FROM c"), rows=5).rows) == 5


@pytest.mark.parametrize("select", ["SELECT count(*) FROM c", "SELECT x FROM c WHERE x < 0"])
def test_an_answer_is_bounded_in_time(reader: StoreReader, select: str) -> None:
    """Whatever SQLite works out meanwhile."""
    with pytest.raises(CkptprofError, match="no result within"):
        reader.run_query(endless(select), seconds=0.05)


@pytest.mark.parametrize(
    "statement", ["SELECT randomblob(1000000000)", endless("SELECT x, hex(zeroblob(100000)) FROM c ORDER BY -x")]
)
def test_an_answer_is_bounded_in_memory(reader: StoreReader, statement: str) -> None:
    """The process that asks does not grow without end, nor does the disk fill."""
    with pytest.raises(CkptprofError):
        reader.run_query(statement, seconds=60)


def test_a_question_leaves_the_reader_as_it_was(reader: StoreReader) -> None:
    """Bounds and authorizer are those of the question alone."""
    with pytest.raises(UsageError):
        reader.run_query("PRAGMA user_version")

    assert "v_checkpoints" in reader.columns()
    assert reader.recent_paths(1)


def test_a_text_that_is_none_is_told(reader: StoreReader, db: Path) -> None:
    """A name that is no UTF-8 is written as its bytes."""
    with sqlite3.connect(db) as raw:
        raw.execute("UPDATE checkpoints SET job = CAST(x'66ff' AS TEXT) WHERE step = 1")

    assert reader.run_query("SELECT job FROM checkpoints WHERE step = 1").rows == [("f\\xff",)]


def test_tables_are_listed_with_their_columns(reader: StoreReader) -> None:
    """Views first: they are what others are to read."""
    columns = reader.columns()

    assert next(iter(columns)).startswith("v_")
    assert columns["v_ranks"][:2] == ["checkpoint_id", "rank"]
