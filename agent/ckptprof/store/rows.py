"""Checkpoints as rows of several tables, and back: checked on the way back, because a database may be hostile."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from sqlite3 import Connection
from typing import Any

import msgspec

from ckptprof.measures import Measures
from ckptprof.model import Checkpoint, Clock, Place, Point, Run, Sent, Session
from ckptprof.store.blocks import BlockError, decode, encode
from ckptprof.store.progress import packed, unpacked
from ckptprof.store.sql import compiled
from ckptprof.store.sql.columns import CHILDREN, JSON, PLAIN
from ckptprof.verdicts import Cost, Verdict

MAX_CHILDREN = 4096  # rows of one kind that a checkpoint may have; the rest is summed up in `blind`
MAX_POINTS = 4096
MAX_OVERHEADS = 64
_CHILD_BYTES = 100  # about what a row of a writer, stream, device or evidence takes
_MAX_TIMELINE_BYTES = 1 << 20
_DIAGNOSIS: dict[str, Any] = {  # JSON or NULL
    "sent": Sent, "run": Run, "place": Place, "clock": Clock,
    "verdict": Verdict, "cost": Cost, "measures": Measures,
}  # fmt: skip
_SESSION = Session.__struct_fields__
_encode = msgspec.json.Encoder().encode
_decode_checkpoint = msgspec.json.Decoder(Checkpoint).decode


def put_session(connection: Connection, session: Session) -> None:
    """Insert or replace a session, by its uid."""
    connection.execute(compiled.PUT_SESSION, msgspec.structs.asdict(session))


def get_sessions(connection: Connection) -> list[Session]:
    """Return all sessions, oldest first."""
    rows = (dict(zip(_SESSION, row, strict=True)) for row in connection.execute(compiled.SESSIONS))
    return [msgspec.convert({**row, "clean": bool(row["clean"])}, Session) for row in rows]


def put_checkpoint(connection: Connection, checkpoint: Checkpoint) -> Checkpoint:
    """Insert a checkpoint, or replace the one with the same uid; return it with its id."""
    weights = [checkpoint.confidence, *(one.weight for one in checkpoint.evidence)]
    if not all(map(math.isfinite, weights)):  # neither JSON nor SQLite has them, so they would break every report
        raise ValueError(f"checkpoint {checkpoint.uid} has a weight that is no number")
    kept = _bounded(_readable(checkpoint))
    identity = _identity(connection, _checkpoint_row(kept))
    for name in CHILDREN:
        connection.execute(compiled.CLEAR_CHILDREN[name], {"of_checkpoint": identity})
        rows = ({"checkpoint_id": identity, "ordinal": at, **row} for at, row in enumerate(_rows_of(kept, name)))
        connection.executemany(compiled.ADD_CHILD[name], rows)
    connection.execute(compiled.NOTE_CHANGE, {"changed": identity, "began_ns": kept.start_ns})
    return msgspec.structs.replace(checkpoint, id=identity)


def _rows_of(checkpoint: Checkpoint, name: str) -> Iterable[dict[str, Any]]:
    """Return the rows of a table that belong to a checkpoint; the points of streams are a column of its own row."""
    for row in map(msgspec.to_builtins, getattr(checkpoint, name)):
        row.pop("progress", None)
        yield row


def _identity(connection: Connection, values: dict[str, Any]) -> int:
    """Write the row and return its id. No upsert: one that updates takes the next id all the same, and ids jump."""
    known = connection.execute(compiled.REPLACE_CHECKPOINT, {**values, "known_uid": values["uid"]}).fetchall()
    ((identity,),) = known or connection.execute(compiled.ADD_CHECKPOINT, values).fetchall()
    return int(identity)


def _checkpoint_row(checkpoint: Checkpoint) -> dict[str, Any]:
    pattern = checkpoint.pattern
    row = {name: getattr(checkpoint, name) for name in PLAIN}
    row["kind"], row["level"], row["status"] = checkpoint.kind.value, checkpoint.level.value, checkpoint.status.value
    row["mode"] = None if checkpoint.mode is None else checkpoint.mode.value
    row["pattern_class"] = None if pattern.class_ is None else pattern.class_.value
    for name in JSON:
        row[name] = _encode(getattr(checkpoint, name)).decode()
    for name in _DIAGNOSIS:
        row[name] = _diagnosed(checkpoint, name)
    row |= _figures(checkpoint)
    points = checkpoint.timeline
    lengths = [point.end_ns - point.start_ns for point in points]
    row["timeline"] = encode([point.start_ns for point in points], (lengths, [point.bytes for point in points]))
    row["progress"], left_out = packed(checkpoint.streams)
    row["progress_left_out"] = checkpoint.progress_left_out + left_out
    children = sum(len(getattr(checkpoint, name)) for name in CHILDREN)
    kept = (value for name, value in row.items() if name != "measures" and isinstance(value, (str, bytes)))
    row["stored_bytes"] = _CHILD_BYTES * children + sum(map(len, kept))
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
    connection.executemany(compiled.FORGET_PENDING, ({"known_uid": uid} for uid in (*gone, *changed)))
    connection.executemany(compiled.ADD_PENDING, ({"uid": uid, "data": data} for uid, data in changed.items()))


def get_pending(connection: Connection) -> dict[str, bytes]:
    """Return what is not told yet, by uid."""
    return {uid: data for uid, data in connection.execute(compiled.PENDING) if isinstance(data, bytes)}


def checkpoint_of(text: str, timeline: bytes | None = None, progress: bytes | None = None) -> Checkpoint:
    """Return the checkpoint of a row, as `statements.checkpoints` reads it."""
    checkpoint = _decode_checkpoint(text)
    if timeline is None:
        return checkpoint
    streams = checkpoint.streams if progress is None else unpacked(progress, checkpoint.streams)
    return msgspec.structs.replace(checkpoint, timeline=timeline_of(timeline), streams=streams)


def timeline_of(block: bytes) -> tuple[Point, ...]:
    """Return the points of a checkpoint's timeline; raises BlockError and msgspec's for one that is damaged."""
    starts, columns = decode(block, _MAX_TIMELINE_BYTES)
    if len(columns) != 2:
        raise BlockError("a timeline that is none")
    points = [(start, start + (length or 0), size) for start, length, size in zip(starts, *columns, strict=True)]
    return msgspec.convert(points, tuple[Point, ...])
