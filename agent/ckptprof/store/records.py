"""Selection for a query: checkpoints, and each exported view or table with all public columns.

Every statement is built with SQLAlchemy and run by SQLite directly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from sqlite3 import Connection, Cursor
from typing import Any, Literal

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from ckptprof.errors import UsageError
from ckptprof.model import Checkpoint, CheckpointQuery, Kind, Risk
from ckptprof.store.checkpoint_rows import decode_checkpoint, decode_timeline, iter_progress
from ckptprof.store.series.series_reader import read_series
from ckptprof.store.series.strips import Span
from ckptprof.store.sql import DIAGNOSIS_COLUMNS, JSON_COLUMNS, compiled, schema
from ckptprof.store.sql.statements import select_checkpoints as reading

CheckpointIds = sa.Select[tuple[int]]
ValueKind = Literal["text", "json", "whole", "real", "truth", "time", "time_ns", "duration_ns"]
_JSON = frozenset((*JSON_COLUMNS, *DIAGNOSIS_COLUMNS))
_DURATION_COLUMNS = frozenset(("stall_ns",))
MAX_SQLITE_INT = (1 << 63) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_CHECKPOINTS = schema.checkpoints
_DIALECT = sqlite.dialect(paramstyle="named")


class RecordField(msgspec.Struct, frozen=True):
    """One column: its name, and the type of its values; each may be None."""

    name: str
    value_kind: ValueKind


class Records(msgspec.Struct, frozen=True):
    """Rows of one table, to be consumed while the database is open."""

    fields: tuple[RecordField, ...]
    rows: Iterator[tuple[Any, ...]]


def select_ids(query: CheckpointQuery) -> CheckpointIds:
    """Select the ids of the checkpoints that match a query, in any order."""
    table = _CHECKPOINTS.c
    statement = sa.select(table.id)
    if query.since_ns is not None:
        statement = statement.where(table.end_ns >= _clip_to_sqlite(query.since_ns))
    if query.until_ns is not None:
        statement = statement.where(table.start_ns <= _clip_to_sqlite(query.until_ns))
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


def _clip_to_sqlite(time_ns: int) -> int:
    return max(min(time_ns, MAX_SQLITE_INT), -MAX_SQLITE_INT)


def _is_at_risk() -> sa.ColumnElement[bool]:
    """Test whether a checkpoint may restore wrongly; this is reported for copies, too."""
    table, names = schema.evidence.c, [risk.value for risk in Risk]
    own = sa.select(table.ordinal).where(table.checkpoint_id == _CHECKPOINTS.c.id, table.name.in_(names))
    return own.correlate(_CHECKPOINTS).exists()


def select_omitted_copies(query: CheckpointQuery) -> CheckpointIds:
    """Select the copies that match a query and are not reported for it."""
    return select_ids(msgspec.structs.replace(query, kind=Kind.COPY, limit=None)).where(~_is_at_risk())


def select_id(identity: int) -> CheckpointIds:
    """Select one checkpoint by id."""
    return sa.select(_CHECKPOINTS.c.id).where(_CHECKPOINTS.c.id == identity)


def _execute(raw: Connection, statement: sa.Select[Any]) -> Cursor:
    compiled_statement = statement.compile(dialect=_DIALECT, compile_kwargs={"render_postcompile": True})
    return raw.execute(str(compiled_statement), compiled_statement.params)


def count(raw: Connection, ids: CheckpointIds) -> int:
    """Count the selected checkpoints."""
    return int(_execute(raw, sa.select(sa.func.count()).select_from(ids.subquery())).fetchone()[0])


def read_checkpoints(raw: Connection, ids: CheckpointIds, *, with_details: bool) -> list[Checkpoint]:
    """Read the selected checkpoints, oldest first; `with_details`: with streams, devices, measures and timelines."""
    return [decode_checkpoint(*row) for row in _execute(raw, reading(ids, with_details=with_details))]


def read_table(raw: Connection, name: str, query: CheckpointQuery) -> Records:
    """Read the rows of a table for a query: all sessions, and the series of the query's time; raises UsageError."""
    if name not in TABLE_NAMES:
        raise UsageError(f"there is no table {name!r}", hint=f"give one of {', '.join(TABLE_NAMES)}")
    ids = select_ids(query)
    if name == "series":
        span = (
            _clip_to_sqlite(query.since_ns or 0),
            _clip_to_sqlite(MAX_SQLITE_INT if query.until_ns is None else query.until_ns),
        )
        return Records(_SERIES_FIELDS, _series_rows(raw, span))
    if name == "timeline":
        return Records(_TIMELINE_FIELDS, _timeline_rows(raw, ids))
    if name == "progress":
        return Records(_PROGRESS_FIELDS, _progress_rows(raw, ids))
    source: Any = _TABLES[name] if name in _TABLES else _view(raw, name)
    columns = [one for one in source.c if not isinstance(one.type, sa.LargeBinary)]
    statement = sa.select(*columns)
    if name in ("checkpoints", "v_checkpoints"):
        identity = sa.column("id", sa.Integer)
        start = "start_ns" if name == "checkpoints" else "start_time"
        statement = statement.where(identity.in_(ids)).order_by(sa.text(start), identity)
    elif name not in ("sessions", "v_sessions"):
        owner = sa.column("checkpoint_id", sa.Integer)
        statement = statement.where(owner.in_(ids)).order_by(owner)
        statement = statement.order_by(source.c.ordinal) if "ordinal" in source.c else statement
    fields = tuple(RecordField(str(one.name), _value_kind(one)) for one in columns)
    converters = [_CONVERTERS.get(field.value_kind) for field in fields]
    return Records(fields, (tuple(map(_convert, converters, row)) for row in _execute(raw, statement)))


