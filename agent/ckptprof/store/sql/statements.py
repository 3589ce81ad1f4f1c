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
from ckptprof.store.sql import BRIEF_CHILDREN, BRIEF_DIAGNOSIS, CHILDREN, DIAGNOSIS, ENTITY_BITS, JSON, PLAIN, schema

_HEAD = '"""What `statements` says, as the SQL of SQLite. Generated: CKPTPROF_UPDATE_GOLDEN=1 regenerates it."""\n'
_WIDTH = 120
_TABLES = schema.metadata.tables
_EVENTS = schema.checkpoints
_ENTITIES = schema.entities
_BLOCKS = schema.blocks


def _whole(name: str) -> sa.BindParameter[int]:
    return sa.bindparam(name, type_=sa.Integer)


def _text(name: str) -> sa.BindParameter[str]:
    return sa.bindparam(name, type_=sa.Text)


def _each(table: sa.Table, *, but: str = "") -> dict[str, sa.BindParameter[Any]]:
    return {column.name: sa.bindparam(column.name) for column in table.c if column.name != but}


def checkpoints(chosen: sa.Select[tuple[int]], *, whole: bool) -> sa.Select[Any]:
    """Select these checkpoints ordered by time, each as one JSON text; `whole`: with details and blocks."""
    table = schema.checkpoints
    parts: list[Any] = [item for name in ("id", *PLAIN) for item in (name, _exact(table.c[name]))]
    for name in (*JSON, *(DIAGNOSIS if whole else BRIEF_DIAGNOSIS)):
        parts += (name, sa.func.json(table.c[name]))
    for name in CHILDREN if whole else BRIEF_CHILDREN:
        parts += (name, _children(_TABLES[name]))
    parts += ("progress_left_out", table.c.progress_left_out) if whole else ()
    columns = [sa.func.json_object(*parts), *((table.c.timeline, table.c.progress) if whole else ())]
    return sa.select(*columns).where(table.c.id.in_(chosen)).order_by(table.c.start_ns, table.c.id)


def _children(table: sa.Table) -> Any:
    """Select the child rows of a checkpoint as a JSON array (8 times as fast as rows here)."""
    own = sa.select(table).where(table.c.checkpoint_id == schema.checkpoints.c.id).order_by(table.c.ordinal)
    rows = own.correlate(schema.checkpoints).subquery()
    parts = [item for column in list(rows.c)[2:] for item in (column.name, _exact(column))]
    return sa.func.json(sa.select(sa.func.json_group_array(sa.func.json_object(*parts))).scalar_subquery())


def _exact(column: Any) -> Any:
    """Print a float with 17 digits: SQLite's JSON has 15."""
    if not isinstance(column.type, sa.Float):
        return column
    is_number = sa.func.typeof(column).in_(("real", "integer"))
    return sa.func.json(sa.case((is_number, sa.func.printf("%!.17g", column)), else_=sa.func.json_quote(column)))


def _note_change() -> sa.Insert:
    """Replace the last change of a checkpoint by the next one, with the next revision."""
    table = schema.outbox
    known = sa.select(table).where(table.c.checkpoint_id == _whole("changed")).subquery()
    revision, first_start_ns = (sa.select(known.c[name]).scalar_subquery() for name in ("revision", "first_start_ns"))
    values = {
        "checkpoint_id": _whole("changed"),
        "revision": sa.func.coalesce(revision, 0) + 1,
        "first_start_ns": sa.func.coalesce(first_start_ns, _whole("began_ns")),
    }
    return sa.insert(table).prefix_with("OR REPLACE").values(values)


def _paths() -> sa.Select[tuple[str | None]]:
    """Select the paths of the newest checkpoints, each once, newest first."""
    path = _EVENTS.c.path
    newest = sa.func.max(_EVENTS.c.start_ns).desc()
    return sa.select(path).where(path.is_not(None)).group_by(path).order_by(newest).limit(_whole("most"))


