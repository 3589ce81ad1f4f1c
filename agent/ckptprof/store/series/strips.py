"""Points of one entity over time: operations on them as plain lists, and their blocks in the tables.

Blocks have ids by period and entity, layouts for the names of fields, and times in the store's precision.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from operator import lt
from sqlite3 import Connection
from typing import NamedTuple

import msgspec

from ckptprof.store.series.blocks import BlockError, decode, read_time_unit
from ckptprof.store.sql import ENTITY_BITS, compiled

MINUTE_NS = 60_000_000_000
HOUR_NS = 60 * MINUTE_NS
DAY_NS = 24 * HOUR_NS
MAX_BLOCK_BYTES = 16 << 20
TIME_UNIT_NS = 1_000_000  # a hundredth of the fastest tick; the noise below it would cost each entity a byte per point
ROLLUP_UNIT_NS = 1_000_000_000  # of points that lie on whole minutes
_MAX_NAME = 512
_encode = msgspec.json.Encoder().encode
FieldValues = list["int | None"]
Span = tuple[int, int]


class Strip(NamedTuple):
    """Points in the order of time: times in epoch ns, and the values of each field at them."""

    times_ns: list[int]
    columns: dict[str, FieldValues]


def join(strips: Sequence[Strip]) -> Strip:
    """Merge strips, sorted by time; of several points at one time the last one wins."""
    strip = concatenate(strips)
    times = strip.times_ns
    if all(map(lt, times, islice(times, 1, None))):
        return strip
    newest = {time: index for index, time in enumerate(times)}
    return select_points(strip, [newest[time] for time in sorted(newest)])


def concatenate(strips: Sequence[Strip]) -> Strip:
    """Concatenate consecutive strips; a field that a strip lacks is None there."""
    if len(strips) == 1:
        return strips[0]
    times = list(chain.from_iterable(strip.times_ns for strip in strips))
    columns: dict[str, FieldValues] = {name: [] for strip in strips for name in strip.columns}
    for strip in strips:
        for name, values in columns.items():
            values.extend(strip.columns.get(name) or [None] * len(strip.times_ns))
    return Strip(times, columns)


def select_points(strip: Strip, indexes: Sequence[int]) -> Strip:
    """Select points by index."""
    times = strip.times_ns
    columns = {name: [column[index] for index in indexes] for name, column in strip.columns.items()}
    return Strip([times[index] for index in indexes], columns)


def slice_with_previous(strip: Strip, since_ns: int, until_ns: int) -> Strip:
    """Points of [since, until] and the one before, which gives the value at `since`."""
    return _slice(strip, max(bisect_right(strip.times_ns, since_ns) - 1, 0), bisect_right(strip.times_ns, until_ns))


def slice_between(strip: Strip, since_ns: int, until_ns: int) -> Strip:
    """Points of [since, until]."""
    return _slice(strip, bisect_left(strip.times_ns, since_ns), bisect_right(strip.times_ns, until_ns))


def _slice(strip: Strip, first: int, last: int) -> Strip:
    if first == 0 and last == len(strip.times_ns):
        return strip
    return Strip(strip.times_ns[first:last], {name: column[first:last] for name, column in strip.columns.items()})


def sample_on_grid(strip: Strip, step_ns: int, since_ns: int, until_ns: int, spans: Iterable[Span] | None) -> Strip:
    """Values at the multiples of `step_ns` in [since, until] within the spans; None: no gaps."""
    times, indexes = [], []
    point_times = strip.times_ns
    for start_ns, end_ns in [(since_ns, until_ns)] if spans is None else spans:
        first = -(-max(start_ns, since_ns) // step_ns) * step_ns
        for time in range(first, min(end_ns, until_ns) + 1, step_ns):
            index = bisect_right(point_times, time) - 1
            if index >= 0:
                times.append(time)
                indexes.append(index)
    return Strip(times, select_points(strip, indexes).columns)


def remove_between(strip: Strip, after_ns: int, until_ns: int) -> Strip:
    """Remove the points of (after, until]."""
    first, last = bisect_right(strip.times_ns, after_ns), bisect_right(strip.times_ns, until_ns)
    columns = {name: column[:first] + column[last:] for name, column in strip.columns.items()}
    return Strip(strip.times_ns[:first] + strip.times_ns[last:], columns)


def thin_out(strip: Strip, max_bytes: int) -> Strip:
    """Keep every n-th point, so that the decoded block takes at most `max_bytes`."""
    points = len(strip.times_ns)
    stride = -(-points * (len(strip.columns) + 1) * 8 // max_bytes)
    if stride <= 1:
        return strip
    return select_points(strip, [*range(0, points - 1, stride), points - 1])


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """Sort spans and merge those that touch or overlap."""
    merged: list[Span] = []
    for start_ns, end_ns in sorted(spans):
        if merged and start_ns <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end_ns, merged[-1][1]))
        else:
            merged.append((start_ns, end_ns))
    return merged


def block_id(period: int, entity: int) -> int:
    """Id of an entity's block; periods count from the epoch."""
    return (period << ENTITY_BITS) + entity


