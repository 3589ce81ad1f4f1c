"""Changes of checkpoints, in their order, for who takes them elsewhere."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from ckptprof.model import Checkpoint
from ckptprof.store.writer import Retention, StoreWriter


def _outbox(db: Path) -> list[tuple[int, ...]]:
    with closing(sqlite3.connect(db)) as asked:
        return asked.execute("SELECT * FROM outbox ORDER BY change").fetchall()


def test_a_checkpoint_that_changes_takes_the_next_place(
    db: Path, writer: StoreWriter, checkpoint: Callable[..., Checkpoint]
) -> None:
    """Once, with a newer revision and the time when it began as it was told first; no place is used twice."""
    writer.add_checkpoints([checkpoint(uid="a", start_ns=7), checkpoint(uid="b", start_ns=9)])

    writer.add_checkpoints([checkpoint(uid="a", start_ns=5)])

    assert _outbox(db) == [(2, 2, 1, 9), (3, 1, 2, 7)]
    writer.add_checkpoints([checkpoint(uid="a", start_ns=5)])
    assert _outbox(db) == [(2, 2, 1, 9), (4, 1, 3, 7)]


def test_it_holds_no_more_than_there_are_checkpoints(db: Path, checkpoint: Callable[..., Checkpoint]) -> None:
    """Those that go take their place with them, and a new one has a later place."""
    with closing(StoreWriter(db, retention=Retention(max_bytes=1), ballast_bytes=0)) as writer:
        writer.add_checkpoints([checkpoint(uid=str(number)) for number in range(3)])
        writer.maintain(0)
        assert _outbox(db) == []

        writer.add_checkpoints([checkpoint(uid="new")])

    assert [row[:3] for row in _outbox(db)] == [(4, 4, 1)]