def _cut() -> sa.Select[Any]:
    """Select the saves of a time that were in progress when recording ended."""
    table, evidence = schema.checkpoints, schema.evidence
    of_it = (evidence.c.checkpoint_id == table.c.id, evidence.c.name == CUT_AT_END)
    ended = sa.select(evidence.c.ordinal).where(*of_it).correlate(table).exists()
    touches = (table.c.end_ns >= _whole("since_ns"), table.c.start_ns <= _whole("until_ns"))
    return checkpoints(sa.select(table.c.id).where(table.c.kind == Kind.SAVE.value, *touches, ended), whole=True)


def _put_session() -> sa.Insert:
    added = upsert(schema.sessions).values(_each(schema.sessions, but="id"))
    changed = {column.name: added.excluded[column.name] for column in schema.sessions.c if column.name != "id"}
    return added.on_conflict_do_update(index_elements=["uid"], set_=changed)


def _new_name(table: sa.Table) -> sa.Insert:
    return upsert(table).values(_each(table, but="id")).on_conflict_do_nothing()


def _oldest_events(*conditions: Any) -> sa.Select[tuple[int]]:
    return sa.select(_EVENTS.c.id).where(*conditions).order_by(_EVENTS.c.start_ns).limit(_whole("most"))


def _of_the_largest_owner() -> Any:
    """Condition for the checkpoints of the user with the most bytes; unknown users count as one."""
    owner, most = _EVENTS.c.owner, sa.func.sum(_EVENTS.c.stored_bytes).desc()
    return owner.is_not_distinct_from(sa.select(owner).group_by(owner).order_by(most).limit(1).scalar_subquery())


def _blocks() -> sa.Select[Any]:
    """Select existing blocks by id; the ids are a JSON list of any length."""
    ids = sa.func.json_each(_text("ids")).table_valued("value")
    return sa.select(_BLOCKS).where(_BLOCKS.c.id.in_(sa.select(ids.c.value))).order_by(_BLOCKS.c.id)


def _blocks_of() -> sa.Select[tuple[int]]:
    """Scan all blocks of a time for those of one entity."""
    own = _BLOCKS.c.id.op("&")((1 << ENTITY_BITS) - 1) == _whole("entity")
    within = _BLOCKS.c.id.between(_whole("first"), _whole("last"))
    return sa.select(_BLOCKS.c.id).where(own, within).order_by(_BLOCKS.c.id)


