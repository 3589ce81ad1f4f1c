"""The points of all streams of a checkpoint as one block, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from ckptprof.model import Progress, Stream, Succession
from ckptprof.store.blocks import BlockError, decode, encode

MAX_BYTES = 2048  # of a checkpoint
_MAX_POINTS = 4096  # that are read
_COLUMNS = 7  # place of the stream, length of time, bytes, low offset, length, order, thread
_LARGEST = 1 << 62  # so that sums of two are numbers of JSON and SQL
_ORDERS = tuple(Succession)


def packed(streams: Sequence[Stream]) -> tuple[bytes | None, int]:
    """Return the block, None of no points, and how many streams had to be left out: those that moved least."""
    places = [place for place, stream in enumerate(streams) if stream.progress]
    places.sort(key=lambda place: -streams[place].bytes)
    for number in range(len(places), 0, -1):
        block = _block([(place, point) for place in sorted(places[:number]) for point in streams[place].progress])
        if len(block) <= MAX_BYTES:
            return block, len(places) - number
    return None, len(places)


def _block(points: Sequence[tuple[int, Progress]]) -> bytes:
    columns = [
        (
            place, one.end_ns - one.start_ns, one.bytes, one.low_offset, one.high_offset - one.low_offset,
            None if one.order is None else _ORDERS.index(one.order), one.tid,
        )
        for place, one in points
    ]  # fmt: skip
    return encode([one.start_ns for _, one in points], list(zip(*columns, strict=True)))


def unpacked(block: bytes, streams: Sequence[Stream]) -> tuple[Stream, ...]:
    """Return the streams with their points; raises BlockError."""
    found: dict[int | None, list[Progress]] = {}
    for place, point in points_of(block):
        found.setdefault(place, []).append(point)
    return tuple(
        msgspec.structs.replace(stream, progress=tuple(found.get(place, ()))) for place, stream in enumerate(streams)
    )


def points_of(block: bytes) -> Iterator[tuple[int | None, Progress]]:
    """Yield each point with the place of its stream; raises BlockError."""
    starts, columns = decode(block, _MAX_POINTS * (_COLUMNS + 1) * 8)
    if len(columns) != _COLUMNS:
        raise BlockError("points of progress that are none")
    for start_ns, place, *rest in zip(starts, *columns, strict=True):
        yield place, _point(start_ns, *rest)


def _point(start_ns: int, *rest: int | None) -> Progress:
    """Return a point; what a hostile database says is checked."""
    length_ns, moved, low, length, order, tid = rest
    if length_ns is None or low is None or length is None or (order is not None and not 0 <= order < len(_ORDERS)):
        raise BlockError("a point of progress that is none")
    if any(abs(number) > _LARGEST for number in (start_ns, *rest) if number is not None):
        raise BlockError("a point of progress beyond all files and times")
    kind = None if order is None else _ORDERS[order]
    return Progress(start_ns, start_ns + length_ns, moved, low, low + length, kind, tid)
