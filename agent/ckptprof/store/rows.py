"""Checkpoints as rows of several tables, and back: checked on the way back, because a database may be hostile."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec
from sqlalchemy import (
    BindParameter,
    Connection,
    Float,
    Select,
    Table,
    bindparam,
    case,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.dialects.sqlite import insert as upsert

from ckptprof.measures import Measures
from ckptprof.model import Checkpoint, Point, Session
from ckptprof.store import schema
from ckptprof.store.blocks import BlockError, decode, encode
from ckptprof.store.progress import packed, unpacked
from ckptprof.verdicts import Cost, Verdict

MAX_CHILDREN = 4096  # rows of one kind that a checkpoint may have; the rest is summed up in `blind`
MAX_POINTS = 4096
MAX_OVERHEADS = 64
_MAX_TIMELINE_BYTES = 1 << 20
_CHILDREN: dict[str, Table] = {
    "writers": schema.writers,
    "evidence": schema.evidence,
    "streams": schema.streams,
    "devices": schema.devices,
}
_BRIEF = ("writers", "evidence")  # what `report` shows
_PLAIN = (
    "uid", "kind", "job", "framework", "step", "ranks", "start_ns", "end_ns", "durable_ns", "bytes", "files", "path",
    "mode", "stall_ns", "level", "confidence", "status", "written_bytes", "unique_bytes", "storage_bytes", "cache",
)  # fmt: skip
_JSON = ("blind", "pattern", "moments", "metadata", "overheads", "blocked")
_DIAGNOSIS: dict[str, Any] = {"verdict": Verdict, "cost": Cost, "measures": Measures}  # JSON or NULL
_BRIEF_DIAGNOSIS = ("verdict", "cost")
_SESSION = Session.__struct_fields__
# Made once, with parameters: a statement that has the values in it takes SQLAlchemy two to three times as long.
_SESSIONS = upsert(schema.sessions)
_PUT_SESSION = _SESSIONS.on_conflict_do_update(
    index_elements=["uid"], set_={name: _SESSIONS.excluded[name] for name in _SESSION}
)
_UID: BindParameter[str] = bindparam("known_uid")
_CHECKPOINT: BindParameter[int] = bindparam("known_checkpoint")
_CHECKPOINTS = schema.checkpoints
_REPLACE = update(_CHECKPOINTS).where(_CHECKPOINTS.c.uid == _UID).returning(_CHECKPOINTS.c.id)
_ADD = insert(_CHECKPOINTS).returning(_CHECKPOINTS.c.id)
_CLEAR = {name: delete(table).where(table.c.checkpoint_id == _CHECKPOINT) for name, table in _CHILDREN.items()}
_FORGET = delete(schema.untold).where(schema.untold.c.uid == _UID)
_encode = msgspec.json.Encoder().encode
_decode_checkpoint = msgspec.json.Decoder(Checkpoint).decode


def put_session(connection: Connection, session: Session) -> None:
    """Insert or replace a session, by its uid."""
    connection.execute(_PUT_SESSION, msgspec.structs.asdict(session))


def get_sessions(connection: Connection) -> list[Session]:
    """Return all sessions, oldest first."""
    columns = [schema.sessions.c[name] for name in _SESSION]
    rows = connection.execute(select(*columns).order_by(schema.sessions.c.start_ns, schema.sessions.c.id))
    return [msgspec.convert(dict(zip(_SESSION, row, strict=True)), Session) for row in rows]


def put_checkpoint(connection: Connection, checkpoint: Checkpoint) -> Checkpoint:
    """Insert a checkpoint, or replace the one with the same uid; return it with its id."""
    weights = [checkpoint.confidence, *(one.weight for one in checkpoint.evidence)]
    if not all(map(math.isfinite, weights)):  # neither JSON nor SQLite has them, so they would break every report
        raise ValueError(f"checkpoint {checkpoint.uid} has a weight that is no number")
    kept = _bounded(_readable(checkpoint))
    identity = _identity(connection, _checkpoint_row(kept))
    for name, table in _CHILDREN.items():
        connection.execute(_CLEAR[name], {"known_checkpoint": identity})
        rows: list[dict[str, Any]] = [
            {"checkpoint_id": identity, "ordinal": ordinal, **row} for ordinal, row in enumerate(_rows_of(kept, name))
        ]
        if rows:
            connection.execute(insert(table), rows)
    return msgspec.structs.replace(checkpoint, id=identity)


def _rows_of(checkpoint: Checkpoint, name: str) -> Iterable[dict[str, Any]]:
    """Return the rows of a table that belong to a checkpoint; the points of streams are a column of its own row."""
    for row in map(msgspec.to_builtins, getattr(checkpoint, name)):
        row.pop("progress", None)
        yield row


def _identity(connection: Connection, values: dict[str, Any]) -> int:
    """Write the row and return its id. No upsert: one that updates takes the next id all the same, and ids jump."""
    identity: int | None = connection.execute(_REPLACE, {**values, "known_uid": values["uid"]}).scalar()
    return connection.execute(_ADD, values).scalar_one() if identity is None else identity


def _checkpoint_row(checkpoint: Checkpoint) -> dict[str, Any]:
    pattern = checkpoint.pattern
    row = {name: getattr(checkpoint, name) for name in _PLAIN}
    row["kind"], row["level"], row["status"] = checkpoint.kind.value, checkpoint.level.value, checkpoint.status.value
    row["mode"] = None if checkpoint.mode is None else checkpoint.mode.value
    row["pattern_class"] = None if pattern.class_ is None else pattern.class_.value
    for name in _JSON:
        row[name] = _encode(getattr(checkpoint, name)).decode()
    for name in _DIAGNOSIS:
        row[name] = _diagnosed(checkpoint, name)
    row |= _figures(checkpoint)
    points = checkpoint.timeline
    lengths = [point.end_ns - point.start_ns for point in points]
    row["timeline"] = encode([point.start_ns for point in points], (lengths, [point.bytes for point in points]))
    row["progress"], left_out = packed(checkpoint.streams)
    row["progress_left_out"] = checkpoint.progress_left_out + left_out
    return row


def _figures(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return what is a column of its own, beside the JSON that it is of."""
    verdict, cost = checkpoint.verdict, checkpoint.cost
    told: dict[str, Any] = {"committed_ns": checkpoint.moments.committed_ns}
    told["limit"] = None if verdict is None else verdict.limit.value
    told["limit_seconds"] = None if verdict is None else verdict.seconds
    told["limit_confidence"] = None if verdict is None else verdict.confidence
    told["expected_seconds"] = None if verdict is None else verdict.expected_seconds
    told["gpu_seconds"] = None if cost is None else cost.gpu_seconds
    return told


