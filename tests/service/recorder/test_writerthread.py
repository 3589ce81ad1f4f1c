"""The writer thread: what is refused blocks nothing, what was removed is begun anew, what is shared is given back."""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
from tests.patience import PATIENCE_SECONDS, wait_until

from ckptprof.detect.events.decision_table import Hypothesis
from ckptprof.detect.events.deferred import PendingEvent
from ckptprof.detect.events.event_history import HistoryEvent
from ckptprof.errors import StoreError
from ckptprof.model import Checkpoint, CheckpointQuery, Kind, Level, Pattern, Session
from ckptprof.service.recorder import writerthread
from ckptprof.service.recorder.pending import load_pending
from ckptprof.service.recorder.recorder_database import RecorderDatabase
from ckptprof.service.recorder.writerthread import WriterThread
from ckptprof.store import retention
from ckptprof.store import writer as writer_module
from ckptprof.store.problems import StoreBusyError, StoreTransientError
from ckptprof.store.reader import StoreReader
from ckptprof.store.timeline import Window
from ckptprof.store.writer import StoreWriter

NOW_NS = 1_790_000_000_000_000_000
SESSION = Session(
    uid="s", host="h", boot_id="b", kernel="k", version="1", level="poll", start_ns=NOW_NS, end_ns=NOW_NS, clean=False
)  # fmt: skip


def save(number: int, size: int = 1) -> Checkpoint:
    """Return a checkpoint."""
    return Checkpoint(
        uid=f"c{number}", kind=Kind.SAVE, job="j", framework=None, step=None, ranks=None, start_ns=NOW_NS + number,
        end_ns=NOW_NS + number + 1, bytes=size, files=1, path=f"/c{number}", writers=(), pattern=Pattern(class_=None),
        level=Level.POLL, limitations=(), evidence=(), confidence=0.5,
    )  # fmt: skip


def window(number: int, at_ns: int = NOW_NS) -> Window:
    """Return a minute of one disk with one point."""
    start_ns = at_ns // 60_000_000_000 * 60_000_000_000
    return Window(f"disk:d{number}", start_ns, ("read_ios",), [start_ns + 1], ([1],))


class Kept:
    """A writer with its database, and what it complained of."""

    def __init__(self, path: Path, *, shared: bool, waits: bool) -> None:
        self.path = path
        self.complaints: list[str] = []
        self.writer = WriterThread(
            RecorderDatabase(path, lambda: StoreWriter(path), shared=shared, retries=waits),
            complain=self.complaints.append,
        )

    def stored(self) -> list[str]:
        """Return the paths of the checkpoints in the file."""
        with StoreReader(self.path) as reader:
            return sorted(str(one.path) for one in reader.report(CheckpointQuery()).checkpoints)


@pytest.fixture
def keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Kept]]:
    """Return a maker of writers that try again soon, and close them."""
    monkeypatch.setattr(writerthread, "RETRY_SECONDS", 0.05)
    made: list[Kept] = []

    def make(*, shared: bool = False, waits: bool = False) -> Kept:
        made.append(Kept(tmp_path / "ckptprof.db", shared=shared, waits=waits))
        return made[-1]

    yield make
    for one in made:
        one.writer.close(PATIENCE_SECONDS)


@pytest.mark.parametrize("shared", [False, True])
def test_everything_put_is_stored_at_the_end(keep: Callable[..., Kept], *, shared: bool) -> None:
    """Sessions, checkpoints and timelines; `close` says that all of it was."""
    kept = keep(shared=shared)
    kept.writer.put_session(SESSION)
    kept.writer.put_checkpoints([save(1), save(2)])
    kept.writer.put_windows([window(1)])

    assert kept.writer.close(PATIENCE_SECONDS)
    assert kept.stored() == ["/c1", "/c2"]
    assert kept.complaints == []


def test_one_that_no_database_takes_blocks_no_other(keep: Callable[..., Kept]) -> None:
    """A size or time beyond 64 bits is refused for ever; all before and after it is stored, and no event is lost."""
    kept = keep()
    kept.writer.put_checkpoints([save(1), save(2, size=1 << 70), save(3)])
    kept.writer.put_windows([window(1), window(2, at_ns=1 << 90), window(3)])
    kept.writer.put_checkpoints([save(4)])

    wait_until(lambda: kept.stored() == ["/c1", "/c3", "/c4"])
    wait_until(lambda: kept.writer.queued == 1)

    assert kept.writer.dropped_windows == 1
    assert not kept.writer.close(5.0)
    assert kept.complaints


