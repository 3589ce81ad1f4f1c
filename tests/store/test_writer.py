"""Writing events and windows, and refusing what is not ours to write."""

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from ckptprof.errors import StoreError
from ckptprof.measures import Measures
from ckptprof.model import Checkpoint, CheckpointQuery, Evidence, Session, Stream
from ckptprof.store import quarantine
from ckptprof.store.reader import StoreReader
from ckptprof.store.timeline import TimelineBuilder
from ckptprof.store.writer import StoreWriter
from ckptprof.verdicts import Cost
from ckptprof_collectors.samples import Frame

_Make = Callable[..., Checkpoint]


def test_a_checkpoint_comes_back_whole(writer: StoreWriter, db: Path, checkpoint: _Make) -> None:
    """Every field, every float to its last bit, every integer beyond 2^53."""
    (stored,) = writer.add_checkpoints([checkpoint()])
    with StoreReader(db) as reader:
        found = reader.checkpoint(stored.id)

    assert stored == checkpoint(id=stored.id)
    assert stored.id > 0
    assert found == stored


def test_a_report_holds_all_but_the_detail(writer: StoreWriter, db: Path, checkpoint: _Make) -> None:
    """Streams, devices, timeline and measures are left to `checkpoint`."""
    (stored,) = writer.add_checkpoints([checkpoint()])
    with StoreReader(db) as reader:
        (found,) = reader.report(CheckpointQuery()).checkpoints

    assert found == msgspec.structs.replace(
        stored, streams=(), progress_left_out=0, devices=(), timeline=(), measures=None
    )


@pytest.mark.parametrize("name", ["verdict", "cost", "measures"])
def test_a_number_that_is_none_costs_the_diagnosis_and_not_the_checkpoint(
    name: str, writer: StoreWriter, db: Path, checkpoint: _Make
) -> None:
    """What must be a number and is NaN cannot be read again: that part is left out, and said; what may be None is."""
    whole = checkpoint()
    assert whole.verdict is not None
    assert whole.measures is not None
    verdict = msgspec.structs.replace(whole.verdict, seconds=math.nan)
    (device,) = whole.measures.devices
    measures = Measures(devices=(msgspec.structs.replace(device, seconds=math.inf),))
    cost = Cost(stall_seconds=math.nan, gpus=1)
    (stored,) = writer.add_checkpoints([checkpoint(**{name: {"verdict": verdict, "cost": cost}.get(name, measures)})])
    with StoreReader(db) as reader:
        found = reader.checkpoint(stored.id)

    assert found is not None
    told = [sentence for sentence in found.limitations if f"Its {name} contained an invalid number" in sentence]
    assert (getattr(found, name), len(told)) == ((Cost(gpus=1), 0) if name == "cost" else (None, 1))
    assert found.bytes == stored.bytes


def test_a_revision_replaces_and_keeps_the_id(writer: StoreWriter, db: Path, checkpoint: _Make) -> None:
    """The same uid is the same event; its old writers and streams do not stay behind."""
    first = writer.add_checkpoints([checkpoint(uid="a"), checkpoint(uid="b")])
    (revised,) = writer.add_checkpoints([checkpoint(uid="a", bytes=1, writers=(), streams=(), verdict=None)])
    with StoreReader(db) as reader:
        found = reader.checkpoint(first[0].id)
        count = len(reader.report(CheckpointQuery()).checkpoints)

    assert revised.id == first[0].id
    assert found == checkpoint(id=first[0].id, uid="a", bytes=1, writers=(), streams=(), verdict=None)
    assert count == 2


def test_ids_do_not_jump_over_revisions(writer: StoreWriter, checkpoint: _Make) -> None:
    """A checkpoint that is told again, as durable or as cleaned up, takes no second id."""
    uids = ["a", "a", "b", "a", "b", "c"]
    ids = [one.id for uid in uids for one in writer.add_checkpoints([checkpoint(uid=uid)])]

    assert ids == [1, 1, 2, 1, 2, 3]


