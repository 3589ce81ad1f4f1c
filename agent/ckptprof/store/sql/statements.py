"""Each statement that a recorder runs, and the reading of checkpoints, which others share.

A recorder lives as long as its host, and SQLAlchemy takes 15 MB in a process: it runs the texts of `compiled`, which
are made of these by `compiled_text`. A test holds the two together.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import (
    BindParameter,
    Column,
    Delete,
    Executable,
    Float,
    Insert,
    Integer,
    Select,
    Table,
    Text,
    bindparam,
    case,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.sqlite import insert as upsert
from sqlalchemy.dialects.sqlite.base import SQLiteCompiler

from ckptprof.model import CUT_AT_END, Kind
from ckptprof.store.sql import schema
from ckptprof.store.sql.columns import (
    BLOCKS,
    BRIEF_CHILDREN,
    BRIEF_DIAGNOSIS,
    CHILDREN,
    DIAGNOSIS,
    ENTITY_BITS,
    JSON,
    PLAIN,
)

_HEAD = '''"""What `statements` says, as the SQL of SQLite. Made of it: CKPTPROF_UPDATE_GOLDEN=1 makes it anew."""
'''
_WIDTH = 88  # so that what stands before the first line has room
Statement = Executable | Mapping[str, Executable]
_TABLES = schema.metadata.tables


def _whole(name: str) -> BindParameter[int]:
    return bindparam(name, type_=Integer)


def _text(name: str) -> BindParameter[str]:
    return bindparam(name, type_=Text)


def _each(columns: Sequence[Column[Any]]) -> dict[str, BindParameter[Any]]:
    return {column.name: bindparam(column.name) for column in columns}


def _but_id(table: Table) -> list[Column[Any]]:
    return [column for column in table.c if column.name != "id"]


def checkpoints(chosen: Select[tuple[int]], *, whole: bool) -> Select[Any]:
    """Return what reads these checkpoints in the order of time, each as one JSON text; `whole`: and their blocks."""
    table = schema.checkpoints
    parts: list[Any] = [item for name in ("id", *PLAIN) for item in (name, _exact(table.c[name]))]
    for name in (*JSON, *(DIAGNOSIS if whole else BRIEF_DIAGNOSIS)):
        parts += (name, func.json(table.c[name]))
    for name in CHILDREN if whole else BRIEF_CHILDREN:
        parts += (name, _children(_TABLES[name]))
    parts += ("progress_left_out", table.c.progress_left_out) if whole else ()
    columns = [func.json_object(*parts), *((table.c.timeline, table.c.progress) if whole else ())]
    return select(*columns).where(table.c.id.in_(chosen)).order_by(table.c.start_ns, table.c.id)


def _children(table: Table) -> Any:
    """Return an SQL expression: the rows that belong to a checkpoint as a JSON array (8 times as fast as rows here)."""
    own = select(table).where(table.c.checkpoint_id == schema.checkpoints.c.id).order_by(table.c.ordinal)
    rows = own.correlate(schema.checkpoints).subquery()
    parts = [item for column in list(rows.c)[2:] for item in (column.name, _exact(column))]
    return func.json(select(func.json_group_array(func.json_object(*parts))).scalar_subquery())


def _exact(column: Any) -> Any:
    """Return the column so that JSON shows all of it: SQLite's JSON has 15 digits, a float 17."""
    if not isinstance(column.type, Float):
        return column
    is_number = func.typeof(column).in_(("real", "integer"))
    return func.json(case((is_number, func.printf("%!.17g", column)), else_=func.json_quote(column)))


def _note_change() -> Insert:
    """Return what gives a checkpoint the next change, in the place of its last one, and the next revision."""
    table = schema.outbox
    known = select(table).where(table.c.checkpoint_id == _whole("changed")).subquery()
    revision, first_start_ns = (select(known.c[name]).scalar_subquery() for name in ("revision", "first_start_ns"))
    values = {
        "checkpoint_id": _whole("changed"),
        "revision": func.coalesce(revision, 0) + 1,
        "first_start_ns": func.coalesce(first_start_ns, _whole("began_ns")),
    }
    return insert(table).prefix_with("OR REPLACE").values(values)


def _changes() -> Select[Any]:
    """Return what reads the next changes, in their order, without what the checkpoints are."""
    table = schema.outbox
    return select(table).where(table.c.change > _whole("after")).order_by(table.c.change).limit(_whole("most"))


