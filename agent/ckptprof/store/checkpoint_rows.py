"""Checkpoints to rows of several tables, and back: checked when read, because a database may be hostile."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from sqlite3 import Connection
from typing import Any

import msgspec

from ckptprof.measures import Measures
from ckptprof.model import Checkpoint, Clock, Place, Point, Progress, Run, Sent, Session, Stream, Succession
from ckptprof.store.series.blocks import BlockError, decode, encode
from ckptprof.store.series.strips import Span, merge_spans
from ckptprof.store.sql import CHILD_TABLES, JSON_COLUMNS, PLAIN_COLUMNS, compiled
from ckptprof.verdicts import Cost, Verdict

MAX_CHILD_ROWS = 4096  # rows of one kind per checkpoint; a limitation says how many more there were
MAX_POINTS = 4096
MAX_OVERHEADS = 64
_CHILD_ROW_BYTES = 100  # approximate size of a row of a writer, stream, device or evidence
_MAX_TIMELINE_BYTES = 1 << 20
MAX_PROGRESS_BYTES = 2048  # of a checkpoint
_PROGRESS_COLUMNS = 7  # place of the stream, length of time, bytes, low offset, length, order, thread
_MAX_NUMBER = 1 << 62  # so that sums of two are numbers of JSON and SQL
_ORDERS = tuple(Succession)
_DIAGNOSIS_TYPES: dict[str, Any] = {  # JSON or NULL
    "sent": Sent, "run": Run, "place": Place, "clock": Clock,
    "verdict": Verdict, "cost": Cost, "measures": Measures,
}  # fmt: skip
_SESSION_FIELDS = Session.__struct_fields__
_encode = msgspec.json.Encoder().encode
_decode_checkpoint = msgspec.json.Decoder(Checkpoint).decode


def put_session(connection: Connection, session: Session) -> None:
    """Insert or replace a session, by its uid."""
    connection.execute(compiled.PUT_SESSION, msgspec.structs.asdict(session))


def get_sessions(connection: Connection) -> list[Session]:
    """All sessions, oldest first."""
    rows = (dict(zip(_SESSION_FIELDS, row, strict=True)) for row in connection.execute(compiled.SESSIONS))
    return [msgspec.convert({**row, "clean": bool(row["clean"])}, Session) for row in rows]


def recorded_spans(connection: Connection) -> list[Span] | None:
    """Merge the times in which a recorder ran; None: no session, so everything counts as recorded."""
    return merge_spans((one.start_ns, one.end_ns) for one in get_sessions(connection)) or None


def put_checkpoint(connection: Connection, checkpoint: Checkpoint) -> Checkpoint:
    """Insert a checkpoint, or replace the one with the same uid; return it with its id."""
    weights = [checkpoint.confidence, *(one.weight for one in checkpoint.evidence)]
    if not all(map(math.isfinite, weights)):  # JSON and SQLite have no infinity or NaN: they would break every report
        raise ValueError(f"checkpoint {checkpoint.uid} has a weight that is no number")
    readable, diagnosis = _encode_diagnosis(checkpoint)
    bounded = _limit_children(readable)
    row = _checkpoint_row(bounded) | diagnosis
    children = sum(len(getattr(bounded, name)) for name in CHILD_TABLES)
    sizes = (len(value) for name, value in row.items() if name != "measures" and isinstance(value, (str, bytes)))
    row["stored_bytes"] = _CHILD_ROW_BYTES * children + sum(sizes)
    # No upsert: even one that updates consumes the next id, so that ids would have gaps
    replaced = connection.execute(compiled.REPLACE_CHECKPOINT, {**row, "known_uid": bounded.uid}).fetchall()
    ((identity,),) = replaced or connection.execute(compiled.ADD_CHECKPOINT, row).fetchall()
    for name in CHILD_TABLES:
        connection.execute(compiled.CLEAR_CHILDREN[name], {"of_checkpoint": identity})
        rows = enumerate(map(msgspec.to_builtins, getattr(bounded, name)))
        connection.executemany(
            compiled.ADD_CHILD[name], ({"checkpoint_id": identity, "ordinal": at, **row} for at, row in rows)
        )
    connection.execute(compiled.RECORD_CHANGE, {"changed": identity, "began_ns": bounded.start_ns})
    return msgspec.structs.replace(checkpoint, id=identity)


def _checkpoint_row(checkpoint: Checkpoint) -> dict[str, Any]:
    """Columns except the JSON that may be NULL."""
    verdict, cost, pattern = checkpoint.verdict, checkpoint.cost, checkpoint.pattern
    row: dict[str, Any] = {name: msgspec.to_builtins(getattr(checkpoint, name)) for name in PLAIN_COLUMNS}
    row["pattern_class"] = None if pattern.class_ is None else pattern.class_.value
    for name in JSON_COLUMNS:
        row[name] = _encode(getattr(checkpoint, name)).decode()
    row["committed_ns"] = checkpoint.moments.committed_ns
    row["limit"] = None if verdict is None else verdict.limit.value
    row["limit_seconds"] = None if verdict is None else verdict.seconds
    row["limit_confidence"] = None if verdict is None else verdict.confidence
    row["expected_seconds"] = None if verdict is None else verdict.expected_seconds
    row["gpu_seconds"] = None if cost is None else cost.gpu_seconds
    points = checkpoint.timeline
    lengths = [point.end_ns - point.start_ns for point in points]
    row["timeline"] = encode([point.start_ns for point in points], (lengths, [point.bytes for point in points]))
    row["progress"], left_out = encode_progress(checkpoint.streams)
    row["progress_left_out"] = checkpoint.progress_left_out + left_out
    return row


def _without_none(value: Any) -> Any:
    """Drop None from measures (half of the values); decoding restores it."""
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [_without_none(item) for item in value]
    return value


def _encode_diagnosis(checkpoint: Checkpoint) -> tuple[Checkpoint, dict[str, str | None]]:
    """Encode the diagnosis; drop a part that could not be decoded again: JSON has no NaN and no infinity."""
    texts: dict[str, str | None] = dict.fromkeys(_DIAGNOSIS_TYPES)
    for name, kind in _DIAGNOSIS_TYPES.items():
        value = getattr(checkpoint, name)
        if value is None:
            continue
        text = _encode(_without_none(msgspec.to_builtins(value)) if name == "measures" else value)
        try:
            msgspec.json.decode(text, type=kind)
            texts[name] = text.decode()
        except msgspec.ValidationError:
            limitations = (*checkpoint.limitations, f"Its {name} contained an invalid number and was not stored.")
            checkpoint = msgspec.structs.replace(checkpoint, limitations=limitations, **{name: None})
    return checkpoint, texts


def _limit_children(checkpoint: Checkpoint) -> Checkpoint:
    """Retain only the largest of too many streams, and add a limitation for that."""
    bounded: dict[str, Any] = {name: getattr(checkpoint, name)[:MAX_CHILD_ROWS] for name in ("evidence", "devices")}
    limitations = checkpoint.limitations
    for name in ("writers", "streams"):
        rows = getattr(checkpoint, name)
        if len(rows) > MAX_CHILD_ROWS:
            bounded[name] = tuple(sorted(rows, key=lambda one: -one.bytes)[:MAX_CHILD_ROWS])
            limitations = (*limitations, f"Only the {MAX_CHILD_ROWS} largest of {len(rows)} {name} are stored.")
    if len(checkpoint.timeline) > MAX_POINTS:
        bounded["timeline"] = checkpoint.timeline[:MAX_POINTS]
        limitations = (*limitations, f"Only the first {MAX_POINTS} of {len(checkpoint.timeline)} intervals are stored.")
    overheads = checkpoint.overheads[:MAX_OVERHEADS]
    return msgspec.structs.replace(checkpoint, limitations=limitations, overheads=overheads, **bounded)


def put_pending(connection: Connection, changed: Mapping[str, bytes], removed: Collection[str]) -> None:
    """Insert or replace pending checkpoints, by uid, and remove those no longer pending."""
    connection.executemany(compiled.FORGET_PENDING, ({"known_uid": uid} for uid in (*removed, *changed)))
    connection.executemany(compiled.ADD_PENDING, ({"uid": uid, "data": data} for uid, data in changed.items()))


def get_pending(connection: Connection) -> dict[str, bytes]:
    """Checkpoints that are not reported yet, encoded, by uid."""
    return {uid: data for uid, data in connection.execute(compiled.PENDING) if isinstance(data, bytes)}


def decode_checkpoint(text: str, timeline: bytes | None = None, progress: bytes | None = None) -> Checkpoint:
    """Decode a row of `statements.checkpoints`."""
    checkpoint = _decode_checkpoint(text)
    if timeline is None:
        return checkpoint
    streams = checkpoint.streams if progress is None else decode_progress(progress, checkpoint.streams)
    return msgspec.structs.replace(checkpoint, timeline=decode_timeline(timeline), streams=streams)


def decode_timeline(block: bytes) -> tuple[Point, ...]:
    """Decode the timeline of a checkpoint; raises BlockError and msgspec's errors if it is damaged."""
    starts, columns = decode(block, _MAX_TIMELINE_BYTES)
    if len(columns) != 2:
        raise BlockError("a timeline that is none")
    points = [(start, start + (length or 0), size) for start, length, size in zip(starts, *columns, strict=True)]
    return msgspec.convert(points, tuple[Point, ...])