def test_hostile_names_are_stored_as_they_are(writer: StoreWriter, db: Path, checkpoint: _Make) -> None:
    """Escape codes, markup, quotes, NUL and newlines are data."""
    name = "\x1b]0;x\x07'; DROP TABLE checkpoints;--\n[/red]</script>\x00\u202e\\xff\U0010ffff"
    (stored,) = writer.add_checkpoints(
        [checkpoint(job=name, path=name, evidence=(Evidence(name=name, weight=0.0, text=name),))]
    )
    with StoreReader(db) as reader:
        assert reader.checkpoint(stored.id) == stored
        assert len(reader.report(CheckpointQuery(job=name)).checkpoints) == 1


def test_what_cannot_be_stored_is_one_clear_error(writer: StoreWriter, db: Path, checkpoint: _Make) -> None:
    """A surrogate, a number beyond 64 bits or an infinite weight fails that call, and that call only."""
    bad = [
        checkpoint(uid="1", path="\udcff"),
        checkpoint(uid="2", bytes=1 << 70),
        checkpoint(uid="3", evidence=(Evidence(name="n", weight=float("inf"), text=""),)),
        checkpoint(uid="4", confidence=float("nan")),
    ]
    for one in bad:
        with pytest.raises(StoreError):
            writer.add_checkpoints([checkpoint(uid="good"), one])
    writer.add_checkpoints([checkpoint(uid="after")])
    with StoreReader(db) as reader:
        assert [one.uid for one in reader.report(CheckpointQuery()).checkpoints] == ["after"]


def test_streams_are_bounded_and_it_says_so(writer: StoreWriter, db: Path, checkpoint: _Make) -> None:
    """A checkpoint of 5,000 files keeps the 4,096 largest, and names that as out of sight."""
    streams = tuple(
        Stream(pid=1, comm="p", path=f"/{size}", bytes=size, size=size, start_ns=1, end_ns=2) for size in range(5000)
    )
    (stored,) = writer.add_checkpoints([checkpoint(streams=streams)])
    with StoreReader(db) as reader:
        found = reader.checkpoint(stored.id)

    assert found is not None
    assert min(stream.bytes for stream in found.streams) == 5000 - 4096
    assert "Only the 4096 largest of 5000 streams are stored." in found.limitations


def test_windows_of_one_minute_from_two_lives_become_one(
    db: Path, start_ns: int, session: Callable[..., Session], disk_frame: Callable[..., Frame]
) -> None:
    """A restart within the minute loses nothing, and moves the end of its own session only."""
    for life, seconds in enumerate(((0, 1, 2), (30, 31))):
        writer = StoreWriter(db)
        begun = start_ns + seconds[0] * 10**9
        writer.start_session(session(uid=str(life), start_ns=begun, end_ns=begun))
        builder = TimelineBuilder()
        for second in seconds:
            builder.feed(disk_frame(start_ns + second * 10**9, second))
        writer.add_windows(builder.consume(before_wall_ns=None))
        writer.close()
    with StoreReader(db) as reader:
        series = reader.series("disk:vda", 0, start_ns * 2)
        ends = [(one.end_ns - start_ns) // 10**9 for one in reader.sessions()]

    assert series.columns["io_ms"] == [0, 1, 2, 30, 31]
    assert ends == [2, 31]


def test_a_second_writer_is_refused_by_pid(writer: StoreWriter, db: Path) -> None:
    """Two agents on one database would damage it; the first goes on."""
    with pytest.raises(StoreError, match=rf"another ckptprof \(pid {os.getpid()}, .*\)"):
        StoreWriter(db)
    writer.close()
    writer.close()
    StoreWriter(db).close()


def test_another_thread_may_write(writer: StoreWriter, db: Path, checkpoint: _Make) -> None:
    """The service opens the store in one thread and writes in another."""
    thread = threading.Thread(target=lambda: writer.add_checkpoints([checkpoint()]))
    thread.start()
    thread.join()
    with StoreReader(db) as reader:
        assert len(reader.report(CheckpointQuery()).checkpoints) == 1


def test_files_are_for_the_owner_only(tmp_path: Path, checkpoint: _Make) -> None:
    """Whatever the umask: the directory 0700, the database, its log and its lock 0600."""
    db = tmp_path / "new" / "deeper" / "x.db"
    before = os.umask(0)
    try:
        writer = StoreWriter(db)
        writer.add_checkpoints([checkpoint()])
        modes = {path.name: path.stat().st_mode & 0o777 for path in db.parent.iterdir()}
        writer.close()
    finally:
        os.umask(before)

    assert modes == {"x.db": 0o600, "x.db-wal": 0o600, "x.db-shm": 0o600, "x.db.lock": 0o600}
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "content",
    [b"x", b"not a database\n" * 100, os.urandom(5000), b"\0" * 4096],
    ids=["a letter", "text", "noise", "zeros"],
)
def test_a_file_that_is_no_database_is_refused_and_kept(db: Path, content: bytes) -> None:
    """The writer must never overwrite what is not its own."""
    db.write_bytes(content)
    with pytest.raises(StoreError, match=r"is not a database|is damaged"):
        StoreWriter(db)

    assert db.read_bytes() == content


