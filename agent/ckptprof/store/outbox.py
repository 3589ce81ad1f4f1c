"""Changes of a node's database that were not shipped yet: read-only, in order."""

from __future__ import annotations

import contextlib
import sqlite3

import msgspec
from sqlalchemy import bindparam, select

from ckptprof.model import Clock
from ckptprof.store.reader import StoreReader
from ckptprof.store.sql.schema import checkpoints
from ckptprof.store.sql.statements import render
from ckptprof.store.sql.statements import select_checkpoints as reading

MAX_BATCH_EVENTS = 500  # of a batch
FULL_BATCH_BYTES = 1 << 20  # after which a batch is full
MAX_EVENT_BYTES = 4 << 20  # no event so far had a tenth of it

_ROW_ERRORS = ("json", "could not decode", "too big")  # SQLite errors of a row that will not go away

_SELECT_CHANGED = render(
    reading(select(checkpoints.c.id).where(checkpoints.c.id == bindparam("changed")), with_details=False)
)


class ChangedCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint in its current state."""

    revision: int
    first_start_ns: int  # start as first stored, which never changes
    event: str | None  # as JSON, without streams, devices, measures and timeline; None: it cannot be read


class ChangeBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The changes to be sent next."""

    last_change: int  # its last one
    is_last: bool  # there were no further changes
    newest_id: int  # the largest id ever assigned, even if that checkpoint was deleted
    remaining_ids: int  # number of checkpoints with a larger id than queried
    events: tuple[ChangedCheckpoint, ...]


class Outbox(StoreReader):
    """Reads a database that exists; every method raises StoreError with one clear line."""

    def newest_change(self) -> int:
        """Read the number of the last change; 0: none."""
        with self._snapshot() as raw:
            return _last_sequence_number(raw, "outbox")

    def database_key(self) -> tuple[str, str] | None:
        """Name of the node, and uid of the session added first, which identifies the database; None: no session."""
        with self._snapshot() as raw:
            row = raw.execute(
                "SELECT (SELECT host FROM sessions ORDER BY id DESC LIMIT 1), uid FROM sessions ORDER BY id LIMIT 1"
            ).fetchone()
            return None if row is None else (str(row[0]), str(row[1]))

    def count_changed(self, after: int) -> int:
        """Count the checkpoints that changed after a change."""
        with self._snapshot() as raw:
            return int(raw.execute("SELECT count(*) FROM outbox WHERE change > ?", (after,)).fetchone()[0])

    def last_clock(self) -> tuple[Clock | None, int]:
        """Error bound of the clock at the last checkpoint (None: unknown), and the number of checkpoints."""
        with self._snapshot() as raw:
            (number,) = raw.execute("SELECT count(*) FROM checkpoints").fetchone()
            row = raw.execute("SELECT clock FROM checkpoints ORDER BY end_ns DESC LIMIT 1").fetchone()
        with contextlib.suppress(msgspec.MsgspecError):
            return (None if row is None or row[0] is None else msgspec.json.decode(row[0], type=Clock)), number
        return None, number

    def next_batch(self, after: int, *, newest_known_id: int) -> ChangeBatch:
        """Read the changes after one, in one snapshot; `newest_known_id`: the largest checkpoint id that is known."""
        with self._snapshot() as raw:
            rows = [
                *raw.execute("SELECT * FROM outbox WHERE change > ? ORDER BY change LIMIT ?", (after, MAX_BATCH_EVENTS))
            ]
            events: list[ChangedCheckpoint] = []
            size = read_rows = 0
            for _, *changed in rows:
                read_rows += 1
                event = _read_changed(raw, *changed)
                if event is None:
                    continue
                events.append(event)
                size += len(event.event or "")
                if size >= FULL_BATCH_BYTES:
                    break
            is_last = read_rows == len(rows) < MAX_BATCH_EVENTS
            (remaining_ids,) = raw.execute(
                "SELECT count(*) FROM checkpoints WHERE id > ?", (newest_known_id,)
            ).fetchone()
            return ChangeBatch(
                last_change=_last_sequence_number(raw, "outbox") if is_last else rows[read_rows - 1][0],
                is_last=is_last,
                newest_id=_last_sequence_number(raw, "checkpoints"),
                remaining_ids=remaining_ids,
                events=tuple(events),
            )


def _read_changed(
    raw: sqlite3.Connection, identity: int, revision: int, first_start_ns: int
) -> ChangedCheckpoint | None:
    """Read one checkpoint; None if it was deleted. A row that cannot be read does not stop the others."""
    event: str | None = None
    try:
        found = raw.execute(_SELECT_CHANGED, {"changed": identity}).fetchone()
        if found is None:
            return None
        event = found[0] if len(found[0]) <= MAX_EVENT_BYTES else None
    except sqlite3.DatabaseError as error:
        if not any(words in str(error).casefold() for words in _ROW_ERRORS):  # of the disk, or a transient one
            raise
    return ChangedCheckpoint(revision=revision, first_start_ns=first_start_ns, event=event)


def _last_sequence_number(raw: sqlite3.Connection, table: str) -> int:
    """Last number that a table has assigned, even if its row was deleted; 0: none."""
    row = raw.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
    return 0 if row is None else int(row[0])
