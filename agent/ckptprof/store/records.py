"""What a question chooses: checkpoints, and each table as it is taken along, with all columns that others can read.

Every statement is said with SQLAlchemy and run by SQLite itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from sqlite3 import Connection, Cursor
from typing import Any, Literal

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from ckptprof.model import Checkpoint, CheckpointQuery, Kind, Risk
from ckptprof.store.rows import checkpoint_of, points_of, timeline_of
from ckptprof.store.series.points import read_series
from ckptprof.store.series.strips import Span
from ckptprof.store.sql import DIAGNOSIS, JSON, compiled, schema
from ckptprof.store.sql.statements import checkpoints as reading

Chosen = sa.Select[tuple[int]]
Holds = Literal["text", "json", "whole", "real", "truth", "time_ns", "duration_ns"]
_JSON = frozenset((*JSON, *DIAGNOSIS))
_DURATIONS = frozenset(("stall_ns",))
MAX_SQLITE_INT = (1 << 63) - 1
_EVENTS = schema.checkpoints
_DIALECT = sqlite.dialect(paramstyle="named")


class Field(msgspec.Struct, frozen=True):
    """One column: its name, and what its values are; each may be None."""

    name: str
    holds: Holds


class Records(msgspec.Struct, frozen=True):
    """Rows of one table, to be taken while the database is held open."""

    fields: tuple[Field, ...]
    rows: Iterator[tuple[Any, ...]]


def chosen(query: CheckpointQuery) -> Chosen:
    """Select the ids of the checkpoints that match a query, in any order."""
    table = _EVENTS.c
    statement = sa.select(table.id)
    if query.since_ns is not None:
        statement = statement.where(table.end_ns >= _clipped(query.since_ns))
    if query.until_ns is not None:
        statement = statement.where(table.start_ns <= _clipped(query.until_ns))
    if query.kind is None:
        statement = statement.where(sa.or_(table.kind != Kind.COPY.value, _is_at_risk()))
    else:
        statement = statement.where(table.kind == query.kind.value)
    if query.job is not None:
        same = table.job == query.job
        is_pattern = any(character in query.job for character in "*?[")
        matches = table.job.op("GLOB")(sa.literal(query.job.replace("[!", "[^")))
        statement = statement.where(sa.or_(same, matches) if is_pattern else same)
    if query.limit is not None:
        statement = statement.order_by(table.start_ns.desc(), table.id.desc()).limit(max(query.limit, 0))
    return statement


def _clipped(time_ns: int) -> int:
    return max(min(time_ns, MAX_SQLITE_INT), -MAX_SQLITE_INT)


def _is_at_risk() -> sa.ColumnElement[bool]:
    """Test whether a checkpoint may restore wrongly; this is reported for copies, too."""
    table, names = schema.evidence.c, [risk.value for risk in Risk]
    own = sa.select(table.ordinal).where(table.checkpoint_id == _EVENTS.c.id, table.name.in_(names))
    return own.correlate(_EVENTS).exists()


def copies_left_out(query: CheckpointQuery) -> Chosen:
    """Select the copies that match a query and are not reported for it."""
    return chosen(msgspec.structs.replace(query, kind=Kind.COPY, limit=None)).where(~_is_at_risk())


def by_id(identity: int) -> Chosen:
    """Select one checkpoint by id."""
    return sa.select(_EVENTS.c.id).where(_EVENTS.c.id == identity)


def _run(raw: Connection, statement: sa.Select[Any]) -> Cursor:
    made = statement.compile(dialect=_DIALECT, compile_kwargs={"render_postcompile": True})
    return raw.execute(str(made), made.params)


def count(raw: Connection, ids: Chosen) -> int:
    """Count the selected checkpoints."""
    return int(_run(raw, sa.select(sa.func.count()).select_from(ids.subquery())).fetchone()[0])


def checkpoints(raw: Connection, ids: Chosen, *, whole: bool) -> list[Checkpoint]:
    """Read the selected checkpoints, oldest first; `whole`: with streams, devices, measures and timelines."""
    return [checkpoint_of(*row) for row in _run(raw, reading(ids, whole=whole))]


def with_offsets(raw: Connection, ids: Chosen) -> set[int]:
    """Ids of the selected checkpoints that have stream offsets."""
    kept = sa.select(_EVENTS.c.id).where(_EVENTS.c.id.in_(ids), _EVENTS.c.progress.is_not(None))
    return {identity for (identity,) in _run(raw, kept)}


def read(raw: Connection, name: str, query: CheckpointQuery) -> Records:
    """Read the rows of a table for a query: all sessions, and the series of the query's time."""
    ids = chosen(query)
    if name == "series":
        span = (_clipped(query.since_ns or 0), _clipped(MAX_SQLITE_INT if query.until_ns is None else query.until_ns))
        return Records(_SERIES, _series(raw, span))
    if name == "timeline":
        return Records(_TIMELINE, _timeline(raw, ids))
    if name == "progress":
        return Records(_PROGRESS, _progress(raw, ids))
    source: Any = _TABLES[name]
    shown = [one for one in source.c if not isinstance(one.type, sa.LargeBinary)]
    statement = sa.select(*shown)
    if name == "checkpoints":
        statement = statement.where(source.c.id.in_(ids)).order_by(source.c.start_ns, source.c.id)
    elif name != "sessions":
        statement = statement.where(source.c.checkpoint_id.in_(ids)).order_by(source.c.checkpoint_id)
        statement = statement.order_by(source.c.ordinal) if "ordinal" in source.c else statement
    fields = tuple(Field(one.name, _holds(one)) for one in shown)
    truths = [place for place, field in enumerate(fields) if field.holds == "truth"]
    return Records(fields, (_with_truths(row, truths) for row in _run(raw, statement)))


