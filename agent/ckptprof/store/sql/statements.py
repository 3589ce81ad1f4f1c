"""Each statement that a recorder runs, and the reading of checkpoints, which others share.

A recorder lives as long as its host, and SQLAlchemy takes 15 MB in a process: it runs the texts of `compiled`, which
are made of these by `compiled_text`. A test holds the two together. They are kept in the repository: made by a build,
they would need SQLAlchemy there, and every checkout a build before its first run.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.sqlite import insert as upsert
from sqlalchemy.dialects.sqlite.base import SQLiteCompiler
from sqlalchemy.schema import CreateIndex, CreateTable

from ckptprof.model import CUT_AT_END, Kind
from ckptprof.store.sql import (
    BRIEF_CHILD_TABLES,
    BRIEF_DIAGNOSIS_COLUMNS,
    CHILD_TABLES,
    DIAGNOSIS_COLUMNS,
    ENTITY_BITS,
    JSON_COLUMNS,
    PLAIN_COLUMNS,
    schema,
)

_MODULE_DOCSTRING = (
    '"""What `statements` says, as the SQL of SQLite. Generated: CKPTPROF_UPDATE_GOLDEN=1 regenerates it."""\n'
)
_WIDTH = 120
_TABLES = schema.metadata.tables
_CHECKPOINTS = schema.checkpoints
_ENTITIES = schema.entities
_BLOCKS = schema.blocks


def _integer(name: str) -> sa.BindParameter[int]:
    return sa.bindparam(name, type_=sa.Integer)


def _text(name: str) -> sa.BindParameter[str]:
    return sa.bindparam(name, type_=sa.Text)


def _bind_columns(table: sa.Table, *, except_name: str = "") -> dict[str, sa.BindParameter[Any]]:
    return {column.name: sa.bindparam(column.name) for column in table.c if column.name != except_name}


def select_checkpoints(chosen: sa.Select[tuple[int]], *, with_details: bool) -> sa.Select[Any]:
    """Select these checkpoints ordered by time, each as one JSON text; `whole`: with details and blocks."""
    table = schema.checkpoints
    parts: list[Any] = [item for name in ("id", *PLAIN_COLUMNS) for item in (name, _exact_json(table.c[name]))]
    for name in (*JSON_COLUMNS, *(DIAGNOSIS_COLUMNS if with_details else BRIEF_DIAGNOSIS_COLUMNS)):
        parts += (name, sa.func.json(table.c[name]))
    for name in CHILD_TABLES if with_details else BRIEF_CHILD_TABLES:
        parts += (name, _children(_TABLES[name]))
    parts += ("progress_left_out", table.c.progress_left_out) if with_details else ()
    columns = [sa.func.json_object(*parts), *((table.c.timeline, table.c.progress) if with_details else ())]
    return sa.select(*columns).where(table.c.id.in_(chosen)).order_by(table.c.start_ns, table.c.id)


def _children(table: sa.Table) -> Any:
    """Select the child rows of a checkpoint as a JSON array (8 times as fast as rows here)."""
    own = sa.select(table).where(table.c.checkpoint_id == schema.checkpoints.c.id).order_by(table.c.ordinal)
    rows = own.correlate(schema.checkpoints).subquery()
    parts = [item for column in list(rows.c)[2:] for item in (column.name, _exact_json(column))]
    return sa.func.json(sa.select(sa.func.json_group_array(sa.func.json_object(*parts))).scalar_subquery())


def _exact_json(column: Any) -> Any:
    """Print a float with 17 digits: SQLite's JSON has 15."""
    if not isinstance(column.type, sa.Float):
        return column
    is_number = sa.func.typeof(column).in_(("real", "integer"))
    return sa.func.json(sa.case((is_number, sa.func.printf("%!.17g", column)), else_=sa.func.json_quote(column)))


def _record_change() -> sa.Insert:
    """Replace the last change of a checkpoint by the next one, with the next revision."""
    table = schema.outbox
    previous = sa.select(table).where(table.c.checkpoint_id == _integer("changed")).subquery()
    revision, first_start_ns = (
        sa.select(previous.c[name]).scalar_subquery() for name in ("revision", "first_start_ns")
    )
    values = {
        "checkpoint_id": _integer("changed"),
        "revision": sa.func.coalesce(revision, 0) + 1,
        "first_start_ns": sa.func.coalesce(first_start_ns, _integer("began_ns")),
    }
    return sa.insert(table).prefix_with("OR REPLACE").values(values)


