"""Reading the timeline of one entity: minutes, hours and roll-ups become one series."""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import Connection

from ckptprof.errors import StoreError
from ckptprof.store.series import strips
from ckptprof.store.series.strips import DAY_NS, HOUR_NS, MINUTE_NS, Span, Strip, block_id, split_id
from ckptprof.store.sql import compiled
from ckptprof.units import NS

MAX_ANSWER_VALUES = 16_000_000  # of one answer: about half a gigabyte as numbers of Python
_MAX_COMPUTED_IDS = 50_000


def read_series(
    connection: Connection, entity: str, span: Span, step_seconds: int | None, spans: Sequence[Span] | None
) -> Strip:
    """Read the cumulative counters and gauges of an entity, as the kernel gave them.

    Without a step: every stored point; between two points a counter did not change, or rose evenly. With it: values
    at each multiple of it in the recorded spans, None: in all. Raises StoreError if that would be too long,
    BlockError if a block is damaged.
    """
    entity_row = connection.execute(compiled.ENTITY, {"known": entity}).fetchone()
    step_ns = None if step_seconds is None else step_seconds * NS
    if entity_row is None:
        return Strip([], {})
    source = _EntityReader(connection, entity_row[0], spans)
    if step_ns is None:
        return strips.slice_with_previous(source.read_points(*span), *span)
    return source.read_grid(step_ns, *span) if step_ns % MINUTE_NS else source.read_rollups(step_ns, *span)


class _EntityReader:
    """The blocks of one entity."""

    def __init__(self, connection: Connection, number: int, spans: Sequence[Span] | None) -> None:
        self._connection = connection
        self._number = number
        self._spans = spans
        self._layouts = strips.read_layouts(connection)
        self._values = 0

    def read_points(self, since_ns: int, until_ns: int) -> Strip:
        """Read all points from the start of the first hour on."""
        start_ns = since_ns - since_ns % HOUR_NS
        found = self._read_strips("hours", HOUR_NS, start_ns, until_ns)
        found += self._read_strips("minutes", MINUTE_NS, start_ns, until_ns)
        return strips.join(found) if found else Strip([], {})

    def read_grid(self, step_ns: int, since_ns: int, until_ns: int) -> Strip:
        """Read the values at the multiples of a step, within the recorded times."""
        strip = self.read_points(since_ns, until_ns)
        if not strip.times_ns:
            return strip
        if self._spans is None:
            until_ns = min(until_ns, strip.times_ns[-1])
        return strips.sample_on_grid(strip, step_ns, max(since_ns, strip.times_ns[0]), until_ns, self._spans)

    def read_rollups(self, step_ns: int, since_ns: int, until_ns: int) -> Strip:
        """Read values at a step of whole minutes: from roll-ups, and from minutes that have none yet."""
        found = self._read_strips("rollups", DAY_NS, since_ns - 1, until_ns)
        rolled = strips.concatenate(found) if found else Strip([], {})  # a day's block is sorted when it is written
        newest_ns = rolled.times_ns[-1] if rolled.times_ns else since_ns  # the next hour may know that minute better
        tail = self.read_grid(step_ns, max(since_ns, newest_ns), until_ns) if newest_ns <= until_ns else Strip([], {})
        if tail.times_ns:
            until_ns = tail.times_ns[0] - 1
        head = strips.slice_between(rolled, since_ns, until_ns)
        if step_ns != MINUTE_NS:
            times = enumerate(head.times_ns)
            head = strips.select_points(head, [place for place, time in times if time % step_ns == 0])
        return strips.concatenate([head, tail]) if tail.times_ns else head

    def _read_strips(self, table: str, period_ns: int, since_ns: int, until_ns: int) -> list[Strip]:
        found = []
        for _, layout, data in strips.fetch_blocks(
            self._connection, table, self._block_ids(table, period_ns, since_ns, until_ns)
        ):
            strip = strips.decode_strip(layout, data, self._layouts)
            self._values += len(strip.times_ns) * (1 + len(strip.columns))
            if self._values > MAX_ANSWER_VALUES:
                raise StoreError("too many values for one result", hint="query a shorter time or a step of minutes")
            found.append(strip)
        return found

    def _block_ids(self, table: str, period_ns: int, since_ns: int, until_ns: int) -> Sequence[int]:
        low, high = self._connection.execute(compiled.BLOCK_SPAN.format(table)).fetchone()
        if low is None:
            return ()
        first = max(since_ns // period_ns, split_id(low)[0])
        last = min(until_ns // period_ns, split_id(high)[0])
        if last - first <= _MAX_COMPUTED_IDS:
            return [block_id(period, self._number) for period in range(first, last + 1)]
        within = {"entity": self._number, "first": block_id(first, 0), "last": block_id(last + 1, 0)}
        return [identity for (identity,) in self._connection.execute(compiled.BLOCKS_OF.format(table), within)]