def test_a_checkpoint_does_not_wait_for_compaction(keep: Callable[..., Kept], monkeypatch: pytest.MonkeyPatch) -> None:
    """One that comes meanwhile is stored before the rest of the hours is compacted, which is done then."""
    kept = keep()
    left: list[int] = []
    compact, store = retention.compact, StoreWriter.add_checkpoints

    def minutes() -> int:
        with contextlib.closing(sqlite3.connect(kept.path)) as opened:
            return int(opened.execute("SELECT count(*) FROM minutes").fetchone()[0])

    def compacting(*arguments: Any) -> retention.CompactionResult:
        kept.writer.put_checkpoints([save(1)] if not left else [])
        return compact(*arguments)

    def storing(self: StoreWriter, *arguments: Any) -> list[Checkpoint]:
        left.append(minutes())
        return store(self, *arguments)

    kept.writer.put_windows([window(number) for number in range(50)])
    wait_until(lambda: minutes() == 50)
    monkeypatch.setattr(retention, "compact", compacting)
    monkeypatch.setattr(StoreWriter, "add_checkpoints", storing)
    monkeypatch.setattr(writerthread, "MAINTAIN_SECONDS", 0.0)
    kept.writer.put_windows([window(50)])
    wait_until(lambda: minutes() == 0)

    assert 0 < left[0] < 50
    assert kept.stored() == ["/c1"]


def test_a_fault_nobody_thought_of_does_not_end_the_thread(keep: Callable[..., Kept]) -> None:
    """It is told, and the rest is stored."""
    kept = keep()
    kept.writer.put_checkpoints([msgspec.structs.replace(save(1), evidence=(None,)), save(2)])  # type: ignore[arg-type]
    wait_until(lambda: kept.complaints)
    kept.writer._checkpoints.popleft()

    assert kept.writer.close(PATIENCE_SECONDS)
    assert kept.stored() == ["/c2"]


def test_a_removed_database_is_begun_anew(keep: Callable[..., Kept]) -> None:
    """After `rm` of the file all that follows would go into a file without a name, and be lost at the end."""
    kept = keep()
    kept.writer.put_session(SESSION)
    kept.writer.put_checkpoints([save(1)])
    wait_until(lambda: kept.writer.queued == 0)
    for path in kept.path.parent.iterdir():
        path.unlink()
    kept.writer.put_session(msgspec.structs.replace(SESSION, end_ns=NOW_NS + 5))
    kept.writer.put_checkpoints([save(2)])

    assert kept.writer.close(PATIENCE_SECONDS)
    assert kept.stored() == ["/c2"]
    with sqlite3.connect(kept.path) as database:
        assert database.execute("SELECT uid, end_ns FROM sessions").fetchall() == [("s", NOW_NS + 5)]
    database.close()


def test_two_share_a_database(keep: Callable[..., Kept]) -> None:
    """Two runs of one user, each storing now and then: neither is refused and nothing is lost."""
    one, other = keep(shared=True), keep(shared=True)
    for number in range(10):
        (one if number % 2 else other).writer.put_checkpoints([save(number)])
        time.sleep(0.01)

    assert one.writer.close(PATIENCE_SECONDS)
    assert other.writer.close(PATIENCE_SECONDS)
    assert len(one.stored()) == 10