def _paths() -> sa.Select[tuple[str | None]]:
    """Select the paths of the newest checkpoints, each once, newest first."""
    path = _CHECKPOINTS.c.path
    newest = sa.func.max(_CHECKPOINTS.c.start_ns).desc()
    return sa.select(path).where(path.is_not(None)).group_by(path).order_by(newest).limit(_integer("most"))


def _interrupted_saves() -> sa.Select[Any]:
    """Select the saves of a time that were in progress when recording ended."""
    table, evidence = schema.checkpoints, schema.evidence
    is_marker = (evidence.c.checkpoint_id == table.c.id, evidence.c.name == CUT_AT_END)
    is_interrupted = sa.select(evidence.c.ordinal).where(*is_marker).correlate(table).exists()
    touches = (table.c.end_ns >= _integer("since_ns"), table.c.start_ns <= _integer("until_ns"))
    return select_checkpoints(
        sa.select(table.c.id).where(table.c.kind == Kind.SAVE.value, *touches, is_interrupted), with_details=True
    )


def _put_session() -> sa.Insert:
    added = upsert(schema.sessions).values(_bind_columns(schema.sessions, except_name="id"))
    changed = {column.name: added.excluded[column.name] for column in schema.sessions.c if column.name != "id"}
    return added.on_conflict_do_update(index_elements=["uid"], set_=changed)


def _insert_name(table: sa.Table) -> sa.Insert:
    return upsert(table).values(_bind_columns(table, except_name="id")).on_conflict_do_nothing()


def _oldest_events(*conditions: Any) -> sa.Select[tuple[int]]:
    return sa.select(_CHECKPOINTS.c.id).where(*conditions).order_by(_CHECKPOINTS.c.start_ns).limit(_integer("most"))


def _is_of_largest_owner() -> Any:
    """Condition for the checkpoints of the user with the most bytes; unknown users count as one."""
    owner, most = _CHECKPOINTS.c.owner, sa.func.sum(_CHECKPOINTS.c.stored_bytes).desc()
    return owner.is_not_distinct_from(sa.select(owner).group_by(owner).order_by(most).limit(1).scalar_subquery())


def _blocks() -> sa.Select[Any]:
    """Select existing blocks by id; the ids are a JSON list of any length."""
    ids = sa.func.json_each(_text("ids")).table_valued("value")
    return sa.select(_BLOCKS).where(_BLOCKS.c.id.in_(sa.select(ids.c.value))).order_by(_BLOCKS.c.id)


def _entity_blocks() -> sa.Select[tuple[int]]:
    """Scan all blocks of a time for those of one entity."""
    own = _BLOCKS.c.id.op("&")((1 << ENTITY_BITS) - 1) == _integer("entity")
    within = _BLOCKS.c.id.between(_integer("first"), _integer("last"))
    return sa.select(_BLOCKS.c.id).where(own, within).order_by(_BLOCKS.c.id)


