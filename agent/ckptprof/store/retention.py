"""Limits the size of the store: compacts minutes into hours and roll-ups, drops old data and data beyond the limit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from sqlite3 import Connection
from typing import NamedTuple

from ckptprof.store.checkpoint_rows import recorded_spans
from ckptprof.store.connection import run_to_completion, transaction
from ckptprof.store.migrations import read_pragma
from ckptprof.store.series import strips
from ckptprof.store.series.blocks import BlockError, encode
from ckptprof.store.series.strips import DAY_NS, HOUR_NS, MINUTE_NS, Span, Strip, block_id, split_id
from ckptprof.store.sql import compiled

_LATE_WINDOW_NS = 2 * MINUTE_NS  # a window may arrive late
_MINUTES_PER_HOUR = 60
_BLOCKS_PER_TRANSACTION = 8  # hours of entities per transaction, so that other commits can run in between
_VACUUM_PAGES = 2048
_EVENTS_PER_TRANSACTION = 100


@dataclass(frozen=True)
class Retention:
    """Limits of retained data: timelines by age, everything by size; events are dropped last."""

    timeline_days: int = 30
    max_bytes: int = 1 << 30


def used_bytes(connection: Connection) -> int:
    """Bytes in use; free pages do not count."""
    return (read_pragma(connection, "page_count") - read_pragma(connection, "freelist_count")) * read_pragma(
        connection, "page_size"
    )


class CompactionResult(NamedTuple):
    """Result of a compaction."""

    damaged_blocks: int  # blocks
    is_complete: bool  # else some hours are left, for those who wait


def compact(
    connection: Connection, catalogue: strips.EntityCatalogue, now_wall_ns: int, is_interrupted: Callable[[], bool]
) -> CompactionResult:
    """Make hour blocks and roll-ups from the minutes of past hours; stop early if `is_interrupted`."""
    limit = (now_wall_ns - _LATE_WINDOW_NS) // HOUR_NS
    before = {"before": block_id(limit * _MINUTES_PER_HOUR, 0)}
    minute_ids = [identity for (identity,) in connection.execute(compiled.BLOCKS_BEFORE.format("minutes"), before)]
    if not minute_ids:
        return CompactionResult(0, is_complete=True)
    order = sorted(minute_ids, key=_hour_key)
    groups = ((key, list(ids)) for key, ids in groupby(order, _hour_key))
    compactor = _Compactor(connection, catalogue, recorded_spans(connection))
    while batch := dict(islice(groups, _BLOCKS_PER_TRANSACTION)):
        with transaction(connection):
            compactor.compact(batch)
        if is_interrupted():
            return CompactionResult(compactor.damaged, is_complete=False)
    return CompactionResult(compactor.damaged, is_complete=True)


def _hour_key(identity: int) -> tuple[int, int]:
    minute, entity = split_id(identity)
    return minute // _MINUTES_PER_HOUR, entity


def _day_block_id(hour: int, entity: int) -> int:
    return block_id(hour * HOUR_NS // DAY_NS, entity)


class _Compactor:
    """Works on some hours of entities at a time."""

    def __init__(self, connection: Connection, catalogue: strips.EntityCatalogue, spans: Sequence[Span] | None) -> None:
        self.damaged = 0
        self._names: Mapping[int, tuple[str, ...]] = {}
        self._connection = connection
        self._catalogue = catalogue
        self._spans = spans  # recorded times; None: unknown, so all of it

    def compact(self, batch: Mapping[tuple[int, int], Sequence[int]]) -> None:
        """Merge minutes, by hour and entity, into their hours and the roll-ups of their days."""
        connection = self._connection
        self._names = strips.read_layouts(connection)
        rollups_before = dict(self._readable_blocks("rollups", {_day_block_id(*key) for key in batch}))
        days: dict[int, Strip] = {}
        blocks: list[tuple[int, int, bytes]] = []
        newest: list[dict[str, int]] = []
        for (hour, entity), ids in batch.items():  # one after the other: an hour of one entity may take 30 MB
            found = [*self._readable_blocks("hours", [block_id(hour, entity)]), *self._readable_blocks("minutes", ids)]
            if not found:
                continue
            strip = strips.thin_out(strips.join([one for _, one in found]), strips.MAX_BLOCK_BYTES)
            day = _day_block_id(hour, entity)
            rolled_up = self._roll_up(days.get(day, rollups_before.get(day)), hour, strip)
            if rolled_up is not None:
                days[day] = rolled_up
            blocks.append(self._block(block_id(hour, entity), strip, strips.TIME_UNIT_NS))
            newest.append({"entity": entity, "newest_ns": strip.times_ns[-1]})
        strips.put_blocks(connection, "hours", blocks)
        rollups = (self._block(day, strip, strips.ROLLUP_UNIT_NS) for day, strip in days.items())
        strips.put_blocks(connection, "rollups", rollups)
        connection.executemany(compiled.UPDATE_ENTITY, newest)
        strips.remove_blocks(connection, "minutes", [identity for ids in batch.values() for identity in ids])

    def _block(self, identity: int, strip: Strip, time_unit_ns: int) -> tuple[int, int, bytes]:
        layout = self._catalogue.layout(self._connection, tuple(strip.columns))
        return identity, layout, encode(strip.times_ns, [*strip.columns.values()], time_unit_ns=time_unit_ns)

    def _readable_blocks(self, table: str, ids: Collection[int]) -> Iterator[tuple[int, Strip]]:
        """Yield the readable blocks: a damaged one must not block the others for ever."""
        for identity, layout, data in strips.fetch_blocks(self._connection, table, ids):
            try:
                strip = strips.decode_strip(layout, data, self._names)
            except BlockError:
                self.damaged += 1
                continue
            if strip.times_ns:
                yield identity, strip

    def _roll_up(self, before: Strip | None, hour: int, strip: Strip) -> Strip | None:
        """Replace one hour in the roll-up of a day; None: unchanged."""
        after_ns, until_ns = hour * HOUR_NS, (hour + 1) * HOUR_NS
        minutely = strips.sample_on_grid(strip, MINUTE_NS, after_ns, until_ns, self._spans)
        if not minutely.times_ns:
            return None
        other_hours = [] if before is None else [strips.remove_between(before, after_ns, until_ns)]
        return strips.join([*other_hours, minutely])


def expire(connection: Connection, retention: Retention, now_wall_ns: int) -> None:
    """Drop timelines and measures older than the retention, and entities that have none left."""
    limit_ns = now_wall_ns - retention.timeline_days * DAY_NS
    with transaction(connection):
        for table, period_ns in (("minutes", MINUTE_NS), ("hours", HOUR_NS), ("rollups", DAY_NS)):
            connection.execute(compiled.REMOVE_BEFORE.format(table), {"before": block_id(limit_ns // period_ns, 0)})
        connection.execute(compiled.EXPIRE_ENTITIES, {"limit_ns": limit_ns - DAY_NS})
        connection.execute(compiled.EXPIRE_MEASURES, {"limit_ns": limit_ns})


def shrink(connection: Connection, max_bytes: int) -> None:
    """Drop the oldest until no more than `max_bytes` are used: timelines, roll-ups, measures, and events last.

    Events of the user with the most bytes go first: endless saves of one user do not displace those of others.
    """
    shrink_timelines(connection, max_bytes)
    _shrink_events(connection, max_bytes, compiled.SHRINK_MEASURES)
    _shrink_events(connection, max_bytes, compiled.SHRINK_CHECKPOINTS)


def _shrink_events(connection: Connection, max_bytes: int, statement: str) -> None:
    while used_bytes(connection) > max_bytes:
        with transaction(connection):
            if not connection.execute(statement, {"most": _EVENTS_PER_TRANSACTION}).rowcount:
                return


def shrink_timelines(connection: Connection, max_bytes: int) -> bool:
    """Drop the oldest timelines until no more than `max_bytes` are used; return whether any were dropped."""
    dropped = False
    while used_bytes(connection) > max_bytes:
        with transaction(connection):
            if not any(_drop_oldest(connection, table) for table in ("hours", "rollups", "minutes")):
                return dropped
        dropped = True
    return dropped


def _drop_oldest(connection: Connection, table: str) -> bool:
    oldest, _ = connection.execute(compiled.BLOCK_SPAN.format(table)).fetchone()
    if oldest is None:
        return False
    period = split_id(oldest)[0]
    connection.execute(compiled.REMOVE_BEFORE.format(table), {"before": block_id(period + 1, 0)})
    return True


def release_pages(connection: Connection) -> None:
    """Return a part of the unused pages to the file system."""
    free, pages = read_pragma(connection, "freelist_count"), read_pragma(connection, "page_count")
    if free > _VACUUM_PAGES and free * 5 > pages:
        run_to_completion(connection, f"PRAGMA incremental_vacuum({_VACUUM_PAGES})")
