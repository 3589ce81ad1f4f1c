"""Questions to the database: what they find, what they refuse, and that they leave no trace."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import queue
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import pytest

from ckptprof.errors import StoreError
from ckptprof.model import Checkpoint, CheckpointQuery, Evidence, Interval, Kind, Risk, Session
from ckptprof.store import sql_queries
from ckptprof.store.reader import StoreReader
from ckptprof.store.timeline import TimelineBuilder, Window
from ckptprof.store.writer import StoreWriter
from ckptprof_collectors.samples import Frame

_Make = Callable[..., Checkpoint]
_HOUR = 3600
_SECOND_NS = 10**9


@pytest.mark.parametrize(
    ("content", "line"),
    [(None, "no database at"), (b"", "is empty"), (b"x", "is not a database"), (b"junk" * 999, "is not a database")],
)
def test_what_is_no_database_is_said(db: Path, content: bytes | None, line: str) -> None:
    """One clear line for each, a hint, exit code 6, and nothing is made beside it."""
    if content is not None:
        db.write_bytes(content)
    before = sorted(db.parent.iterdir())
    with pytest.raises(StoreError, match=line) as caught:
        StoreReader(db)

    assert caught.value.hint
    assert caught.value.exit_code == 6
    assert sorted(db.parent.iterdir()) == before


def test_queries_choose_by_time_kind_job_and_number(writer: StoreWriter, db: Path, checkpoint: _Make) -> None:
    """Bounds take what touches them; jobs match exactly or as shell patterns; the newest are kept, oldest first."""
    writer.add_checkpoints(
        [
            checkpoint(uid="1", start_ns=10, end_ns=20, job="llm-7b", path="/a"),
            checkpoint(uid="2", start_ns=30, end_ns=40, job="llm-70b", kind=Kind.RESTORE, path="/b"),
            checkpoint(uid="3", start_ns=50, end_ns=60, job="we[i]rd*", path=None),
            checkpoint(uid="4", start_ns=70, end_ns=80, job="llm-7b", path="/a"),
        ]
    )
    with StoreReader(db) as reader:

        def uids(**query: object) -> str:
            return "".join(one.uid for one in reader.report(CheckpointQuery(**query)).checkpoints)  # type: ignore[arg-type] # any of its fields

        assert uids() == "1234"
        assert (uids(since_ns=20, until_ns=50), uids(since_ns=21, until_ns=49)) == ("123", "2")
        assert (uids(since_ns=-(1 << 80)), uids(since_ns=1 << 80)) == ("1234", "")
        assert (uids(kind=Kind.RESTORE), uids(limit=2), uids(limit=0)) == ("2", "34", "")
        assert (uids(job="llm-7b"), uids(job="llm-7"), uids(job="llm-7*"), uids(job="LLM-7*")) == ("14", "", "124", "")
        assert (uids(job="llm-?b"), uids(job="[!l]*"), uids(job="we[i]rd*"), uids(job="%")) == ("14", "3", "3", "")
        assert reader.recent_paths(5) == ["/a", "/b"]
        assert reader.recent_paths(1) == ["/a"]
        assert reader.checkpoint(99) is None
        assert reader.checkpoint(1 << 80) is None


@pytest.mark.parametrize("backwards", [False, True])
def test_what_is_read_comes_in_order(
    db: Path,
    checkpoint: _Make,
    session: Callable[..., Session],
    noise: Callable[..., Window],
    monkeypatch: pytest.MonkeyPatch,
    *,
    backwards: bool,
) -> None:
    """By time, then as it came, whichever way SQLite finds the rows: it may turn whatever has no ORDER BY."""
    connect = sqlite3.connect

    def turned(*where: Any, **how: Any) -> sqlite3.Connection:
        connection = connect(*where, **how)
        connection.execute(f"PRAGMA reverse_unordered_selects = {backwards}")
        return connection

    monkeypatch.setattr("ckptprof.store.connection.sqlite3.connect", turned)
    writer = StoreWriter(db)
    for uid, start_ns in (("2", 20), ("1", 10), ("3", 20)):
        writer.add_checkpoints([checkpoint(uid=uid, start_ns=start_ns, path=f"/{uid}")])
        writer.start_session(session(uid=uid, start_ns=start_ns))
    writer.add_windows([noise(0, entity="disk:b"), noise(0, entity="disk:a")])
    whole = checkpoint()
    with StoreReader(db) as reader:
        assert [one.uid for one in reader.report(CheckpointQuery()).checkpoints] == ["1", "2", "3"]
        assert [one.uid for one in reader.report(CheckpointQuery(limit=1)).checkpoints] == ["3"]
        assert reader.recent_paths(3)[-1] == "/1"
        assert reader.entities() == ["disk:a", "disk:b"]
        assert [one.uid for one in reader.sessions()] == ["1", "2", "3"]
        read = reader.checkpoint(1)
    writer.close()

    assert read is not None
    for name in ("writers", "streams", "devices", "evidence"):
        assert getattr(read, name) == getattr(whole, name)


def test_copies_are_left_out_unless_asked_for(writer: StoreWriter, db: Path, checkpoint: _Make) -> None:
    """And counted, of those that fit the rest of the question."""
    kinds = (Kind.SAVE, Kind.COPY, Kind.RESTORE, Kind.COPY, Kind.COPY)
    writer.add_checkpoints(
        [checkpoint(uid=str(n), start_ns=n, end_ns=n, kind=kind) for n, kind in enumerate(kinds, start=1)]
    )
    with StoreReader(db) as reader:

        def told(**query: object) -> tuple[str, int]:
            report = reader.report(CheckpointQuery(**query))  # type: ignore[arg-type] # any of its fields
            return "".join(one.uid for one in report.checkpoints), report.copies_left_out

        assert told() == ("13", 3)
        assert told(limit=1) == ("3", 3)
        assert told(until_ns=4) == ("13", 2)
        assert told(kind=Kind.COPY) == ("245", 0)
        assert told(kind=Kind.SAVE) == ("1", 0)
        assert reader.checkpoint(2) is not None


def test_a_copy_that_may_restore_wrongly_is_told(writer: StoreWriter, db: Path, checkpoint: _Make) -> None:
    """It is no longer one of those that are left out."""
    risk = Evidence(name=Risk.NOT_REPLACED.value, weight=0.0, text="it is still the base model")
    writer.add_checkpoints(
        [checkpoint(uid="1", start_ns=1, end_ns=1, kind=Kind.COPY, evidence=(risk,)),
         checkpoint(uid="2", start_ns=2, end_ns=2, kind=Kind.COPY)]
    )  # fmt: skip
    with StoreReader(db) as reader:
        report = reader.report(CheckpointQuery())

    assert [one.uid for one in report.checkpoints] == ["1"]
    assert report.copies_left_out == 1


def test_a_report_says_what_was_watched(writer: StoreWriter, db: Path, session: Callable[..., Session]) -> None:
    """Host and gaps come from the sessions; without any they are None."""
    with StoreReader(db) as reader:
        assert reader.report(CheckpointQuery()).host is None
        writer.start_session(session(uid="1", start_ns=10, end_ns=20))
        writer.update_session(session(uid="1", start_ns=10, end_ns=25, clean=True))
        writer.start_session(session(uid="2", start_ns=30, end_ns=40))
        report = reader.report(CheckpointQuery(since_ns=5))

    assert (report.host, report.watched.start_ns, report.watched.end_ns) == ("node-1", 10, 40)
    assert [(gap.start_ns, gap.end_ns) for gap in report.watched.gaps] == [(25, 30)]


def _record(writer: StoreWriter, make: Callable[..., Frame], start_ns: int, seconds: range) -> None:
    builder = TimelineBuilder()
    for second in seconds:
        builder.feed(make(start_ns + second * _SECOND_NS, second))
    writer.add_windows(builder.consume(before_wall_ns=None))


def test_lives_of_processes_with_a_pid(writer: StoreWriter, db: Path) -> None:
    """The first and the last point of each in a time, of no other pid, before and after the minutes become hours."""
    for name, first, last in (("7:100", 10, 50), ("7:900", 55, 59), ("77:100", 0, 59), ("7x:1", 0, 59)):
        times = [second * _SECOND_NS for second in (first, (first + last) // 2, last)]
        writer.add_windows([Window(f"process:{name}", 0, ("user_ticks",), times, ([1, 2, 3],))])
    with StoreReader(db) as reader:
        before = reader.lives(7, 20 * _SECOND_NS, 56 * _SECOND_NS)
    writer.maintain(3 * _HOUR * _SECOND_NS)

    with StoreReader(db) as reader:
        after = reader.lives(7, 20 * _SECOND_NS, 56 * _SECOND_NS)
        assert reader.lives(8, 0, 60 * _SECOND_NS) == []
        assert reader.lives(77, 60 * _SECOND_NS, 90 * _SECOND_NS) == []

    assert before == after == [Interval(30 * _SECOND_NS, 50 * _SECOND_NS), Interval(55 * _SECOND_NS, 55 * _SECOND_NS)]


def test_a_series_is_the_same_before_and_after_compaction(
    writer: StoreWriter, db: Path, start_ns: int, session: Callable[..., Session], disk_frame: Callable[..., Frame]
) -> None:
    """Raw, by seconds, by minutes and by hours, with the time that nobody watched left out."""
    for uid, seconds in (("1", range(0, 1000, 2)), ("2", range(2000, 5000, 2))):
        writer.start_session(session(uid=uid, start_ns=start_ns + seconds[0] * _SECOND_NS))
        _record(writer, disk_frame, start_ns, seconds)
    end_ns = start_ns + 2 * _HOUR * _SECOND_NS
    with StoreReader(db) as reader:

        def answers() -> list[object]:
            steps = (None, 7, 60, 300, 3600)
            return [reader.series("disk:vda", start_ns, end_ns, step_seconds=step) for step in steps]

        before = answers()
        writer.maintain(end_ns)
        after = answers()
        minutes = reader.series("disk:vda", start_ns + 1, end_ns, step_seconds=60)
        cut = reader.series("disk:vda", start_ns + 101 * _SECOND_NS, start_ns + 105 * _SECOND_NS)

    assert before == after
    expected = [*range(60, 998, 60), *range(2040, 4999, 60)]
    assert [(time - start_ns) // _SECOND_NS for time in minutes.times_ns] == expected
    assert minutes.columns["io_ms"] == expected
    assert cut.columns["io_ms"] == [100, 102, 104]


def test_an_unknown_entity_is_empty_and_a_step_of_nothing_an_error(writer: StoreWriter, db: Path) -> None:
    """No data is an answer; nonsense is not a question."""
    with StoreReader(db) as reader:
        assert reader.series("disk:none", 0, 10).times_ns == []
        with pytest.raises(StoreError, match="a step of 0 s"):
            reader.series("disk:none", 0, 10, step_seconds=0)


def test_a_clock_that_once_stood_at_1970_is_no_trap(
    writer: StoreWriter, db: Path, start_ns: int, disk_frame: Callable[..., Frame]
) -> None:
    """Half a century between two windows costs neither time nor memory."""
    _record(writer, disk_frame, 0, range(3))
    _record(writer, disk_frame, start_ns, range(3))
    calls = itertools.count()
    sys.setprofile(lambda *_: next(calls))
    with StoreReader(db) as reader:
        series = reader.series("disk:vda", 0, 1 << 62)
        writer.maintain(start_ns + 9000 * _SECOND_NS)
        kept = reader.series("disk:vda", 0, 1 << 62)
    sys.setprofile(None)

    assert series.columns["io_ms"] == [0, 1, 2, 0, 1, 2]
    assert kept.columns["io_ms"] == [0, 1, 2]
    assert next(calls) < 1_000_000  # there are 30 million minutes between them


def test_a_reader_can_write_nothing(writer: StoreWriter, db: Path) -> None:
    """Not even if asked."""
    with StoreReader(db) as reader, pytest.raises(Exception, match="readonly"):
        reader._connection.execute("DELETE FROM sessions")
    assert writer.path == db


def _read_many(db: str, over: Event, results: multiprocessing.Queue[int]) -> None:
    """Tell how many were not whole: of a first look at once, and of all others when it is over."""
    bad = 0
    while not over.is_set():
        with StoreReader(db) as reader:
            report = reader.report(CheckpointQuery())
            bad += sum(len(one.writers) != 2 or len(one.evidence) != 2 for one in report.checkpoints)
        results.put(bad)


def test_readers_and_the_writer_do_not_wait_for_each_other(db: Path, checkpoint: _Make) -> None:
    """Two processes read all the time while checkpoints are written and revised: each sees whole ones only."""
    writer = StoreWriter(db)
    context = multiprocessing.get_context("spawn")
    results: multiprocessing.Queue[int] = context.Queue()
    over = context.Event()
    readers = [context.Process(target=_read_many, args=(str(db), over, results)) for _ in range(2)]
    for process in readers:
        process.start()
    seen: list[int] = []
    number = 0
    while len(seen) < 50 or number < 100:  # they read while we write, and we write while they read
        writer.add_checkpoints([checkpoint(uid=str(number % 50))])
        number += 1
        with contextlib.suppress(queue.Empty):
            seen.append(results.get_nowait())
    over.set()
    for process in readers:
        while process.is_alive():  # it ends when all that it told is taken
            with contextlib.suppress(queue.Empty):
                seen.append(results.get(timeout=0.01))
        assert process.exitcode == 0
    writer.close()

    assert set(seen) == {0}


def test_a_reader_beside_a_thread_that_writes(writer: StoreWriter, db: Path, checkpoint: _Make) -> None:
    """Closing a reader in the writer's own process takes none of its locks away: another process sees the log."""
    writer.add_checkpoints([checkpoint(uid="1")])
    StoreReader(db).close()
    thread = threading.Thread(target=lambda: writer.add_checkpoints([checkpoint(uid="2")]))
    thread.start()
    thread.join()
    code = "import sqlite3, sys; print(*sqlite3.connect(sys.argv[1]).execute('SELECT count(*) FROM checkpoints'))"
    done = subprocess.run([sys.executable, "-c", code, str(db)], capture_output=True, text=True, check=True)
    writer.add_checkpoints([checkpoint(uid="3")])
    with StoreReader(db) as reader:
        assert len(reader.report(CheckpointQuery()).checkpoints) == 3
    assert done.stdout == "(2,)\n"


