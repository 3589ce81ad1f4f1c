"""Reading the timeline of one entity: minutes, hours and roll-ups become one series."""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import Connection

from ckptprof.errors import StoreError
from ckptprof.store.rows import get_sessions
from ckptprof.store.series import Series, Span, Strip, between, chained, cut, joined, merged_spans, multiples, on_grid
from ckptprof.store.sql import compiled
from ckptprof.store.strips import DAY_NS, HOUR_NS, MINUTE_NS, block_id, fetch, layouts, split_id, unpack

MAX_VALUES = 16_000_000  # of one answer: about half a gigabyte as numbers of Python
_MAX_GUESSES = 50_000
_SECOND_NS = 1_000_000_000


def read_series(connection: Connection, entity: str, span: Span, step_seconds: int | None) -> Series:
    """Return the series; raises StoreError if it would be too long, BlockError if a block is damaged."""
    known = connection.execute(compiled.ENTITY, {"known": entity}).fetchone()
    step_ns = None if step_seconds is None else step_seconds * _SECOND_NS
    if known is None:
        return Series(entity=entity, times_ns=[], columns={}, step_ns=step_ns)
    source = _Source(connection, known[0])
    if step_ns is None:
        strip = between(source.raw(*span), *span)
    elif step_ns % MINUTE_NS:
        strip = source.grid(step_ns, *span)
    else:
        strip = source.rolled(step_ns, *span)
    return Series(entity=entity, times_ns=strip.times_ns, columns=strip.columns, step_ns=step_ns)


class _Source:
    """The blocks of one entity."""

    def __init__(self, connection: Connection, number: int) -> None:
        self._connection = connection
        self._number = number
        self._layouts = layouts(connection)
        self._values = 0

    def raw(self, since_ns: int, until_ns: int) -> Strip:
        """Return all points from the start of the first hour on."""
        begin = since_ns - since_ns % HOUR_NS
        strips = self._strips("hours", HOUR_NS, begin, until_ns)
        strips += self._strips("minutes", MINUTE_NS, begin, until_ns)
        return joined(strips) if strips else Strip([], {})

    def grid(self, step_ns: int, since_ns: int, until_ns: int) -> Strip:
        """Return the values at the multiples of a step, in the times that were watched."""
        sessions = get_sessions(self._connection)
        spans = merged_spans((session.start_ns, session.end_ns) for session in sessions) if sessions else None
        strip = self.raw(since_ns, until_ns)
        if not strip.times_ns:
            return strip
        if spans is None:
            until_ns = min(until_ns, strip.times_ns[-1])
        return on_grid(strip, step_ns, max(since_ns, strip.times_ns[0]), until_ns, spans)

    def rolled(self, step_ns: int, since_ns: int, until_ns: int) -> Strip:
        """Return the values at a step of whole minutes: from the roll-ups, and from the minutes that have none yet."""
        strips = self._strips("rollups", DAY_NS, since_ns - 1, until_ns)
        rolled = chained(strips) if strips else Strip([], {})  # a day's block is sorted when it is written
        newest_ns = rolled.times_ns[-1] if rolled.times_ns else since_ns  # the next hour may know that minute better
        tail = self.grid(step_ns, max(since_ns, newest_ns), until_ns) if newest_ns <= until_ns else Strip([], {})
        if tail.times_ns:
            until_ns = tail.times_ns[0] - 1
        head = cut(rolled, since_ns, until_ns)
        if step_ns != MINUTE_NS:
            head = multiples(head, step_ns)
        return chained([head, tail]) if tail.times_ns else head

    def _strips(self, table: str, period_ns: int, since_ns: int, until_ns: int) -> list[Strip]:
        strips = []
        for _, layout, data in fetch(self._connection, table, self._ids(table, period_ns, since_ns, until_ns)):
            strip = unpack(layout, data, self._layouts)
            self._values += len(strip.times_ns) * (1 + len(strip.columns))
            if self._values > MAX_VALUES:
                raise StoreError("that is too much for one answer", hint="ask for a shorter time or a step of minutes")
            strips.append(strip)
        return strips

    def _ids(self, table: str, period_ns: int, since_ns: int, until_ns: int) -> Sequence[int]:
        low, high = self._connection.execute(compiled.BLOCK_SPAN[table]).fetchone()
        if low is None:
            return ()
        first = max(since_ns // period_ns, split_id(low)[0])
        last = min(until_ns // period_ns, split_id(high)[0])
        if last - first <= _MAX_GUESSES:
            return [block_id(period, self._number) for period in range(first, last + 1)]
        within = {"entity": self._number, "first": block_id(first, 0), "last": block_id(last + 1, 0)}
        return [identity for (identity,) in self._connection.execute(compiled.BLOCKS_OF[table], within)]