def test_one_that_is_held_is_refused_to_others(keep: Callable[..., Kept], monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent keeps its database open: a run is told so after a moment, and the agent is not disturbed."""
    monkeypatch.setattr("ckptprof.service.recorder.recorder_database.BUSY_SECONDS", 0.2)
    agent = keep()

    with pytest.raises(StoreBusyError):
        keep(shared=True)

    agent.writer.put_checkpoints([save(1)])
    assert agent.writer.close(PATIENCE_SECONDS)
    assert agent.stored() == ["/c1"]


def test_haste_ends_the_wait_for_a_locked_database(keep: Callable[..., Kept]) -> None:
    """Another program holds SQLite's own lock: who is in a hurry gets an answer, not ten seconds of silence."""
    kept = keep()
    wait_until(lambda: kept.writer.queued == 0)
    with sqlite3.connect(kept.path, isolation_level=None) as blocker:
        blocker.execute("BEGIN IMMEDIATE")
        kept.writer.put_checkpoints([save(1)])
        asked = itertools.count()
        stored = kept.writer.close(100 * PATIENCE_SECONDS, hurried=lambda: next(asked) == 3)
        blocker.execute("ROLLBACK")
    blocker.close()

    assert not stored
    assert kept.writer.close(PATIENCE_SECONDS)


def spoil(path: Path) -> None:
    """Overwrite the table of checkpoints, in the file and for whoever reads it next."""
    with sqlite3.connect(path) as plain:
        wait_until(lambda: plain.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0)  # nobody holds it
        (page,) = plain.execute("SELECT rootpage FROM sqlite_master WHERE name = 'checkpoints'").fetchone()
        (size,) = plain.execute("PRAGMA page_size").fetchone()
    plain.close()
    with path.open("r+b") as stream:
        stream.seek((page - 1) * size)
        stream.write(b"\xff" * size)


@pytest.mark.parametrize("shared", [False, True])
def test_a_database_that_a_disk_damages_is_replaced(keep: Callable[..., Kept], *, shared: bool) -> None:
    """It is kept beside, what came after it is in a new one, and both are said."""
    kept = keep(shared=shared)
    kept.writer.put_checkpoints([save(1)])
    wait_until(lambda: kept.writer.queued == 0)
    spoil(kept.path)
    kept.writer.put_checkpoints([save(2)])
    wait_until(lambda: kept.writer.queued == 0)

    assert kept.stored() == ["/c2"]
    assert kept.writer.damaged_databases == 1
    with StoreReader(kept.path) as reader:
        (moved,) = reader.report(CheckpointQuery()).watched.set_aside
    assert Path(moved).read_bytes().count(b"\xff" * 4096) >= 1
    assert not kept.complaints or "is damaged" in kept.complaints[0]


def pending(number: int) -> PendingEvent:
    """Return an event that waits."""
    event = HistoryEvent(
        0, 1, 1, frozenset(("/#",)), frozenset((f"/c{number}",)), frozenset(((1, 2),)), frozenset(("p",))
    )
    return PendingEvent(save(number), event, "/", "boot", Hypothesis.NOTHING)


def test_what_is_not_told_yet_is_kept_until_it_is(keep: Callable[..., Kept]) -> None:
    """The next recorder finds it as it was, and what the last one left goes with the first that the next one says."""
    first, second = pending(1), pending(2)
    kept = keep()
    for waiting in ([first, second], [second], [first, second]):
        kept.writer.put_checkpoints([], waiting)
        wait_until(lambda: not kept.writer.queued)

        assert [msgspec.to_builtins(one) for one in load_pending(kept.path)] == [
            msgspec.to_builtins(one) for one in waiting
        ]
    kept.writer.put_checkpoints([save(1)], [second])
    assert kept.writer.close(PATIENCE_SECONDS)
    after = keep()
    assert [one.checkpoint.uid for one in load_pending(kept.path)] == ["c2"]
    after.writer.put_checkpoints([save(2)], [])
    assert after.writer.close(PATIENCE_SECONDS)

    assert load_pending(kept.path) == []
    assert after.stored() == ["/c1", "/c2"]


def test_what_is_told_goes_with_what_was_not(keep: Callable[..., Kept], monkeypatch: pytest.MonkeyPatch) -> None:
    """In one transaction: who dies in its midst leaves it either waiting or stored, never both and never neither."""
    kept = keep()
    kept.writer.put_checkpoints([], [pending(1)])
    wait_until(lambda: not kept.writer.queued)
    put = writer_module.put_checkpoint
    monkeypatch.setattr(writer_module, "put_checkpoint", Mock(side_effect=StoreError("it broke off")))
    kept.writer.put_checkpoints([save(1)], [])
    wait_until(lambda: kept.complaints)

    assert [one.checkpoint.uid for one in load_pending(kept.path)] == ["c1"]
    assert kept.stored() == []
    monkeypatch.setattr(writer_module, "put_checkpoint", put)
    wait_until(lambda: kept.stored() == ["/c1"])
    assert load_pending(kept.path) == []


def test_what_is_left_in_a_form_of_another_version_is_passed_over(keep: Callable[..., Kept]) -> None:
    """It costs what it held, and nothing else."""
    kept = keep()
    assert kept.writer.close(PATIENCE_SECONDS)
    writer = StoreWriter(kept.path)
    writer.add_checkpoints([], {"c1": b"\x81\xa1x\x01"})
    writer.close()

    assert load_pending(kept.path) == []


def test_a_service_waits_for_a_database_that_is_held(keep: Callable[..., Kept], tmp_path: Path) -> None:
    """It says by whom, samples on, and stores all once the other is gone."""
    with contextlib.closing(StoreWriter(tmp_path / "ckptprof.db")):
        kept = keep(waits=True)
        kept.writer.put_session(SESSION)
        kept.writer.put_checkpoints([save(1)])
        wait_until(lambda: bool(kept.complaints))
    wait_until(lambda: kept.writer.queued == 0)

    assert kept.stored() == ["/c1"]
    assert f"another ckptprof (pid {os.getpid()}, " in kept.complaints[0]


def test_what_a_new_start_alone_may_mend_ends_a_service_at_once(tmp_path: Path) -> None:
    """A mount that is read-only stays so in the mount namespace of a service that has started."""

    def read_only() -> StoreWriter:
        raise StoreTransientError("Read-only file system")

    with pytest.raises(StoreTransientError, match="Read-only"):
        RecorderDatabase(tmp_path / "ckptprof.db", read_only, shared=False, retries=True)


def test_events_are_published_within_seconds(keep: Callable[..., Kept], monkeypatch: pytest.MonkeyPatch) -> None:
    """At once if none were for so long, and together with those that come until then; timelines wait for more."""
    monkeypatch.setattr(writerthread, "PUBLISH_SECONDS", 0.2)
    published: list[int] = []
    publish = StoreWriter.publish
    kept = keep()

    def publishing(self: StoreWriter) -> None:
        published.append(len(kept.stored()))
        publish(self)

    monkeypatch.setattr(StoreWriter, "publish", publishing)
    kept.writer.put_checkpoints([save(1)])
    wait_until(lambda: published[-1:] == [1])
    kept.writer.put_checkpoints([save(2)])
    wait_until(lambda: published[-1:] == [2])
    before = len(published)
    kept.writer.put_windows([window(1)])
    wait_until(lambda: kept.writer.queued == 0)
    assert len(published) == before