def _as_nobody(db: Path) -> str:
    code = (
        "import os, sys; from ckptprof.model import CheckpointQuery; from ckptprof.store.reader import StoreReader\n"
        "from ckptprof.errors import StoreError; from ckptprof.store import records\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try: print(len(StoreReader(sys.argv[1]).report(CheckpointQuery()).checkpoints))\n"
        "except StoreError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(db)], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.root
def test_another_user_reads_in_a_directory_that_is_not_theirs(
    db: Path, checkpoint: _Make, make_reachable: Callable[[Path], None]
) -> None:
    """With the writer alive, after it ended, and not at all without permission."""
    make_reachable(db.parent)
    writer = StoreWriter(db)
    writer.add_checkpoints([checkpoint()])
    refused = _as_nobody(db)
    for path in db.parent.iterdir():
        path.chmod(0o644)
    alive = _as_nobody(db)
    writer.close()
    left = sorted(path.name for path in db.parent.iterdir())
    ended = _as_nobody(db)

    assert "cannot be opened" in refused
    assert (alive, ended) == ("1", "1")
    assert left == ["ckptprof.db", "ckptprof.db.lock"]


def test_tables_that_are_views_are_refused(db: Path) -> None:
    """A hostile database may define `checkpoints` as a query that never ends."""
    StoreWriter(db).close()
    with sqlite3.connect(db) as hostile:
        hostile.execute("DROP TABLE checkpoints")
        hostile.execute(
            "CREATE VIEW checkpoints AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) SELECT x FROM n"
        )
    hostile.close()
    with pytest.raises(StoreError, match="no table 'checkpoints'"):
        StoreReader(db)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE checkpoints SET pattern = 'not json'",
        "UPDATE checkpoints SET pattern = '[1]'",
        "UPDATE checkpoints SET kind = 'other'",
        "UPDATE checkpoints SET status = 'fine'",
        "UPDATE checkpoints SET mode = 'both'",
        "UPDATE checkpoints SET moments = 'none'",
        'UPDATE checkpoints SET metadata = \'{"created": "many"}\'',
        'UPDATE checkpoints SET moments = \'{"synced_ns": "now"}\'',
        "UPDATE checkpoints SET overheads = '[{}]'",
        "UPDATE checkpoints SET written_bytes = x'00'",
        "UPDATE checkpoints SET cache = x'ff'",
        "UPDATE writers SET role = x'ff'",
        "UPDATE checkpoints SET bytes = 'many'",
        "UPDATE checkpoints SET job = x'ff00'",
        "UPDATE checkpoints SET job = CAST(x'ff00' AS TEXT)",
        "UPDATE checkpoints SET timeline = x'0102'",
        "UPDATE checkpoints SET confidence = 1e999",
        "UPDATE writers SET pid = 'x'",
        "UPDATE evidence SET weight = 'heavy'",
        "ALTER TABLE checkpoints RENAME COLUMN job TO jobs",
    ],
)
def test_rows_that_make_no_sense_are_an_error(db: Path, checkpoint: _Make, damage: str) -> None:
    """Types are checked on the way out: SQLite itself would store anything."""
    writer = StoreWriter(db)
    (stored,) = writer.add_checkpoints([checkpoint()])
    writer.close()
    with sqlite3.connect(db) as hostile:
        hostile.execute(damage)
    hostile.close()
    with StoreReader(db) as reader, pytest.raises(StoreError, match="damaged"):
        reader.checkpoint(stored.id)


