"""Questions to the database: read-only, of one consistent state each, never in the agent's way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Select, create_engine, func, literal, or_, select
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from ckptprof.errors import StoreError
from ckptprof.model import Checkpoint, CheckpointQuery, Kind, Report, Risk, Session
from ckptprof.store.asking import MAX_ROWS, MAX_SECONDS, Answer, ask
from ckptprof.store.connection import snapshot
from ckptprof.store.location import shown
from ckptprof.store.migrations import LATEST
from ckptprof.store.plainreader import PlainReader
from ckptprof.store.points import read_series
from ckptprof.store.problems import translated
from ckptprof.store.quarantine import moved_aside
from ckptprof.store.records import Records, read
from ckptprof.store.rows import checkpoint_of, get_sessions
from ckptprof.store.series import Series
from ckptprof.store.sql import compiled, schema
from ckptprof.store.sql.statements import checkpoints as reading
from ckptprof.store.watched import watched

__all__ = ["Series", "StoreReader"]

_MAX_SQLITE_INT = (1 << 63) - 1
_AT_ONCE = 1000  # rows
_MOST_CHECKPOINTS = 100_000  # of a report: about 5 s and 400 MB


class StoreReader(PlainReader):
    """Opens a database that exists; every method raises StoreError with one clear line."""

    def _open(self) -> None:
        super()._open()
        engine = create_engine("sqlite://", creator=lambda: self._raw, poolclass=StaticPool)
        self._connection = engine.connect()

    def close(self) -> None:
        """Close it; a second call does nothing."""
        self._connection.close()
        self._connection.engine.dispose()
        super().close()

    def report(self, query: CheckpointQuery) -> Report:
        """Return the checkpoints that touch the query's time, oldest first; no streams, devices or timelines."""
        copies = msgspec.structs.replace(query, kind=Kind.COPY, limit=None)
        with self._reading() as connection:
            if query.limit is None and (found := _count(connection, _chosen(query))) > _MOST_CHECKPOINTS:
                raise StoreError(
                    f"{shown(self.path)} has {found:,} checkpoints of this time, more than {_MOST_CHECKPOINTS:,}",
                    hint="choose fewer with --since, --until, --job, --kind or --limit",
                )
            sessions = get_sessions(self._raw)
            checkpoints = _get(connection, _chosen(query), whole=False)
            left_out = 0 if query.kind is not None else _count(connection, _chosen(copies).where(~_is_at_risk()))
        seen = watched(sessions, query.since_ns, query.until_ns)
        seen = msgspec.structs.replace(seen, moved_aside=tuple(map(shown, moved_aside(self.path))))
        host = sessions[-1].host if sessions else None
        return Report(host=host, watched=seen, checkpoints=tuple(checkpoints), copies_left_out=left_out)

    def checkpoint(self, identity: int) -> Checkpoint | None:
        """Return one checkpoint with all that is known of it."""
        if not 0 < identity <= _MAX_SQLITE_INT:
            return None
        chosen = select(schema.checkpoints.c.id).where(schema.checkpoints.c.id == identity)
        with self._reading() as connection:
            found = _get(connection, chosen, whole=True)
            return found[0] if found else None

    def with_offsets(self, query: CheckpointQuery) -> set[int]:
        """Return the ids of the checkpoints of which it is kept where in their files their streams were."""
        table = schema.checkpoints
        kept = select(table.c.id).where(table.c.id.in_(_chosen(query)), table.c.progress.is_not(None))
        with self._reading() as connection:
            return set(connection.execute(kept).scalars())

    def id_of(self, uid: str) -> int | None:
        """Return the id of the checkpoint with a uid, which is the same in every database that has it."""
        table = schema.checkpoints
        with self._reading() as connection:
            found: int | None = connection.execute(select(table.c.id).where(table.c.uid == uid)).scalar()
            return found

    def sessions(self) -> list[Session]:
        """Return the lives of the recorders, oldest first."""
        with self._snapshot() as raw:
            return get_sessions(raw)

    def entities(self) -> list[str]:
        """Return the names of all entities with a timeline, sorted."""
        with self._snapshot() as raw:
            return [name for (name,) in raw.execute(compiled.ENTITIES)]

    def series(self, entity: str, since_ns: int, until_ns: int, *, step_seconds: int | None = None) -> Series:
        """Return the points of an entity, none if it is unknown.

        Without a step the first point may lie before `since_ns`: it says what held then. With a step of whole
        minutes the roll-ups are read, which is as fast for a month as for a day.
        """
        if step_seconds is not None and step_seconds < 1:
            raise StoreError(f"a step of {step_seconds} s makes no series")
        with self._snapshot() as raw:
            return read_series(raw, entity, (since_ns, until_ns), step_seconds)

    def ask(self, statement: str, *, seconds: float = MAX_SECONDS, rows: int = MAX_ROWS) -> Answer:
        """Return what a statement of SQL finds; raises UsageError for what is no SELECT, CkptprofError out of time."""
        with self._snapshot() as raw:
            return ask(raw, statement, seconds=seconds, rows=rows)

    def columns(self) -> dict[str, list[str]]:
        """Return the names of the columns of each table and view, views first: they are made for others to read."""
        with self._snapshot() as raw:
            named = raw.execute(
                "SELECT m.name, c.name FROM sqlite_master AS m, pragma_table_info(m.name) AS c"
                " WHERE m.type IN ('table', 'view') ORDER BY m.type = 'table', m.name, c.cid"
            )
            found: dict[str, list[str]] = {}
            for table, column in named:
                found.setdefault(str(table), []).append(str(column))
            return found

    @contextmanager
    def records(self, name: str, query: CheckpointQuery) -> Iterator[Records]:
        """Give the rows of a table that belong to what is asked for; they are read as they are taken."""
        span = (_clipped(query.since_ns or 0), _clipped(_MAX_SQLITE_INT if query.until_ns is None else query.until_ns))
        with snapshot(self._raw):  # what fails within is not the database's but in what is read
            self._bounds.begin()
            with _told(self.path):
                found = read(self._connection, name, _chosen(query), span)
            yield Records(found.fields, self._taken(found.rows))

    def _taken(self, rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        while True:
            self._bounds.go_on()
            with _told(self.path):
                some = list(islice(rows, _AT_ONCE))
            if not some:
                return
            yield from some

    def about(self) -> dict[str, str]:
        """Return what a file that is made of it should say of where it comes from."""
        sessions = self.sessions()
        return {"ckptprof.schema_version": str(LATEST), "ckptprof.host": sessions[-1].host if sessions else ""}

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with _told(self.path), snapshot(self._raw):
            self._bounds.begin()
            yield self._connection


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Turn what SQLAlchemy raises within, too, into a StoreError about `path`."""
    with translated(path):
        try:
            yield
        except DBAPIError as error:
            raise (error.orig or ValueError(str(error))) from error
        except SQLAlchemyError as error:
            raise ValueError(str(error)) from error


def _get(connection: Connection, chosen: Select[tuple[int]], *, whole: bool) -> list[Checkpoint]:
    return [checkpoint_of(*row) for row in connection.execute(reading(chosen, whole=whole))]


def _chosen(query: CheckpointQuery) -> Select[tuple[int]]:
    table = schema.checkpoints
    statement = select(table.c.id)
    if query.since_ns is not None:
        statement = statement.where(table.c.end_ns >= _clipped(query.since_ns))
    if query.until_ns is not None:
        statement = statement.where(table.c.start_ns <= _clipped(query.until_ns))
    if query.kind is None:
        statement = statement.where(or_(table.c.kind != Kind.COPY.value, _is_at_risk()))
    else:
        statement = statement.where(table.c.kind == query.kind.value)
    if query.job is not None:
        same = table.c.job == query.job
        is_pattern = any(character in query.job for character in "*?[")
        matches = table.c.job.op("GLOB")(literal(query.job.replace("[!", "[^")))
        statement = statement.where(or_(same, matches) if is_pattern else same)
    if query.limit is not None:
        statement = statement.order_by(table.c.start_ns.desc(), table.c.id.desc()).limit(max(query.limit, 0))
    return statement


def _is_at_risk() -> ColumnElement[bool]:
    """Return whether a checkpoint may restore wrongly, which is told also of a copy."""
    table, names = schema.evidence, [risk.value for risk in Risk]
    own = select(table.c.ordinal).where(table.c.checkpoint_id == schema.checkpoints.c.id, table.c.name.in_(names))
    return own.correlate(schema.checkpoints).exists()


def _count(connection: Connection, chosen: Select[tuple[int]]) -> int:
    return connection.execute(select(func.count()).select_from(chosen.subquery())).scalar_one()


def _clipped(time_ns: int) -> int:
    return max(min(time_ns, _MAX_SQLITE_INT), -_MAX_SQLITE_INT)