def split_id(identity: int) -> tuple[int, int]:
    """Split a block id into period and entity."""
    return identity >> ENTITY_BITS, identity & ((1 << ENTITY_BITS) - 1)


class EntityCatalogue:
    """Cache of the numbers of entities and layouts; call `forget` when a transaction fails."""

    def __init__(self) -> None:
        self._entities: dict[str, int] = {}
        self._layouts: dict[tuple[str, ...], int] = {}

    def forget(self) -> None:
        """Discard the cached numbers, so that they are read again."""
        self._entities.clear()
        self._layouts.clear()

    def entities(self, connection: Connection, names: Collection[str], observed_ns: int) -> dict[str, int]:
        """Numbers of the entities; unknown ones get new numbers."""
        numbers = self._entities
        if len(numbers) > 100_000:
            numbers.clear()
        for name in sorted({name for name in names if name not in numbers}):
            stored_name = name[:_MAX_NAME]
            connection.execute(compiled.ADD_ENTITY, {"name": stored_name, "observed_ns": observed_ns})
            numbers[name] = connection.execute(compiled.ENTITY, {"known": stored_name}).fetchone()[0]
        return numbers

    def layout(self, connection: Connection, fields: tuple[str, ...]) -> int:
        """Find the number of a list of field names; an unknown list gets a new one."""
        if fields not in self._layouts:
            text = ",".join(fields)
            connection.execute(compiled.ADD_LAYOUT, {"fields": text})
            self._layouts[fields] = connection.execute(compiled.LAYOUT, {"known": text}).fetchone()[0]
        return self._layouts[fields]


def read_layouts(connection: Connection) -> dict[int, tuple[str, ...]]:
    """Read all layouts: field names by number."""
    return {number: tuple(text.split(",")) for number, text in connection.execute(compiled.LAYOUTS)}


def fetch_blocks(connection: Connection, table: str, ids: Collection[int]) -> Iterator[tuple[int, int, bytes]]:
    """Yield (id, layout, data) of those of these blocks that exist, by id."""
    yield from connection.execute(compiled.BLOCKS.format(table), {"ids": _encode(list(ids)).decode()})


def decode_strip(layout: int, data: bytes, layouts: Mapping[int, tuple[str, ...]]) -> Strip:
    """Decode the points of a block; raises BlockError."""
    fields = layouts.get(layout)
    if fields is None:
        raise BlockError(f"layout {layout} is not known")
    times, columns = decode(data, MAX_BLOCK_BYTES)
    if read_time_unit(data) not in (TIME_UNIT_NS, ROLLUP_UNIT_NS):
        raise BlockError("a block in another unit of time")  # its times would be years off
    if len(columns) != len(fields):
        raise BlockError("a block that does not fit its layout")
    return Strip(times, dict(zip(fields, columns, strict=True)))


def put_blocks(connection: Connection, table: str, blocks: Iterable[tuple[int, int, bytes]]) -> None:
    """Insert or replace blocks, given as (id, layout, data)."""
    rows = ({"id": identity, "layout": layout, "data": data} for identity, layout, data in blocks)
    connection.executemany(compiled.PUT_BLOCK.format(table), rows)


def remove_blocks(connection: Connection, table: str, ids: Iterable[int]) -> None:
    """Delete blocks by id."""
    connection.executemany(compiled.REMOVE_BLOCK.format(table), ({"block": identity} for identity in ids))