def _paths() -> Select[tuple[str | None]]:
    """Return what reads the paths of the newest checkpoints, each once, newest first."""
    table = schema.checkpoints
    newest = func.max(table.c.start_ns)
    statement = select(table.c.path).where(table.c.path.is_not(None)).group_by(table.c.path)
    return statement.order_by(newest.desc()).limit(_whole("most"))


def _cut() -> Select[Any]:
    """Return what reads the saves of a time in whose midst the watch ended."""
    table, evidence = schema.checkpoints, schema.evidence
    of_it = (evidence.c.checkpoint_id == table.c.id, evidence.c.name == CUT_AT_END)
    ended = select(evidence.c.ordinal).where(*of_it).correlate(table).exists()
    touches = (table.c.end_ns >= _whole("since_ns"), table.c.start_ns <= _whole("until_ns"))
    chosen = select(table.c.id).where(table.c.kind == Kind.SAVE.value, *touches, ended)
    return checkpoints(chosen, whole=True)


def _put_session() -> Insert:
    columns = _but_id(schema.sessions)
    added = upsert(schema.sessions).values(_each(columns))
    return added.on_conflict_do_update(
        index_elements=["uid"], set_={column.name: added.excluded[column.name] for column in columns}
    )


def _new_name(table: Table) -> Insert:
    return upsert(table).values(_each(_but_id(table))).on_conflict_do_nothing()


def _oldest_events(*conditions: Any) -> Select[tuple[int]]:
    table = schema.checkpoints
    return select(table.c.id).where(*conditions).order_by(table.c.start_ns).limit(_whole("most"))


def _of_the_largest_owner() -> Any:
    """Return the condition for the checkpoints of the user with the most bytes; those of nobody known are one's."""
    table = schema.checkpoints
    largest = select(table.c.owner).group_by(table.c.owner).order_by(func.sum(table.c.stored_bytes).desc()).limit(1)
    return table.c.owner.is_not_distinct_from(largest.scalar_subquery())


def _of_blocks(make: Any) -> dict[str, Executable]:
    return {name: make(_TABLES[name]) for name in BLOCKS}


def _blocks(table: Table) -> Select[Any]:
    """Return what reads those of these blocks that exist; their ids are a list of JSON, however many there are."""
    ids = func.json_each(_text("ids")).table_valued("value")
    return (
        select(table.c.id, table.c.layout, table.c.data).where(table.c.id.in_(select(ids.c.value))).order_by(table.c.id)
    )


def _span(table: Table) -> Select[Any]:
    """Return what reads the first and the last id, each by the index."""
    return select(*(select(end(table.c.id)).scalar_subquery() for end in (func.min, func.max)))


def _blocks_of(table: Table) -> Select[tuple[int]]:
    """Return what looks through all blocks of a time for those of one entity."""
    own = table.c.id.op("&")((1 << ENTITY_BITS) - 1) == _whole("entity")
    return select(table.c.id).where(own, table.c.id.between(_whole("first"), _whole("last"))).order_by(table.c.id)


def _clear(table: Table) -> Delete:
    return delete(table).where(table.c.checkpoint_id == _whole("of_checkpoint"))


_EVENTS = schema.checkpoints
_EVENT_COLUMNS = _each(_but_id(_EVENTS))
_ENTITIES = schema.entities
_LAYOUTS = schema.layouts
_MEASURED = _EVENTS.c.measures.is_not(None)