def _statements() -> dict[str, sa.Executable | Mapping[str, sa.Executable]]:
    sessions, untold, layouts = schema.sessions, schema.untold, schema.layouts
    measured = _EVENTS.c.measures.is_not(None)
    return {
        "TABLES": {table.name: CreateTable(table) for table in schema.metadata.sorted_tables},
        "BLOCK_TABLE": CreateTable(_BLOCKS),
        "INDEXES": {
            str(index.name): CreateIndex(index)
            for index in sorted(_EVENTS.indexes, key=lambda one: str(one.name), reverse=True)
        },
        "SESSIONS": sa.select(*(column for column in sessions.c if column.name != "id")).order_by(
            sessions.c.start_ns, sessions.c.id
        ),
        "PUT_SESSION": _put_session(),
        "EXTEND_SESSION": sa.update(sessions)
        .where(sessions.c.uid == _text("session"))
        .values(end_ns=sa.func.max(sessions.c.end_ns, _whole("newest_ns"))),
        "REPLACE_CHECKPOINT": sa.update(_EVENTS)
        .where(_EVENTS.c.uid == _text("known_uid"))
        .values(_each(_EVENTS, but="id"))
        .returning(_EVENTS.c.id),
        "ADD_CHECKPOINT": sa.insert(_EVENTS).values(_each(_EVENTS, but="id")).returning(_EVENTS.c.id),
        "NOTE_CHANGE": _note_change(),
        "ID_OF": sa.select(_EVENTS.c.id).where(_EVENTS.c.uid == _text("known_uid")),
        "CLEAR_CHILDREN": {
            name: sa.delete(_TABLES[name]).where(_TABLES[name].c.checkpoint_id == _whole("of_checkpoint"))
            for name in CHILDREN
        },
        "ADD_CHILD": {name: sa.insert(_TABLES[name]).values(_each(_TABLES[name])) for name in CHILDREN},
        "PENDING": sa.select(untold.c.uid, untold.c.data),
        "ADD_PENDING": sa.insert(untold).values(_each(untold)),
        "FORGET_PENDING": sa.delete(untold).where(untold.c.uid == _text("known_uid")),
        "PATHS": _paths(),
        "CUT": _cut(),
        "ENTITIES": sa.select(_ENTITIES.c.name).order_by(_ENTITIES.c.name),
        "ADD_ENTITY": _new_name(_ENTITIES),
        "ENTITY": sa.select(_ENTITIES.c.id).where(_ENTITIES.c.name == _text("known")),
        "SEE_ENTITY": sa.update(_ENTITIES)
        .where(_ENTITIES.c.id == _whole("entity"))
        .values(seen_ns=sa.func.max(_ENTITIES.c.seen_ns, _whole("newest_ns"))),
        "EXPIRE_ENTITIES": sa.delete(_ENTITIES).where(_ENTITIES.c.seen_ns < _whole("limit_ns")),
        "ADD_LAYOUT": _new_name(layouts),
        "LAYOUT": sa.select(layouts.c.id).where(layouts.c.fields == _text("known")),
        "LAYOUTS": sa.select(layouts.c.id, layouts.c.fields),
        "BLOCKS": _blocks(),
        "PUT_BLOCK": sa.insert(_BLOCKS).prefix_with("OR REPLACE").values(_each(_BLOCKS)),
        "REMOVE_BLOCK": sa.delete(_BLOCKS).where(_BLOCKS.c.id == _whole("block")),
        "BLOCKS_BEFORE": sa.select(_BLOCKS.c.id).where(_BLOCKS.c.id < _whole("before")),
        "REMOVE_BEFORE": sa.delete(_BLOCKS).where(_BLOCKS.c.id < _whole("before")),
        "BLOCK_SPAN": sa.select(
            *(sa.select(end(_BLOCKS.c.id)).scalar_subquery() for end in (sa.func.min, sa.func.max))
        ),  # each by the index
        "BLOCKS_OF": _blocks_of(),
        "EXPIRE_MEASURES": sa.update(_EVENTS)
        .where(_EVENTS.c.start_ns < _whole("limit_ns"), measured)
        .values(measures=None),
        "SHRINK_MEASURES": sa.update(_EVENTS).where(_EVENTS.c.id.in_(_oldest_events(measured))).values(measures=None),
        "SHRINK_CHECKPOINTS": sa.delete(_EVENTS).where(_EVENTS.c.id.in_(_oldest_events(_of_the_largest_owner()))),
    }


class _Compiler(SQLiteCompiler):
    """Writes values into the text, and leaves parameters only for what is given later."""

    def visit_bindparam(self, bindparam: sa.BindParameter[Any], *args: Any, **options: Any) -> Any:
        options["literal_binds"] = not bindparam.required
        return super().visit_bindparam(bindparam, *args, **options)  # type: ignore[no-untyped-call]

    def render_literal_value(self, value: Any, type_: Any) -> str:
        return super().render_literal_value(value, sa.Text() if isinstance(value, str) else type_)


def sql(statement: Any) -> str:
    """Render a statement with named parameters, on one line."""
    dialect = sqlite.dialect(paramstyle="named")
    dialect.statement_compiler = _Compiler
    return " ".join(str(statement.compile(dialect=dialect)).split())


def compiled_text() -> str:
    """Render the module `compiled`."""
    return "\n".join((_HEAD, *_lines(_statements().items()), ""))


def _lines(statements: Iterable[tuple[str, Any]]) -> Iterable[str]:
    for name, statement in statements:
        if isinstance(statement, Mapping):
            yield from (f"{name} = {{", *(_filled(f'    "{key}": ', one, ",") for key, one in statement.items()), "}")
        else:
            yield _filled(f"{name} = ", statement)


def _filled(before: str, statement: Any, after: str = "") -> str:
    text = f'{before}"""{sql(statement)}"""{after}'
    return textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False)