@pytest.mark.parametrize("hurt", ["its schema is gone", "its schema has a number below 0"])
def test_a_damaged_database_of_ours_is_kept_beside_a_new_one(db: Path, checkpoint: _Make, hurt: str) -> None:
    """Three of them at most; the writer goes on in the new one, and a reader says where the newest is."""
    moved = []
    for number in range(quarantine.MAX_SET_ASIDE + 2):
        with contextlib.closing(StoreWriter(db)) as writer:
            writer.add_checkpoints([checkpoint(uid=str(number))])
            moved.append(writer.set_aside_path)
        with contextlib.closing(sqlite3.connect(db)) as plain:
            if hurt == "its schema is gone":
                plain.executescript("PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = 'no'")
            else:
                plain.execute("PRAGMA user_version = -7")
    with contextlib.closing(StoreWriter(db)) as writer, StoreReader(db) as reader:
        told = reader.report(CheckpointQuery()).watched.set_aside

    assert moved[0] is None
    assert len(set(moved)) == len(moved)
    assert [Path(one) for one in told] == [*moved, writer.set_aside_path][-quarantine.MAX_SET_ASIDE :]
    assert all(Path(one).stat().st_size for one in told)


def test_changes_of_a_new_database_are_newer_than_those_of_the_damaged_one(db: Path, checkpoint: _Make) -> None:
    """However many there are: who has shipped that one takes them."""
    newest = []
    for uids in ("abc", "defgh", "i"):
        with contextlib.closing(StoreWriter(db)) as writer:
            writer.add_checkpoints([checkpoint(uid=uid) for uid in uids])
        with contextlib.closing(sqlite3.connect(db)) as plain:
            newest.append(plain.execute("SELECT min(change), max(change) FROM outbox").fetchone())
            plain.execute("PRAGMA user_version = -7")

    assert newest[0] == (1, 3)
    assert all(before[1] < after[0] for before, after in pairwise(newest))
    assert [last - first for first, last in newest] == [2, 4, 0]


@pytest.mark.root
@pytest.mark.parametrize(("what", "owner"), [("file", 0), ("link", 0), ("link", 65534)])
def test_what_another_user_put_into_a_shared_folder_is_refused(tmp_path: Path, what: str, owner: int) -> None:
    """An empty file of theirs would let them read what root records; a link of theirs would choose where it goes."""
    shared = tmp_path / "shared"
    shared.mkdir()
    os.chown(shared, owner, owner)
    shared.chmod(0o1777)
    planted = shared / "ckptprof.db"
    if what == "file":
        planted.touch()
    else:
        (tmp_path / "target").touch()
        planted.symlink_to(tmp_path / "target")
    os.chown(planted, 65534, 65534, follow_symlinks=False)

    with pytest.raises(StoreError, match="belongs to another user"):
        StoreWriter(planted)
    assert planted.stat().st_size == 0
    assert [path.name for path in shared.iterdir()] == [planted.name]