STATEMENTS: dict[str, Statement] = {
    "SESSIONS": select(*_but_id(schema.sessions)).order_by(schema.sessions.c.start_ns, schema.sessions.c.id),
    "PUT_SESSION": _put_session(),
    "EXTEND_SESSION": update(schema.sessions)
    .where(schema.sessions.c.uid == _text("session"))
    .values(end_ns=func.max(schema.sessions.c.end_ns, _whole("newest_ns"))),
    "REPLACE_CHECKPOINT": update(_EVENTS)
    .where(_EVENTS.c.uid == _text("known_uid"))
    .values(_EVENT_COLUMNS)
    .returning(_EVENTS.c.id),
    "ADD_CHECKPOINT": insert(_EVENTS).values(_EVENT_COLUMNS).returning(_EVENTS.c.id),
    "NOTE_CHANGE": _note_change(),
    "CHANGES": _changes(),
    "UID_OF": select(_EVENTS.c.uid).where(_EVENTS.c.id == _whole("changed")),
    "CHANGED": checkpoints(select(_EVENTS.c.id).where(_EVENTS.c.id == _whole("changed")), whole=False),
    "COUNT_SINCE": select(func.count()).select_from(_EVENTS).where(_EVENTS.c.id > _whole("known_id")),
    "CLEAR_CHILDREN": {name: _clear(_TABLES[name]) for name in CHILDREN},
    "ADD_CHILD": {name: insert(_TABLES[name]).values(_each(list(_TABLES[name].c))) for name in CHILDREN},
    "PENDING": select(schema.untold.c.uid, schema.untold.c.data),
    "ADD_PENDING": insert(schema.untold).values(_each(list(schema.untold.c))),
    "FORGET_PENDING": delete(schema.untold).where(schema.untold.c.uid == _text("known_uid")),
    "PATHS": _paths(),
    "CUT": _cut(),
    "ENTITIES": select(_ENTITIES.c.name).order_by(_ENTITIES.c.name),
    "ADD_ENTITY": _new_name(_ENTITIES),
    "ENTITY": select(_ENTITIES.c.id).where(_ENTITIES.c.name == _text("known")),
    "SEE_ENTITY": update(_ENTITIES)
    .where(_ENTITIES.c.id == _whole("entity"))
    .values(seen_ns=func.max(_ENTITIES.c.seen_ns, _whole("newest_ns"))),
    "EXPIRE_ENTITIES": delete(_ENTITIES).where(_ENTITIES.c.seen_ns < _whole("limit_ns")),
    "ADD_LAYOUT": _new_name(_LAYOUTS),
    "LAYOUT": select(_LAYOUTS.c.id).where(_LAYOUTS.c.fields == _text("known")),
    "LAYOUTS": select(_LAYOUTS.c.id, _LAYOUTS.c.fields),
    "BLOCKS": _of_blocks(_blocks),
    "PUT_BLOCK": _of_blocks(lambda table: insert(table).prefix_with("OR REPLACE").values(_each(list(table.c)))),
    "REMOVE_BLOCK": _of_blocks(lambda table: delete(table).where(table.c.id == _whole("block"))),
    "BLOCKS_BEFORE": _of_blocks(lambda table: select(table.c.id).where(table.c.id < _whole("before"))),
    "REMOVE_BEFORE": _of_blocks(lambda table: delete(table).where(table.c.id < _whole("before"))),
    "BLOCK_SPAN": _of_blocks(_span),
    "BLOCKS_OF": _of_blocks(_blocks_of),
    "EXPIRE_MEASURES": update(_EVENTS).where(_EVENTS.c.start_ns < _whole("limit_ns"), _MEASURED).values(measures=None),
    "SHRINK_MEASURES": update(_EVENTS).where(_EVENTS.c.id.in_(_oldest_events(_MEASURED))).values(measures=None),
    "SHRINK_CHECKPOINTS": delete(_EVENTS).where(_EVENTS.c.id.in_(_oldest_events(_of_the_largest_owner()))),
}


class _Compiler(SQLiteCompiler):
    """Writes values into the text, and leaves parameters only for what is given later."""

    def visit_bindparam(self, bindparam: BindParameter[Any], *args: Any, **options: Any) -> Any:
        options["literal_binds"] = not bindparam.required
        return super().visit_bindparam(bindparam, *args, **options)  # type: ignore[no-untyped-call]

    def render_literal_value(self, value: Any, type_: Any) -> str:
        return super().render_literal_value(value, Text() if isinstance(value, str) else type_)


def compiled_text() -> str:
    """Return the text of the module `compiled`."""
    dialect = sqlite.dialect(paramstyle="named")
    dialect.statement_compiler = _Compiler

    def sql(statement: Any) -> str:
        text = " ".join(str(statement.compile(dialect=dialect)).split())
        return '"""' + textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False) + '"""'

    lines = [_HEAD]
    for name, statement in STATEMENTS.items():
        if isinstance(statement, Mapping):
            lines += [f"{name} = {{", *(f'    "{key}": {sql(one)},' for key, one in statement.items()), "}"]
        else:
            lines.append(f"{name} = {sql(statement)}")
    return "\n".join(lines) + "\n"