def _convert(converter: Callable[[Any], Any] | None, value: Any) -> Any:
    return value if converter is None or value is None else converter(value)


def _view(raw: Connection, name: str) -> sa.TableClause:
    """Return a view; a column has the type of the tables' columns of its name, an expression is a number."""
    columns = raw.execute("SELECT name FROM pragma_table_info(?)", (name,)).fetchall()
    return sa.table(name, *(sa.column(one, _TYPES.get(one, sa.REAL())) for (one,) in columns))


_CONVERTERS: dict[ValueKind, Callable[[Any], Any]] = {
    "truth": bool,
    "time": lambda seconds: _EPOCH + timedelta(seconds=seconds),
}
_TYPES = {one.name: one.type for table in schema.metadata.tables.values() for one in table.c}
_TYPES["limited_by"] = _TYPES["limit"]  # `limit` is a keyword of SQL
_TABLES: dict[str, Any] = {
    "checkpoints": schema.checkpoints,
    "writers": schema.writers,
    "devices": schema.devices,
    "streams": schema.streams,
    "evidence": schema.evidence,
    "sessions": schema.sessions,
}
_SERIES_FIELDS = (
    RecordField("entity", "text"),
    RecordField("time_ns", "time_ns"),
    RecordField("field", "text"),
    RecordField("value", "whole"),
)
_TIMELINE_FIELDS = (
    RecordField("checkpoint_id", "whole"),
    RecordField("start_ns", "time_ns"),
    RecordField("end_ns", "time_ns"),
    RecordField("bytes", "whole"),
)
_PROGRESS_FIELDS = (
    RecordField("checkpoint_id", "whole"),
    RecordField("stream", "whole"),
    RecordField("start_ns", "time_ns"),
    RecordField("end_ns", "time_ns"),
    RecordField("bytes", "whole"),
    RecordField("low_offset", "whole"),
    RecordField("high_offset", "whole"),
    RecordField("order", "text"),
    RecordField("tid", "whole"),
)
VIEW_NAMES = ("v_checkpoints", "v_ranks", "v_accounts", "v_devices", "v_sessions")
TABLE_NAMES = (*VIEW_NAMES, *_TABLES, "timeline", "progress", "series")


def _value_kind(one: sa.ColumnElement[Any]) -> ValueKind:
    if isinstance(one.type, sa.Boolean):
        return "truth"
    if one.name.endswith("_time"):
        return "time"
    if isinstance(one.type, sa.Float):
        return "real"
    if isinstance(one.type, sa.Text):
        return "json" if one.name in _JSON else "text"
    if not one.name.endswith("_ns"):
        return "whole"
    return "duration_ns" if one.name in _DURATION_COLUMNS else "time_ns"


def _timeline_rows(raw: Connection, ids: CheckpointIds) -> Iterator[tuple[Any, ...]]:
    for identity, data in _blocks(raw, _CHECKPOINTS.c.timeline, ids):
        for point in decode_timeline(data):
            yield identity, point.start_ns, point.end_ns, point.bytes


def _progress_rows(raw: Connection, ids: CheckpointIds) -> Iterator[tuple[Any, ...]]:
    """`stream` is the `ordinal` of one in `streams`."""
    for identity, data in _blocks(raw, _CHECKPOINTS.c.progress, ids):
        for stream, one in iter_progress(data) if data is not None else ():
            order = None if one.order is None else one.order.value
            yield identity, stream, one.start_ns, one.end_ns, one.bytes, one.low_offset, one.high_offset, order, one.tid


def _blocks(raw: Connection, block: sa.Column[bytes], ids: CheckpointIds) -> Cursor:
    statement = sa.select(_CHECKPOINTS.c.id, block).where(_CHECKPOINTS.c.id.in_(ids))
    return _execute(raw, statement.order_by(_CHECKPOINTS.c.start_ns, _CHECKPOINTS.c.id))


def _series_rows(raw: Connection, span: Span) -> Iterator[tuple[Any, ...]]:
    for (name,) in raw.execute(compiled.ENTITIES).fetchall():
        series = read_series(raw, name, span, None, None)
        for place, time_ns in enumerate(series.times_ns):
            for field, values in series.columns.items():
                if values[place] is not None:
                    yield name, time_ns, field, values[place]