def _statements() -> dict[str, sa.Executable | Mapping[str, sa.Executable]]:
    sessions, pending, layouts = schema.sessions, schema.pending, schema.layouts
    measured = _CHECKPOINTS.c.measures.is_not(None)
    return {
        "TABLES": {table.name: CreateTable(table) for table in schema.metadata.sorted_tables},
        "BLOCK_TABLE": CreateTable(_BLOCKS),
        "INDEXES": {
            str(index.name): CreateIndex(index)
            for index in sorted(_CHECKPOINTS.indexes, key=lambda one: str(one.name), reverse=True)
        },
        "SESSIONS": sa.select(*(column for column in sessions.c if column.name != "id")).order_by(
            sessions.c.start_ns, sessions.c.id
        ),
        "PUT_SESSION": _put_session(),
        "EXTEND_SESSION": sa.update(sessions)
        .where(sessions.c.uid == _text("session"))
        .values(end_ns=sa.func.max(sessions.c.end_ns, _integer("newest_ns"))),
        "REPLACE_CHECKPOINT": sa.update(_CHECKPOINTS)
        .where(_CHECKPOINTS.c.uid == _text("known_uid"))
        .values(_bind_columns(_CHECKPOINTS, except_name="id"))
        .returning(_CHECKPOINTS.c.id),
        "ADD_CHECKPOINT": sa.insert(_CHECKPOINTS)
        .values(_bind_columns(_CHECKPOINTS, except_name="id"))
        .returning(_CHECKPOINTS.c.id),
        "RECORD_CHANGE": _record_change(),
        "ID_OF": sa.select(_CHECKPOINTS.c.id).where(_CHECKPOINTS.c.uid == _text("known_uid")),
        "CLEAR_CHILDREN": {
            name: sa.delete(_TABLES[name]).where(_TABLES[name].c.checkpoint_id == _integer("of_checkpoint"))
            for name in CHILD_TABLES
        },
        "ADD_CHILD": {name: sa.insert(_TABLES[name]).values(_bind_columns(_TABLES[name])) for name in CHILD_TABLES},
        "PENDING": sa.select(pending.c.uid, pending.c.data),
        "ADD_PENDING": sa.insert(pending).values(_bind_columns(pending)),
        "FORGET_PENDING": sa.delete(pending).where(pending.c.uid == _text("known_uid")),
        "PATHS": _paths(),
        "INTERRUPTED_SAVES": _interrupted_saves(),
        "ENTITIES": sa.select(_ENTITIES.c.name).order_by(_ENTITIES.c.name),
        "ADD_ENTITY": _insert_name(_ENTITIES),
        "ENTITY": sa.select(_ENTITIES.c.id).where(_ENTITIES.c.name == _text("known")),
        "UPDATE_ENTITY": sa.update(_ENTITIES)
        .where(_ENTITIES.c.id == _integer("entity"))
        .values(observed_ns=sa.func.max(_ENTITIES.c.observed_ns, _integer("newest_ns"))),
        "EXPIRE_ENTITIES": sa.delete(_ENTITIES).where(_ENTITIES.c.observed_ns < _integer("limit_ns")),
        "ADD_LAYOUT": _insert_name(layouts),
        "LAYOUT": sa.select(layouts.c.id).where(layouts.c.fields == _text("known")),
        "LAYOUTS": sa.select(layouts.c.id, layouts.c.fields),
        "BLOCKS": _blocks(),
        "PUT_BLOCK": sa.insert(_BLOCKS).prefix_with("OR REPLACE").values(_bind_columns(_BLOCKS)),
        "REMOVE_BLOCK": sa.delete(_BLOCKS).where(_BLOCKS.c.id == _integer("block")),
        "BLOCKS_BEFORE": sa.select(_BLOCKS.c.id).where(_BLOCKS.c.id < _integer("before")),
        "REMOVE_BEFORE": sa.delete(_BLOCKS).where(_BLOCKS.c.id < _integer("before")),
        "BLOCK_SPAN": sa.select(
            *(sa.select(end(_BLOCKS.c.id)).scalar_subquery() for end in (sa.func.min, sa.func.max))
        ),  # each by the index
        "BLOCKS_OF": _entity_blocks(),
        "EXPIRE_MEASURES": sa.update(_CHECKPOINTS)
        .where(_CHECKPOINTS.c.start_ns < _integer("limit_ns"), measured)
        .values(measures=None),
        "SHRINK_MEASURES": sa.update(_CHECKPOINTS)
        .where(_CHECKPOINTS.c.id.in_(_oldest_events(measured)))
        .values(measures=None),
        "SHRINK_CHECKPOINTS": sa.delete(_CHECKPOINTS).where(
            _CHECKPOINTS.c.id.in_(_oldest_events(_is_of_largest_owner()))
        ),
    }


class _LiteralCompiler(SQLiteCompiler):
    """Writes values into the text, and leaves parameters only for what is given later."""

    def visit_bindparam(self, bindparam: sa.BindParameter[Any], *args: Any, **options: Any) -> Any:
        options["literal_binds"] = not bindparam.required
        return super().visit_bindparam(bindparam, *args, **options)  # type: ignore[no-untyped-call]

    def render_literal_value(self, value: Any, type_: Any) -> str:
        return super().render_literal_value(value, sa.Text() if isinstance(value, str) else type_)


def render(statement: Any) -> str:
    """Render a statement with named parameters, on one line."""
    dialect = sqlite.dialect(paramstyle="named")
    dialect.statement_compiler = _LiteralCompiler
    return " ".join(str(statement.compile(dialect=dialect)).split())


def compiled_text() -> str:
    """Render the module `compiled`."""
    return "\n".join((_MODULE_DOCSTRING, *_lines(_statements().items()), ""))


def _lines(statements: Iterable[tuple[str, Any]]) -> Iterable[str]:
    for name, statement in statements:
        if isinstance(statement, Mapping):
            yield from (f"{name} = {{", *(_wrapped(f'    "{key}": ', one, ",") for key, one in statement.items()), "}")
        else:
            yield _wrapped(f"{name} = ", statement)


def _wrapped(before: str, statement: Any, after: str = "") -> str:
    text = f'{before}"""{render(statement)}"""{after}'
    return textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False)