def encode_progress(streams: Sequence[Stream]) -> tuple[bytes | None, int]:
    """Encode progress: the block (None without points), and how many streams were omitted, smallest first."""
    places = [place for place, stream in enumerate(streams) if stream.progress]
    places.sort(key=lambda place: -streams[place].bytes)
    for number in range(len(places), 0, -1):
        block = _progress_block(
            [(place, point) for place in sorted(places[:number]) for point in streams[place].progress]
        )
        if len(block) <= MAX_PROGRESS_BYTES:
            return block, len(places) - number
    return None, len(places)


def _progress_block(points: Sequence[tuple[int, Progress]]) -> bytes:
    columns = [
        (
            place, one.end_ns - one.start_ns, one.bytes, one.low_offset, one.high_offset - one.low_offset,
            None if one.order is None else _ORDERS.index(one.order), one.tid,
        )
        for place, one in points
    ]  # fmt: skip
    return encode([one.start_ns for _, one in points], list(zip(*columns, strict=True)))


def decode_progress(block: bytes, streams: Sequence[Stream]) -> tuple[Stream, ...]:
    """Add the progress to streams; raises BlockError."""
    found: dict[int | None, list[Progress]] = {}
    for place, point in iter_progress(block):
        found.setdefault(place, []).append(point)
    return tuple(
        msgspec.structs.replace(stream, progress=tuple(found.get(place, ()))) for place, stream in enumerate(streams)
    )


def iter_progress(block: bytes) -> Iterator[tuple[int | None, Progress]]:
    """Yield each point with the place of its stream; raises BlockError."""
    starts, columns = decode(block, MAX_POINTS * (_PROGRESS_COLUMNS + 1) * 8)
    if len(columns) != _PROGRESS_COLUMNS:
        raise BlockError("points of progress that are none")
    for start_ns, place, *rest in zip(starts, *columns, strict=True):
        yield place, _checked_point(start_ns, *rest)


def _checked_point(start_ns: int, *rest: int | None) -> Progress:
    """Decode one point; a hostile database must not break its reader."""
    length_ns, transferred, low, length, order, tid = rest
    if length_ns is None or low is None or length is None or (order is not None and not 0 <= order < len(_ORDERS)):
        raise BlockError("a point of progress that is none")
    if any(abs(number) > _MAX_NUMBER for number in (start_ns, *rest) if number is not None):
        raise BlockError("a point of progress beyond all files and times")
    kind = None if order is None else _ORDERS[order]
    return Progress(start_ns, start_ns + length_ns, transferred, low, low + length, kind, tid)
