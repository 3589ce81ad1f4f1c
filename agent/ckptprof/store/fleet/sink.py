"""Writes a node's changes to the server: a whole batch and the position after it, or nothing.

The server stores the position in the transaction of the events: after a kill at any time nothing is lost and nothing
is duplicated, and a server restored from a backup gets the missing events again (ADR 0018).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from sqlalchemy import Connection, Text, bindparam, cast, delete, func, select, text, update
from sqlalchemy.dialects.postgresql import JSONB, insert
from sqlalchemy.exc import DBAPIError

from ckptprof.model import Session
from ckptprof.store.fleet import server_migrations
from ckptprof.store.fleet.outbox import ChangeBatch, ChangedCheckpoint, ShippedPosition
from ckptprof.store.fleet.server_connection import is_data_error, sqlstate
from ckptprof.store.fleet.server_tables import checkpoints, nodes, quarantine, sessions

_INSERT_EVENT = insert(checkpoints).values(
    first_start_ns=bindparam("first_start_ns"),
    node=bindparam("node"),
    uid=bindparam("uid"),
    revision=bindparam("revision"),
    detail=cast(bindparam("detail", type_=Text), JSONB),
)
_UPSERT_EVENT = _INSERT_EVENT.on_conflict_do_update(
    index_elements=["first_start_ns", "node", "uid"],
    set_={name: _INSERT_EVENT.excluded[name] for name in ("revision", "detail")},
    where=checkpoints.c.revision < _INSERT_EVENT.excluded.revision,
)
_INSERT_SESSION = insert(sessions)
_UPSERT_SESSION = _INSERT_SESSION.on_conflict_do_update(
    index_elements=["node", "database", "uid"],
    set_={name: _INSERT_SESSION.excluded[name] for name in Session.__struct_fields__},
    where=sessions.c.end_ns <= _INSERT_SESSION.excluded.end_ns,
)
MAX_REFUSED_BYTES = 64 << 10  # of a refused event
_MAX_REASON_CHARACTERS = 500  # characters
_MAX_UID_CHARACTERS = 200  # more than 2.7 kB do not fit into an index
_STATEMENT_TIMEOUT_MS = 60_000  # of a statement
_LOCKED = "55P03"  # lock_not_available
_DAY_NS = 86_400_000_000_000


class ServerSink:
    """One node's database on one server, during one connection; every method raises StoreError."""

    def __init__(self, connection: Connection, node: str, database: str) -> None:
        """`database`: the uid of its first session."""
        self._connection = connection
        self._key = {"node": node, "database": database}
        self._partitioned_days: set[int] = set()
        self._session_ends: dict[str, tuple[int, bool]] = {}  # uid of a session -> (its end, "clean")
        server_migrations.check_version(connection)
        connection.rollback()

    def shipped_position(self, own_sessions: Sequence[Session], newest: int) -> ShippedPosition:
        """Read how far this database was shipped; `newest` is its last change.

        A database restored from a copy lacks a session that the server has, or its end; one recreated after damage has
        fewer changes. Both are shipped from the start.
        """
        ends = {one.uid: one.end_ns for one in own_sessions}
        is_own_session = [sessions.c[name] == value for name, value in self._key.items()]
        with self._transaction():
            shipped = self._read_position(select(nodes)) or ShippedPosition()
            rows = self._connection.execute(
                select(sessions.c.uid, sessions.c.end_ns, sessions.c.clean).where(*is_own_session)
            ).all()
            if shipped.change <= newest and not any(ends.get(uid, 0) < end_ns for uid, end_ns, _ in rows):
                self._session_ends = {uid: (end_ns, clean) for uid, end_ns, clean in rows}
                return shipped
            self._connection.execute(delete(sessions).where(*is_own_session))
            self._connection.execute(update(nodes).where(*self._is_own_row()).values(change=0))
            return msgspec.structs.replace(shipped, change=0)

    def put_batch(self, batch: ChangeBatch) -> ShippedPosition:
        """Write a batch; return the position then, which differs if another shipper was faster."""
        self._add_partitions(batch.events)
        with self._transaction():
            self._connection.execute(self._insert_first_row())
            before = (
                self._read_position(select(nodes).with_for_update()) or ShippedPosition()
            )  # one at a time, of this database
            if before.change != batch.previous_change:
                return before
            for event in batch.events:
                if event.event is None:
                    self._quarantine_event(event, event.problem or "it cannot be read")
            self._insert_events([one for one in batch.events if one.event is not None])
            self._put_sessions(
                [one for one in batch.sessions if self._session_ends.get(one.uid) != (one.end_ns, one.clean)]
            )
            shipped = ShippedPosition(
                change=batch.last_change,
                last_id=max(before.last_id, batch.newest_id),
                lost=before.lost + max(0, batch.newest_id - before.last_id - batch.remaining_ids),
            )
            version = batch.sessions[-1].version if batch.sessions else ""
            values = {**msgspec.structs.asdict(shipped), "version": version, "last_seen": func.now()}
            self._connection.execute(update(nodes).where(*self._is_own_row()).values(values))
            return shipped

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Start a transaction, which fails if the tables are locked for long."""
        with self._connection.begin():
            self._connection.execute(text(f"SET LOCAL statement_timeout = {_STATEMENT_TIMEOUT_MS}"))
            yield

    def _is_own_row(self) -> list[Any]:
        return [nodes.c[name] == value for name, value in self._key.items()]

    def _insert_first_row(self) -> Any:
        row = {**self._key, **msgspec.structs.asdict(ShippedPosition()), "version": ""}
        return insert(nodes).values(row).on_conflict_do_nothing()

    def _read_position(self, statement: Any) -> ShippedPosition | None:
        row = self._connection.execute(statement.where(*self._is_own_row())).mappings().first()
        return None if row is None else ShippedPosition(change=row["change"], last_id=row["last_id"], lost=row["lost"])

    def _add_partitions(self, events: Sequence[ChangedCheckpoint]) -> None:
        """Create a partition for each day, each in its own transaction, since it is locked for that time.

        While readers block it, the rows of the day go to the default partition until the next turn.
        """
        for day in {event.first_start_ns // _DAY_NS for event in events} - self._partitioned_days:
            try:
                with self._transaction():
                    self._connection.execute(text("SELECT ckptprof.add_day(:at_ns)"), {"at_ns": day * _DAY_NS})
            except DBAPIError as error:
                if sqlstate(error) != _LOCKED:
                    raise
            self._partitioned_days.add(day)

    def _insert_events(self, events: Sequence[ChangedCheckpoint]) -> None:
        """Insert new events and replace older ones; events that the server refuses are quarantined."""
        if not events:
            return
        node = self._key["node"]
        rows = [
            {
                "node": node, "uid": one.uid, "revision": one.revision, "first_start_ns": one.first_start_ns,
                "detail": one.event,
            }
            for one in events
        ]  # fmt: skip
        try:
            with self._connection.begin_nested():
                self._connection.execute(_UPSERT_EVENT, rows)
        except DBAPIError as error:
            if not is_data_error(error):
                raise
            if len(events) == 1:
                self._quarantine_event(events[0], str(error.orig).strip())
                return
            middle = len(events) // 2
            self._insert_events(events[:middle])
            self._insert_events(events[middle:])

    def _quarantine_event(self, event: ChangedCheckpoint, reason: str) -> None:
        row = {
            "node": self._key["node"],
            "uid": _postgres_text(event.uid or f"{self._key['database']}#{event.id}")[:_MAX_UID_CHARACTERS],
            "revision": event.revision,
            "reason": _postgres_text(reason)[:_MAX_REASON_CHARACTERS],
            "event": event.event.encode()[:MAX_REFUSED_BYTES] if event.event is not None else None,
        }
        put = insert(quarantine).values(row)
        changed = {name: put.excluded[name] for name in ("revision", "reason", "event")}
        self._connection.execute(put.on_conflict_do_update(index_elements=["node", "uid"], set_=changed))

    def _put_sessions(self, batch_sessions: Sequence[Session]) -> None:
        if not batch_sessions:
            return
        rows = [{**self._key, **msgspec.structs.asdict(one)} for one in batch_sessions]
        try:
            with self._connection.begin_nested():
                self._connection.execute(_UPSERT_SESSION, rows)
        except DBAPIError as error:
            if not is_data_error(error):
                raise
            if len(batch_sessions) == 1:  # its name is in the node's own log
                return
            self._put_sessions(batch_sessions[: len(batch_sessions) // 2])
            self._put_sessions(batch_sessions[len(batch_sessions) // 2 :])


def _postgres_text(value: str) -> str:
    """Escape what PostgreSQL does not store in a text."""
    return value.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()
