"""Strips of points in the tables of blocks: ids, layouts, encoding with the store's precision."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from sqlite3 import Connection

import msgspec

from ckptprof.store.blocks import BlockError, Column, decode, encode, unit_of
from ckptprof.store.series import Strip
from ckptprof.store.sql import compiled
from ckptprof.store.sql.columns import ENTITY_BITS

MINUTE_NS = 60_000_000_000
HOUR_NS = 60 * MINUTE_NS
DAY_NS = 24 * HOUR_NS
MAX_BLOCK_BYTES = 16 << 20
TIME_UNIT_NS = 1_000_000  # a hundredth of the fastest tick; the noise below it would cost each entity a byte per point
_ROLLUP_UNIT_NS = 1_000_000_000
_MAX_NAME = 512
_encode = msgspec.json.Encoder().encode


def block_id(period: int, entity: int) -> int:
    """Return the id of an entity's block in a period counted from the epoch."""
    return (period << ENTITY_BITS) + entity


def split_id(identity: int) -> tuple[int, int]:
    """Return period and entity."""
    return identity >> ENTITY_BITS, identity & ((1 << ENTITY_BITS) - 1)


class Catalogue:
    """The numbers of entities and layouts, remembered; forget them when a transaction fails."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._entities: dict[str, int] = {}
        self._layouts: dict[tuple[str, ...], int] = {}

    def forget(self) -> None:
        """Ask the database again."""
        self._entities.clear()
        self._layouts.clear()

    def entities(self, connection: Connection, names: Collection[str], seen_ns: int) -> dict[str, int]:
        """Return the numbers of the entities, giving new ones to the unknown."""
        known = self._entities
        if len(known) > 100_000:
            known.clear()
        for name in sorted({name for name in names if name not in known}):
            kept = name[:_MAX_NAME]
            connection.execute(compiled.ADD_ENTITY, {"name": kept, "seen_ns": seen_ns})
            known[name] = connection.execute(compiled.ENTITY, {"known": kept}).fetchone()[0]
        return known

    def layout(self, connection: Connection, fields: tuple[str, ...]) -> int:
        """Return the number of a list of field names."""
        if fields not in self._layouts:
            text = ",".join(fields)
            connection.execute(compiled.ADD_LAYOUT, {"fields": text})
            self._layouts[fields] = connection.execute(compiled.LAYOUT, {"known": text}).fetchone()[0]
        return self._layouts[fields]


def layouts(connection: Connection) -> dict[int, tuple[str, ...]]:
    """Return all layouts."""
    return {number: tuple(text.split(",")) for number, text in connection.execute(compiled.LAYOUTS)}


def fetch(connection: Connection, table: str, ids: Collection[int]) -> Iterator[tuple[int, int, bytes]]:
    """Yield (id, layout, data) of those of these blocks that exist, by id."""
    yield from connection.execute(compiled.BLOCKS[table], {"ids": _encode(list(ids)).decode()})


def unpack(layout: int, data: bytes, known: Mapping[int, tuple[str, ...]]) -> Strip:
    """Return the points of a block; raises BlockError."""
    fields = known.get(layout)
    if fields is None:
        raise BlockError(f"layout {layout} is not known")
    times, columns = decode(data, MAX_BLOCK_BYTES)
    if unit_of(data) not in (TIME_UNIT_NS, _ROLLUP_UNIT_NS):
        raise BlockError("a block in another unit of time")  # it would lie in other years, and fill those in between
    if len(columns) != len(fields):
        raise BlockError("a block that does not fit its layout")
    return Strip(times, dict(zip(fields, columns, strict=True)))


def pack(times_ns: Sequence[int], columns: Sequence[Column], *, compression: int = 6) -> bytes:
    """Return the block of these points, its times rounded to the store's precision."""
    return encode(times_ns, columns, time_unit_ns=TIME_UNIT_NS, compression=compression)


def pack_rollup(times_ns: Sequence[int], columns: Sequence[Column]) -> bytes:
    """Return the block of points that lie on whole minutes."""
    return encode(times_ns, columns, time_unit_ns=_ROLLUP_UNIT_NS)


def put(connection: Connection, table: str, blocks: Iterable[tuple[int, int, bytes]]) -> None:
    """Insert or replace blocks, given as (id, layout, data)."""
    rows = ({"id": identity, "layout": layout, "data": data} for identity, layout, data in blocks)
    connection.executemany(compiled.PUT_BLOCK[table], rows)


def remove(connection: Connection, table: str, ids: Iterable[int]) -> None:
    """Delete blocks by id."""
    connection.executemany(compiled.REMOVE_BLOCK[table], ({"block": identity} for identity in ids))
