"""Putting what a node's database has onto the server: all of a batch and how far it was taken, or none of it.

The server keeps how far, in the transaction that takes the events: whatever is killed when, nothing is lost and nothing
is there twice, and a server that is set back to a backup is given again what it lacks (ADR 0018).
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
from ckptprof.store.fleet import steps
from ckptprof.store.fleet.connecting import is_of_data, sqlstate
from ckptprof.store.fleet.outbox import Batch, Changed, Taken
from ckptprof.store.fleet.tables import checkpoints, nodes, quarantine, sessions

_EVENT = insert(checkpoints).values(
    first_start_ns=bindparam("first_start_ns"),
    node=bindparam("node"),
    uid=bindparam("uid"),
    revision=bindparam("revision"),
    detail=cast(bindparam("detail", type_=Text), JSONB),
)
_PUT = _EVENT.on_conflict_do_update(
    index_elements=["first_start_ns", "node", "uid"],
    set_={name: _EVENT.excluded[name] for name in ("revision", "detail")},
    where=checkpoints.c.revision < _EVENT.excluded.revision,
)
_SESSION = insert(sessions)
_PUT_SESSION = _SESSION.on_conflict_do_update(
    index_elements=["node", "database", "uid"],
    set_={name: _SESSION.excluded[name] for name in Session.__struct_fields__},
    where=sessions.c.end_ns <= _SESSION.excluded.end_ns,
)
MOST_KEPT = 64 << 10  # bytes of an event that was refused
_LONGEST_REASON = 500  # characters
_LONGEST_UID = 200  # characters; more than 2.7 kB do not fit into an index
_LONGEST_MS = 60_000  # of a statement
_LOCKED = "55P03"  # lock_not_available
_DAY_NS = 86_400_000_000_000


class Sink:
    """One node's database on one server, for as long as it is connected; every method raises StoreError."""

    def __init__(self, connection: Connection, node: str, database: str) -> None:
        """`database` is told by the uid of its first session."""
        self._connection = connection
        self._key = {"node": node, "database": database}
        self._days: set[int] = set()
        self._known: dict[str, tuple[int, bool]] = {}  # by its uid, the end of a session, and whether it was clean
        steps.check(connection)
        connection.rollback()

    def taken(self, told: Sequence[Session], newest: int) -> Taken:
        """Read how far this database was shipped; `newest` is its last change.

        One that was set back to a copy lacks a session that the server has, or its end, and one that was made anew
        in the place of a damaged one has fewer changes; both are taken from their begin.
        """
        ends = {one.uid: one.end_ns for one in told}
        mine = [sessions.c[name] == value for name, value in self._key.items()]
        with self._begun():
            known = self._taken(select(nodes)) or Taken()
            rows = self._connection.execute(
                select(sessions.c.uid, sessions.c.end_ns, sessions.c.clean).where(*mine)
            ).all()
            if known.change <= newest and not any(ends.get(uid, 0) < end_ns for uid, end_ns, _ in rows):
                self._known = {uid: (end_ns, clean) for uid, end_ns, clean in rows}
                return known
            self._connection.execute(delete(sessions).where(*mine))
            self._connection.execute(update(nodes).where(*self._mine()).values(change=0))
            return msgspec.structs.replace(known, change=0)

    def put(self, batch: Batch) -> Taken:
        """Take a batch; return how far the database is taken then, which may be elsewhere: another one was faster."""
        self._make_days(batch.events)
        with self._begun():
            self._connection.execute(self._first_row())
            known = self._taken(select(nodes).with_for_update()) or Taken()  # one at a time, of this database
            if known.change != batch.after:
                return known
            for event in batch.events:
                if event.event is None:
                    self._refuse(event, event.problem or "it cannot be read")
            self._insert([one for one in batch.events if one.event is not None])
            self._put_sessions([one for one in batch.sessions if self._known.get(one.uid) != (one.end_ns, one.clean)])
            taken = Taken(
                change=batch.until,
                last_id=max(known.last_id, batch.last_id),
                lost=known.lost + max(0, batch.last_id - known.last_id - batch.kept_ids),
            )
            version = batch.sessions[-1].version if batch.sessions else ""
            values = {**msgspec.structs.asdict(taken), "version": version, "last_seen": func.now()}
            self._connection.execute(update(nodes).where(*self._mine()).values(values))
            return taken

    @contextmanager
    def _begun(self) -> Iterator[None]:
        """Begin a transaction, which ends by itself if somebody locks the tables for long."""
        with self._connection.begin():
            self._connection.execute(text(f"SET LOCAL statement_timeout = {_LONGEST_MS}"))
            yield

    def _mine(self) -> list[Any]:
        return [nodes.c[name] == value for name, value in self._key.items()]

    def _first_row(self) -> Any:
        row = {**self._key, **msgspec.structs.asdict(Taken()), "version": ""}
        return insert(nodes).values(row).on_conflict_do_nothing()

    def _taken(self, statement: Any) -> Taken | None:
        row = self._connection.execute(statement.where(*self._mine())).mappings().first()
        return None if row is None else Taken(change=row["change"], last_id=row["last_id"], lost=row["lost"])

    def _make_days(self, events: Sequence[Changed]) -> None:
        """Have a partition for each day; each in a transaction of its own, for it is locked for that long.

        Where others read for long, the rows of the day go to the partition for all other times until the next turn.
        """
        for day in {event.first_start_ns // _DAY_NS for event in events} - self._days:
            try:
                with self._begun():
                    self._connection.execute(text("SELECT ckptprof.add_day(:at_ns)"), {"at_ns": day * _DAY_NS})
            except DBAPIError as error:
                if sqlstate(error) != _LOCKED:
                    raise
            self._days.add(day)

    def _insert(self, events: Sequence[Changed]) -> None:
        """Insert what is new and replace what is older; what the server refuses is in nobody's way."""
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
                self._connection.execute(_PUT, rows)
        except DBAPIError as error:
            if not is_of_data(error):
                raise
            if len(events) == 1:
                self._refuse(events[0], str(error.orig).strip())
                return
            middle = len(events) // 2
            self._insert(events[:middle])
            self._insert(events[middle:])

    def _refuse(self, event: Changed, why: str) -> None:
        row = {
            "node": self._key["node"],
            "uid": _plain(event.uid or f"{self._key['database']}#{event.id}")[:_LONGEST_UID],
            "revision": event.revision,
            "reason": _plain(why)[:_LONGEST_REASON],
            "event": event.event.encode()[:MOST_KEPT] if event.event is not None else None,
        }
        put = insert(quarantine).values(row)
        changed = {name: put.excluded[name] for name in ("revision", "reason", "event")}
        self._connection.execute(put.on_conflict_do_update(index_elements=["node", "uid"], set_=changed))

    def _put_sessions(self, told: Sequence[Session]) -> None:
        if not told:
            return
        rows = [{**self._key, **msgspec.structs.asdict(one)} for one in told]
        try:
            with self._connection.begin_nested():
                self._connection.execute(_PUT_SESSION, rows)
        except DBAPIError as error:
            if not is_of_data(error):
                raise
            if len(told) == 1:  # its name is in the node's own log
                return
            self._put_sessions(told[: len(told) // 2])
            self._put_sessions(told[len(told) // 2 :])


def _plain(value: str) -> str:
    """Escape what PostgreSQL does not store in a text."""
    return value.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()
