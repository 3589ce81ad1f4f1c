"""What a user who may only read the record of the service can do: read it, and hold up nothing."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from ckptprof.errors import StoreError
from ckptprof.model import Checkpoint, CheckpointQuery
from ckptprof.store import publication, retention
from ckptprof.store.lock import is_writer_alive, lock_path
from ckptprof.store.problems import StoreBusyError
from ckptprof.store.reader import StoreReader
from ckptprof.store.timeline import Window
from ckptprof.store.writer import Retention, StoreFullError, StoreWriter

_Make = Callable[..., Checkpoint]
_FIXTURES = Path(__file__).parents[1] / "fixtures" / "store"

# A member of the group: it takes a lock on a file that it may only read, says so, and holds it until its input ends
_AS_MEMBER = "import fcntl, os, sys; os.setgroups([]); os.setgid(0); os.setuid(65534)\n"
_LOCK = _AS_MEMBER + (
    "fd = os.open(sys.argv[1], os.O_RDONLY)\n"
    "if sys.argv[2] == 'flock': fcntl.flock(fd, fcntl.LOCK_SH)\n"
    "else: fcntl.lockf(fd, fcntl.LOCK_SH)\n"
    "print('held', flush=True); sys.stdin.read()\n"
)
_READ = (
    "from ckptprof.errors import StoreError; from ckptprof.model import CheckpointQuery\n"
    "from ckptprof.store import records; from ckptprof.store.reader import StoreReader\n"
    + _AS_MEMBER
    + "try: print(len(StoreReader(sys.argv[1]).report(CheckpointQuery()).checkpoints))\n"
    "except StoreError as error: print(error, error.hint)\n"
)


@pytest.fixture
def db(tmp_path: Path, make_reachable: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of a database that a group may read, as that of the service, in a folder that it may enter."""
    make_reachable(tmp_path)
    monkeypatch.setattr(publication, "file_mode", lambda _: 0o640)
    return tmp_path / "ckptprof.db"