def test_a_path_that_is_no_text_works(tmp_path: Path, checkpoint: _Make) -> None:
    """Directories have names of any bytes."""
    db = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff?mode=rw%00#x")) / "a b.db"
    writer = StoreWriter(db)
    writer.add_checkpoints([checkpoint()])
    with StoreReader(db) as reader:
        assert len(reader.report(CheckpointQuery()).checkpoints) == 1
    writer.close()


_SLOW = "(length(replace(hex(zeroblob(120000000)), '0', 'ab')) = 1)"


@pytest.mark.parametrize(
    "change",
    [
        f"ALTER TABLE checkpoints ADD COLUMN evil GENERATED ALWAYS AS {_SLOW} VIRTUAL",
        "CREATE TRIGGER evil AFTER INSERT ON sessions BEGIN INSERT INTO sessions SELECT * FROM sessions; END",
    ],
    ids=["a computed column", "a trigger"],
)
def test_what_runs_by_itself_is_refused(db: Path, change: str) -> None:
    """A column that is computed at each reading, a trigger at each writing: neither reader nor writer opens it."""
    StoreWriter(db).close()
    with closing(sqlite3.connect(db)) as raw:
        raw.execute(change)

    for opening in (StoreReader, StoreWriter):
        with pytest.raises(StoreError, match=r"changed by another program: it has the (computed column|trigger) '"):
            opening(db)