def _diagnosed(checkpoint: Checkpoint, name: str) -> str | None:
    value = getattr(checkpoint, name)
    if value is None:
        return None
    return _encode(_seen(msgspec.to_builtins(value)) if name == "measures" else value).decode()


def _seen(value: Any) -> Any:
    """Return measures without what was not seen (half of them), to be read as None again."""
    if isinstance(value, dict):
        return {key: _seen(item) for key, item in value.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [_seen(item) for item in value]
    return value


def _readable(checkpoint: Checkpoint) -> Checkpoint:
    """Return it without a part of its diagnosis that could not be read again: JSON knows neither NaN nor infinity."""
    for name, kind in _DIAGNOSIS.items():
        text = _diagnosed(checkpoint, name)
        if text is None:
            continue
        try:
            msgspec.json.decode(text, type=kind)
        except msgspec.ValidationError:
            blind = (*checkpoint.blind, f"Its {name} held a number that is none, and was not kept.")
            checkpoint = msgspec.structs.replace(checkpoint, blind=blind, **{name: None})
    return checkpoint


def _bounded(checkpoint: Checkpoint) -> Checkpoint:
    """Return it with the largest streams only, if it has too many, and a sentence that says so."""
    streams, writers, timeline, blind = checkpoint.streams, checkpoint.writers, checkpoint.timeline, checkpoint.blind
    if len(writers) > MAX_CHILDREN:
        writers = tuple(sorted(writers, key=lambda writer: -writer.bytes)[:MAX_CHILDREN])
        blind = (*blind, f"Only the {MAX_CHILDREN} largest of {len(checkpoint.writers)} writers are kept.")
    if len(streams) > MAX_CHILDREN:
        streams = tuple(sorted(streams, key=lambda stream: -stream.bytes)[:MAX_CHILDREN])
        blind = (*blind, f"Only the {MAX_CHILDREN} largest of {len(checkpoint.streams)} streams are kept.")
    if len(timeline) > MAX_POINTS:
        timeline = timeline[:MAX_POINTS]
        blind = (*blind, f"Only the first {MAX_POINTS} of {len(checkpoint.timeline)} intervals are kept.")
    return msgspec.structs.replace(
        checkpoint,
        streams=streams,
        timeline=timeline,
        blind=blind,
        writers=writers,
        evidence=checkpoint.evidence[:MAX_CHILDREN],
        overheads=checkpoint.overheads[:MAX_OVERHEADS],
        devices=checkpoint.devices[:MAX_CHILDREN],
    )


def put_pending(connection: Connection, changed: Mapping[str, bytes], gone: Collection[str]) -> None:
    """Insert or replace what is not told yet, by uid, and remove what is gone."""
    old = [{"known_uid": uid} for uid in (*gone, *changed)]
    if old:
        connection.execute(_FORGET, old)
    if changed:
        connection.execute(insert(schema.untold), [{"uid": uid, "data": data} for uid, data in changed.items()])


def get_pending(connection: Connection) -> dict[str, bytes]:
    """Return what is not told yet, by uid."""
    rows = connection.execute(select(schema.untold.c.uid, schema.untold.c.data))
    return {uid: data for uid, data in rows if isinstance(data, bytes)}


def get_checkpoints(connection: Connection, chosen: Select[tuple[int]]) -> list[Checkpoint]:
    """Return the checkpoints of these ids, in the order of time, without streams, devices, timeline and measures."""
    return _get(connection, chosen, whole=False)


def get_checkpoint(connection: Connection, identity: int) -> Checkpoint | None:
    """Return one checkpoint with all that is known of it."""
    chosen = select(schema.checkpoints.c.id).where(schema.checkpoints.c.id == identity)
    found = _get(connection, chosen, whole=True)
    return found[0] if found else None


def _get(connection: Connection, chosen: Select[tuple[int]], *, whole: bool) -> list[Checkpoint]:
    table = schema.checkpoints
    parts: list[Any] = [item for name in ("id", *_PLAIN) for item in (name, _exact(table.c[name]))]
    for name in (*_JSON, *(_DIAGNOSIS if whole else _BRIEF_DIAGNOSIS)):
        parts += (name, func.json(table.c[name]))
    for name in _CHILDREN if whole else _BRIEF:
        parts += (name, _children(_CHILDREN[name]))
    parts += ("progress_left_out", table.c.progress_left_out) if whole else ()
    columns = [func.json_object(*parts), *((table.c.timeline, table.c.progress) if whole else ())]
    rows = connection.execute(select(*columns).where(table.c.id.in_(chosen)).order_by(table.c.start_ns, table.c.id))
    return [_checkpoint(*row) for row in rows]


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


def _checkpoint(text: str, timeline: bytes | None = None, progress: bytes | None = None) -> Checkpoint:
    checkpoint = _decode_checkpoint(text)
    if timeline is None:
        return checkpoint
    streams = checkpoint.streams if progress is None else unpacked(progress, checkpoint.streams)
    return msgspec.structs.replace(checkpoint, timeline=timeline_of(timeline), streams=streams)


def timeline_of(block: bytes) -> tuple[Point, ...]:
    """Return the points of a checkpoint's timeline; raises BlockError and msgspec's for one that is damaged."""
    starts, columns = decode(block, _MAX_TIMELINE_BYTES)
    if len(columns) != 2 or None in columns:
        raise BlockError("a timeline that is none")
    lengths, sizes = columns
    points = [
        (start, start + (length or 0), size)
        for start, length, size in zip(starts, lengths or (), sizes or (), strict=True)
    ]
    return msgspec.convert(points, tuple[Point, ...])
