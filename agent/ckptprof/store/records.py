"""Each table as it is taken along: the rows that a question chooses, with all columns that others can read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec
from sqlalchemy import Boolean, Column, Connection, Float, Integer, LargeBinary, Select, Text, column, select, table

from ckptprof.store.points import read_series
from ckptprof.store.progress import points_of
from ckptprof.store.rows import timeline_of
from ckptprof.store.series import Span
from ckptprof.store.sql import compiled, schema
from ckptprof.store.sql.columns import DIAGNOSIS, JSON

Holds = Literal["text", "json", "whole", "real", "truth", "time_ns", "duration_ns"]
_JSON = frozenset((*JSON, *DIAGNOSIS))
_DURATIONS = frozenset(("stall_ns",))
_AT_ONCE = 1000  # rows


class Field(msgspec.Struct, frozen=True):
    """One column: its name, and what its values are; each may be None."""

    name: str
    holds: Holds


class Records(msgspec.Struct, frozen=True):
    """Rows of one table, to be taken while the database is held open."""

    fields: tuple[Field, ...]
    rows: Iterator[tuple[Any, ...]]


def read(connection: Connection, name: str, chosen: Select[tuple[int]], span: Span) -> Records:
    """Return the rows of a table that belong to the chosen checkpoints; of sessions all, of series those of a span."""
    if name == "series":
        return Records(_SERIES, _series(connection.connection.driver_connection, span))
    if name == "timeline":
        return Records(_TIMELINE, _timeline(connection, chosen))
    if name == "progress":
        return Records(_PROGRESS, _progress(connection, chosen))
    source: Any = _TABLES[name]
    shown = [one for one in source.c if not isinstance(one.type, LargeBinary)]
    statement = select(*shown)
    if name == "checkpoints":
        statement = statement.where(source.c.id.in_(chosen)).order_by(source.c.start_ns, source.c.id)
    elif name != "sessions":
        statement = statement.where(source.c.checkpoint_id.in_(chosen)).order_by(source.c.checkpoint_id)
        statement = statement.order_by(source.c.ordinal) if "ordinal" in source.c else statement
    rows = connection.execution_options(yield_per=_AT_ONCE).execute(statement)
    return Records(tuple(Field(one.name, _holds(one)) for one in shown), (tuple(row) for row in rows))


_ACCOUNTS = (
    select(
        column("checkpoint_id", Integer),
        column("limited_by", Text).label("limit"),
        column("seconds", Float),
        column("text", Text),
    )
    .select_from(table("v_accounts"))
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


def _holds(one: Column[Any]) -> Holds:
    if isinstance(one.type, Boolean):
        return "truth"
    if isinstance(one.type, Float):
        return "real"
    if isinstance(one.type, Text):
        return "json" if one.name in _JSON else "text"
    if not one.name.endswith("_ns"):
        return "whole"
    return "duration_ns" if one.name in _DURATIONS else "time_ns"


def _timeline(connection: Connection, chosen: Select[tuple[int]]) -> Iterator[tuple[Any, ...]]:
    for identity, data in _blocks(connection, schema.checkpoints.c.timeline, chosen):
        for point in timeline_of(data):
            yield identity, point.start_ns, point.end_ns, point.bytes


def _progress(connection: Connection, chosen: Select[tuple[int]]) -> Iterator[tuple[Any, ...]]:
    """`stream` is the `ordinal` of one in `streams`."""
    for identity, data in _blocks(connection, schema.checkpoints.c.progress, chosen):
        for stream, one in points_of(data) if data is not None else ():
            order = None if one.order is None else one.order.value
            yield identity, stream, one.start_ns, one.end_ns, one.bytes, one.low_offset, one.high_offset, order, one.tid


def _blocks(connection: Connection, block: Column[bytes], chosen: Select[tuple[int]]) -> Iterable[Any]:
    checkpoints = schema.checkpoints
    statement = select(checkpoints.c.id, block).where(checkpoints.c.id.in_(chosen))
    return connection.execute(statement.order_by(checkpoints.c.start_ns, checkpoints.c.id))


def _series(raw: Any, span: Span) -> Iterator[tuple[Any, ...]]:
    for (name,) in raw.execute(compiled.ENTITIES).fetchall():
        series = read_series(raw, name, span, None)
        for place, time_ns in enumerate(series.times_ns):
            for field, values in series.columns.items():
                if values[place] is not None:
                    yield name, time_ns, field, values[place]