def test_a_value_of_any_length_is_refused(writer: StoreWriter, db: Path, checkpoint: _Make) -> None:
    """No more of it than SQLite's bound for a value, or its heap, is held in memory."""
    writer.add_checkpoints([checkpoint()])
    with closing(sqlite3.connect(db)) as raw:
        raw.execute("UPDATE checkpoints SET path = ?", ("x" * 60_000_000,))
        raw.commit()
    with StoreReader(db) as reader, pytest.raises(StoreError, match=r"too large|too much memory"):
        reader.report(CheckpointQuery())


def test_more_than_a_file_has_room_for_is_refused(
    writer: StoreWriter, db: Path, checkpoint: _Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crafted file points to one page from everywhere: its rows have no end, and its size has."""
    writer.add_checkpoints([checkpoint(uid=str(number)) for number in range(100)])
    monkeypatch.setattr(sql_queries, "_MAX_TEXT_RATIO", 0)
    monkeypatch.setattr(sql_queries, "_MAX_VALUE_BYTES", 50_000)
    with StoreReader(db) as reader, pytest.raises(StoreError, match="more text than its size allows"):
        reader.report(CheckpointQuery())


def test_a_report_of_very_many_checkpoints_asks_to_choose(
    writer: StoreWriter, db: Path, checkpoint: _Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes some kilobytes of memory; a limit is a choice."""
    writer.add_checkpoints([checkpoint(uid=str(number)) for number in range(3)])
    monkeypatch.setattr("ckptprof.store.reader._MAX_REPORT_CHECKPOINTS", 2)
    with StoreReader(db) as reader:
        with pytest.raises(StoreError, match="has 3 checkpoints of this time, more than 2") as refused:
            reader.report(CheckpointQuery())
        assert len(reader.report(CheckpointQuery(limit=3)).checkpoints) == 3
    assert "--limit" in str(refused.value.hint)


def test_what_takes_for_ever_ends(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A view of ours that was made one without an end."""
    StoreWriter(db).close()
    with closing(sqlite3.connect(db)) as raw:
        raw.executescript(
            "DROP VIEW v_accounts; CREATE VIEW v_accounts AS"
            " WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
            " SELECT i AS checkpoint_id, i AS limited_by, i AS seconds, i AS text FROM n WHERE i < 0"
        )
    monkeypatch.setattr(sql_queries, "_MIN_CPU_SECONDS", 0.05)
    with (
        StoreReader(db) as reader,
        pytest.raises(StoreError, match="takes too long"),
        reader.records("v_accounts", CheckpointQuery()) as found,
    ):
        list(found.rows)