def _with_truths(row: tuple[Any, ...], places: list[int]) -> tuple[Any, ...]:
    """Convert 0 and 1 of SQLite to bool."""
    if not places:
        return row
    return tuple(bool(value) if place in places else value for place, value in enumerate(row))


_ACCOUNTS = (
    sa.select(
        sa.column("checkpoint_id", sa.Integer),
        sa.column("limited_by", sa.Text).label("limit"),
        sa.column("seconds", sa.Float),
        sa.column("text", sa.Text),
    )
    .select_from(sa.table("v_accounts"))
    .subquery()
)
_TABLES: dict[str, Any] = {
    "checkpoints": schema.checkpoints,
    "writers": schema.writers,
    "accounts": _ACCOUNTS,
    "devices": schema.devices,
    "streams": schema.streams,
    "evidence": schema.evidence,
    "sessions": schema.sessions,
}
_SERIES = (Field("entity", "text"), Field("time_ns", "time_ns"), Field("field", "text"), Field("value", "whole"))
_TIMELINE = (
    Field("checkpoint_id", "whole"), Field("start_ns", "time_ns"), Field("end_ns", "time_ns"), Field("bytes", "whole"),
)  # fmt: skip
_PROGRESS = (
    Field("checkpoint_id", "whole"), Field("stream", "whole"), Field("start_ns", "time_ns"), Field("end_ns", "time_ns"),
    Field("bytes", "whole"), Field("low_offset", "whole"), Field("high_offset", "whole"), Field("order", "text"),
    Field("tid", "whole"),
)  # fmt: skip
NAMES = (*_TABLES, "timeline", "progress", "series")


def _holds(one: sa.Column[Any]) -> Holds:
    if isinstance(one.type, sa.Boolean):
        return "truth"
    if isinstance(one.type, sa.Float):
        return "real"
    if isinstance(one.type, sa.Text):
        return "json" if one.name in _JSON else "text"
    if not one.name.endswith("_ns"):
        return "whole"
    return "duration_ns" if one.name in _DURATIONS else "time_ns"


def _timeline(raw: Connection, ids: Chosen) -> Iterator[tuple[Any, ...]]:
    for identity, data in _blocks(raw, _EVENTS.c.timeline, ids):
        for point in timeline_of(data):
            yield identity, point.start_ns, point.end_ns, point.bytes


def _progress(raw: Connection, ids: Chosen) -> Iterator[tuple[Any, ...]]:
    """`stream` is the `ordinal` of one in `streams`."""
    for identity, data in _blocks(raw, _EVENTS.c.progress, ids):
        for stream, one in points_of(data) if data is not None else ():
            order = None if one.order is None else one.order.value
            yield identity, stream, one.start_ns, one.end_ns, one.bytes, one.low_offset, one.high_offset, order, one.tid


def _blocks(raw: Connection, block: sa.Column[bytes], ids: Chosen) -> Cursor:
    statement = sa.select(_EVENTS.c.id, block).where(_EVENTS.c.id.in_(ids))
    return _run(raw, statement.order_by(_EVENTS.c.start_ns, _EVENTS.c.id))


def _series(raw: Connection, span: Span) -> Iterator[tuple[Any, ...]]:
    for (name,) in raw.execute(compiled.ENTITIES).fetchall():
        series = read_series(raw, name, span, None, None)
        for place, time_ns in enumerate(series.times_ns):
            for field, values in series.columns.items():
                if values[place] is not None:
                    yield name, time_ns, field, values[place]