def _member_reads(db: Path) -> str:
    done = subprocess.run([sys.executable, "-c", _READ, str(db)], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@contextmanager
def _held_by_a_member(path: Path, kind: str) -> Iterator[int]:
    """Let a member of the group hold a lock on a file within; `posix`: on all of its bytes."""
    with subprocess.Popen(
        [sys.executable, "-c", _LOCK, str(path), kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process.pid
        process.communicate()


def _count(db: Path) -> int:
    with StoreReader(db) as reader:
        return len(reader.report(CheckpointQuery()).checkpoints)


@pytest.mark.root
def test_the_group_opens_the_database_alone(db: Path, checkpoint: _Make) -> None:
    """Neither log, index nor lock, with a writer and after it: what is stored is read once it is published."""
    with closing(StoreWriter(db)) as writer:
        writer.add_checkpoints([checkpoint()])
        before, is_published = _member_reads(db), writer.is_published
        writer.publish()
        modes = {path.name: path.stat().st_mode & 0o777 for path in db.parent.iterdir()}
        alive = _member_reads(db)
        assert _count(db) == 1
    ended = _member_reads(db)

    assert modes == {
        "ckptprof.db": 0o640, "ckptprof.db.published": 0o640, "ckptprof.db-wal": 0o600, "ckptprof.db-shm": 0o600,
        "ckptprof.db.lock": 0o600,
    }  # fmt: skip
    assert (before, is_published, alive, ended) == ("0", False, "1", "1")


@pytest.mark.root
def test_no_lock_that_the_group_can_take_holds_up_the_writer(
    db: Path, checkpoint: _Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of either kind, on each file that it may open: all that a service does goes on, its next start included."""
    monkeypatch.setattr(retention, "_VACUUM_PAGES", 100)
    with ExitStack() as held:
        with closing(StoreWriter(db)) as writer:
            for path in (db, db.with_name("ckptprof.db.published")):
                for kind in ("posix", "flock"):
                    held.enter_context(_held_by_a_member(path, kind))
            writer.add_checkpoints([checkpoint(uid=str(number)) for number in range(900)])
            writer.publish()
            with closing(sqlite3.connect(db)) as other:
                other.execute("DELETE FROM checkpoints WHERE id > 3")
                other.commit()
            pages = db.stat().st_size
            assert writer.maintain(1)
            assert db.stat().st_size < pages
            for path in db.parent.iterdir():  # none that it was not given before
                assert path.stat().st_mode & 0o077 == 0 or path.name in {"ckptprof.db", "ckptprof.db.published"}
        with closing(StoreWriter(db)) as writer:
            writer.add_checkpoints([checkpoint(uid="next")])
        assert _member_reads(db) == "4"


@pytest.mark.root
def test_an_older_database_is_brought_up_to_date_under_such_a_lock(db: Path) -> None:
    """A step of the schema needs no lock on the database itself."""
    with closing(sqlite3.connect(db)) as raw:
        raw.executescript((_FIXTURES / "schema-4.sql").read_text(encoding="utf-8"))
        raw.execute("PRAGMA journal_mode = WAL")
    db.chmod(0o640)
    with _held_by_a_member(db, "posix"):
        StoreWriter(db).close()
        assert _member_reads(db) == "1"


@pytest.mark.root
def test_a_database_that_was_put_back_is_written_under_such_a_lock(db: Path, checkpoint: _Make) -> None:
    """SQLite's own backup has no log, and to begin one takes a lock on all of the file: it is written as a new file."""
    with closing(StoreWriter(db)) as writer:
        writer.add_checkpoints([checkpoint()])
    with closing(sqlite3.connect(db)) as raw:
        assert raw.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)
    with _held_by_a_member(db, "posix"):
        with closing(StoreWriter(db)) as writer:
            writer.add_checkpoints([checkpoint(uid="next")])
        assert _member_reads(db) == "2"


@pytest.mark.root
def test_what_an_older_version_let_the_group_open_is_replaced(db: Path, checkpoint: _Make) -> None:
    """The index of the log, with a lock on the byte of its writer, and the lock of the service itself."""
    with closing(StoreWriter(db)) as writer:
        writer.add_checkpoints([checkpoint()])
        copy = {path.name: path.read_bytes() for path in db.parent.iterdir()}
    for name, content in copy.items():  # as a service that was killed left them
        db.with_name(name).write_bytes(content)
        db.with_name(name).chmod(0o640)
    with ExitStack() as held:
        held.enter_context(_held_by_a_member(db.with_name("ckptprof.db-shm"), "posix"))
        held.enter_context(_held_by_a_member(lock_path(db), "flock"))
        with closing(StoreWriter(db)) as writer:
            writer.add_checkpoints([checkpoint(uid="next")])
            assert is_writer_alive(db) is True
            with pytest.raises(StoreBusyError):
                StoreWriter(db)
            assert lock_path(db).stat().st_mode & 0o777 == 0o600
        assert _count(db) == 2


def test_who_really_holds_the_database_is_named(db: Path) -> None:
    """Not the number that the file of the lock has."""
    code = (
        "import sys; from pathlib import Path; from ckptprof.store.lock import WriterLock\n"
        "held = WriterLock(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()\n"
    )
    lock_path(db).write_text("1\n")
    lock_path(db).chmod(0o600)
    with subprocess.Popen(
        [sys.executable, "-c", code, str(db)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(StoreBusyError, match=rf"another ckptprof \(pid {other.pid}, python"):
            StoreWriter(db)
        other.communicate()
    StoreWriter(db).close()


@pytest.mark.root
def test_who_may_not_open_the_lock_does_not_know_who_writes(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where systemd runs the service it says so."""
    StoreWriter(db).close()
    monkeypatch.setattr("ckptprof.store.lock.os.open", _refuse)
    assert is_writer_alive(db) is None
    monkeypatch.setattr("ckptprof.store.lock.SERVICE_DATABASE", db)
    monkeypatch.setattr("ckptprof.store.lock.is_service_running", lambda: True)
    assert is_writer_alive(db) is True


def _refuse(*_: object) -> int:
    raise PermissionError


@pytest.mark.root
def test_a_half_written_database_is_said_and_completed(
    db: Path, checkpoint: _Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a service leaves it that is killed while it brings its log into the database; the next start does the rest."""
    with closing(StoreWriter(db)) as writer:
        writer.add_checkpoints([checkpoint()])
    number = publication.read_sequence(db)
    assert number is not None
    db.with_name("ckptprof.db.published").write_bytes((number | 1).to_bytes(8, "little"))
    monkeypatch.setattr(publication, "_COPY_TIMEOUT_SECONDS", 0.0)

    with pytest.raises(StoreError, match="half written"):
        StoreReader(db)
    StoreWriter(db).close()
    assert _count(db) == 1


def test_a_copy_is_taken_between_two_checkpoints(db: Path, checkpoint: _Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that the writer overtook is thrown away, and taken again."""
    with closing(StoreWriter(db)) as writer:
        writer.add_checkpoints([checkpoint(uid="a")])
    numbers = iter([1, 2, 3, 4, 4])  # as the reader asks for it: amid a checkpoint, then before and after two copies
    asked: list[int] = []

    def number_of(_: Path) -> int:
        asked.append(next(numbers))
        return asked[-1]

    monkeypatch.setattr(publication, "read_sequence", number_of)
    monkeypatch.setattr(publication, "_RETRY_SECONDS", 0.0)

    connection, number = publication.open_copy(db)
    with closing(connection):
        assert connection.execute("SELECT count(*) FROM checkpoints").fetchone() == (1,)
    assert (number, asked) == (4, [1, 2, 3, 4, 4])


def test_a_log_that_a_reader_holds_counts(
    db: Path, checkpoint: _Make, noise: Callable[..., Window], start_ns: int
) -> None:
    """Timelines wait, events are stored; once the reader goes, the log begins anew and all goes on."""
    minutes = ([noise(start_ns + minute * 60_000_000_000)] for minute in range(1000))
    with closing(StoreWriter(db, retention=Retention(max_bytes=1 << 20), ballast_bytes=0)) as writer:
        writer.add_checkpoints([checkpoint(uid="a")])
        reader = sqlite3.connect(f"file:{db}?mode=ro", uri=True, isolation_level=None)
        with closing(reader):
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM sessions").fetchone()
            with pytest.raises(StoreFullError, match=rf"keeps the log from being reset \(pid {os.getpid()}, "):
                any(map(writer.add_windows, minutes))
            assert db.stat().st_size + db.with_name("ckptprof.db-wal").stat().st_size < 2 << 20
            writer.add_checkpoints([checkpoint(uid="b")])
            assert writer.maintain(start_ns)
            assert _count(db) == 2
        writer.add_windows([noise(start_ns)])
    assert _count(db) == 2


def test_a_reader_takes_a_newer_copy(db: Path, checkpoint: _Make) -> None:
    """As `live` does, which has the database open for hours."""
    StoreWriter(db).close()
    with StoreReader(db) as reader:  # a copy
        assert not db.with_name("ckptprof.db-shm").exists()  # which SQLite would let the group open
        with closing(StoreWriter(db)) as writer:
            writer.add_checkpoints([checkpoint()])
            writer.publish()
            assert reader.report(CheckpointQuery()).checkpoints == ()
            reader.reopen_if_newer()
            assert len(reader.report(CheckpointQuery()).checkpoints) == 1