@pytest.mark.root
@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal", ".lock"])
def test_what_another_user_put_beside_a_database_is_refused(tmp_path: Path, suffix: str) -> None:
    """A log of theirs would be written to, and a journal of theirs played into our database."""
    StoreWriter(tmp_path / "x.db").close()
    before = (tmp_path / "x.db").read_bytes()
    planted = tmp_path / f"x.db{suffix}"
    planted.write_bytes(b"theirs")
    os.chown(planted, 65534, 65534)

    with pytest.raises(StoreError, match="belongs to another user"):
        StoreWriter(tmp_path / "x.db")
    assert (planted.read_bytes(), (tmp_path / "x.db").read_bytes()) == (b"theirs", before)


@pytest.mark.root
def test_a_folder_that_is_a_link_of_another_user_is_refused(tmp_path: Path) -> None:
    """It would choose in which folder root makes a file; a link of root does no harm."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    os.chown(tmp_path / "link", 65534, 65534, follow_symlinks=False)

    with pytest.raises(StoreError, match="belongs to another user"):
        StoreWriter(tmp_path / "link" / "x.db")
    assert list((tmp_path / "secret").iterdir()) == []
    os.chown(tmp_path / "link", 0, 0, follow_symlinks=False)
    StoreWriter(tmp_path / "link" / "x.db").close()
    assert (tmp_path / "secret" / "x.db").exists()


def test_what_is_swapped_between_check_and_opening_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner of the folder puts a link in the place of the database after it was checked, before SQLite opens it."""
    db, victim = tmp_path / "x.db", tmp_path / "victim.db"
    for path in (db, victim):
        StoreWriter(path).close()
    with contextlib.closing(sqlite3.connect(victim)) as plain:
        plain.execute("PRAGMA journal_mode = DELETE")
    before = victim.read_bytes()
    connect = sqlite3.connect

    def swapped(*arguments: object, **options: object) -> sqlite3.Connection:
        db.rename(tmp_path / "away")
        db.symlink_to(victim)
        return connect(*arguments, **options)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr("ckptprof.store.connection.sqlite3.connect", swapped)
    with pytest.raises(StoreError, match="was replaced while it was being opened"):
        StoreWriter(db)
    assert victim.read_bytes() == before


def test_a_database_of_another_program_is_refused_and_kept(db: Path) -> None:
    """Someone gave the wrong path."""
    with sqlite3.connect(db) as other:
        other.execute("CREATE TABLE theirs (a)")
    other.close()
    with pytest.raises(StoreError, match="is a database of another program"):
        StoreWriter(db)
    with sqlite3.connect(db) as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]
    other.close()


def test_a_directory_is_refused(tmp_path: Path) -> None:
    """By name, for both."""
    for opener in (StoreWriter, StoreReader):
        with pytest.raises(StoreError, match="is a directory"):
            opener(tmp_path)


def test_an_impossible_place_is_refused(tmp_path: Path) -> None:
    """A file where a directory should be, and a link for a lock."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="directory"):
        StoreWriter(tmp_path / "file" / "x.db")
    (tmp_path / "y.db.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError):
        StoreWriter(tmp_path / "y.db")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.root
def test_a_place_that_may_not_be_written_is_refused(db: Path, tmp_path: Path) -> None:
    """As another user: a clear line for a read-only file and for a read-only directory."""
    StoreWriter(db).close()
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:
        if parent.stat().st_uid == 0 and parent != Path(parent.anchor):
            parent.chmod(parent.stat().st_mode | 0o011)
    code = (
        "import os, sys; from ckptprof.store.writer import StoreWriter; from ckptprof.errors import StoreError\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "for path in sys.argv[1:]:\n"
        "    try: StoreWriter(path)\n"
        "    except StoreError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(db), str(tmp_path / "new.db")], capture_output=True, text=True, check=True
    )

    assert len(done.stdout.splitlines()) == 2
    assert "ermission" in done.stdout
