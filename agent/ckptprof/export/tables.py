"""Series of the machine's entities (disks, NICs, ports), bounded in number whatever the machine does.

A container host makes interfaces with random names all day, and a dead one never says goodbye. So a table has `cap`
rows; what finds no row is added up in one row called `other`, which only ever grows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from ckptprof.export.exposition import OTHER, Column, Number, clean, header, label_bytes

REMEMBERED = 4096  # names outside the table of which the last sample or description is kept
IDLE_BEFORE_EVICTION_NS = 3_600_000_000_000  # a row that has not changed for an hour may make room

S = TypeVar("S")
T = TypeVar("T")


class About:
    """What a collector said of an entity, once: its labels, its rank and its speed."""

    __slots__ = ("info", "rank", "speed")

    def __init__(self, rank: int, info: tuple[tuple[str, str], ...], speed: Number | None = None) -> None:
        """Rank 0 is never shown, 1 may make room for 2."""
        self.rank = rank
        self.info = info
        self.speed = speed


_NOTHING_KNOWN = About(1, ())


class _Row(Generic[S]):
    __slots__ = ("changed_ns", "label", "prefixes", "sample")

    def __init__(self, label: tuple[tuple[str, str], ...], prefixes: list[bytes]) -> None:
        self.label = label
        self.prefixes = prefixes
        self.sample: S | None = None
        self.changed_ns = 0


class Table(Generic[S]):
    """One entity kind: its rows are entities, its columns are families."""

    def __init__(
        self,
        columns: Sequence[Column[S]],
        *,
        cap: int,
        labels: Callable[[str], tuple[tuple[str, str], ...]],
        info: tuple[str, str],
        speed: tuple[str, str] | None = None,
    ) -> None:
        """Take the families, the labels of an entity's name, and name and help of the info and speed families."""
        self._columns = tuple(columns)
        self._cap = cap
        self._labels = labels
        self._other_labels = label_bytes(tuple((key, OTHER) for key, _ in labels("")))
        self._info_name = f"ckptprof_{info[0]}"
        self._info_header = header(self._info_name, "gauge", info[1])
        self._speed_name = f"ckptprof_{speed[0]}" if speed else ""
        self._speed_header = header(self._speed_name, "gauge", speed[1]) if speed else b""
        self._rows: dict[str, _Row[S]] = {}
        self._taken: set[tuple[tuple[str, str], ...]] = set()
        self._about: dict[str, About] = {}
        self._about_bytes: bytes | None = None
        self._folded: dict[str, S] = {}  # last sample of what has no row of its own
        self._other: list[Number] | None = None
        self.dropped = 0  # entities that were folded into `other`

    def describe(self, name: str, about: About) -> None:
        """Remember what a collector said of an entity."""
        _remember(self._about, name, about)
        self._about_bytes = None
        if about.rank == 0 and name in self._rows:
            self._release(name)

    def update(self, name: str, sample: S, at_ns: int) -> None:
        """Take the newest sample of an entity."""
        row = self._rows.get(name)
        if row is None:
            rank = self._about.get(name, _NOTHING_KNOWN).rank
            if rank == 0:
                return
            row = self._admit(name, rank, at_ns)
            if row is None:
                self._fold(name, sample)
                return
        row.sample = sample
        row.changed_ns = at_ns

    def render(self, out: list[bytes]) -> None:
        """Append every family, its rows in the order in which they were first seen."""
        rows = [(row.prefixes, row.sample) for row in self._rows.values() if row.sample is not None]
        for index, column in enumerate(self._columns):
            value, form = column.value, column.format
            lines = [
                prefixes[index] + form % number for prefixes, sample in rows if (number := value(sample)) is not None
            ]
            if self._other is not None and column.is_counter:
                lines.append(column.prefix(self._other_labels) + form % self._other[index])
            if lines:
                out.append(column.header)
                out += lines
        if self._about_bytes is None:
            self._about_bytes = self._render_about()
        out.append(self._about_bytes)

    def _render_about(self) -> bytes:
        infos, speeds = [], []
        for name, row in self._rows.items():
            about = self._about.get(name)
            if about is None:
                continue
            infos.append(self._info_name.encode() + label_bytes((*row.label, *about.info)) + b" 1\n")
            if about.speed is not None and self._speed_name:
                speeds.append(self._speed_name.encode() + label_bytes(row.label) + b" %d\n" % about.speed)
        parts = [self._info_header, *infos] if infos else []
        if speeds:
            parts += [self._speed_header, *speeds]
        return b"".join(parts)

    def _admit(self, name: str, rank: int, at_ns: int) -> _Row[S] | None:
        label = tuple((key, clean(value)) for key, value in self._labels(name))
        # Two names that differ only in what `clean` takes away would be one series twice: Prometheus refuses that.
        if label in self._taken or any(value == OTHER for _, value in label):
            return None
        if len(self._rows) >= self._cap and not self._make_room(rank, at_ns):
            return None
        labels = label_bytes(label)
        row: _Row[S] = _Row(label, [column.prefix(labels) for column in self._columns])
        self._rows[name] = row
        self._taken.add(label)
        self._folded.pop(name, None)
        self._about_bytes = None
        return row

    def _make_room(self, rank: int, at_ns: int) -> bool:
        def importance(name: str) -> tuple[int, int]:
            return self._about.get(name, _NOTHING_KNOWN).rank, self._rows[name].changed_ns

        victim = min(self._rows, key=importance)
        victim_rank, changed_ns = importance(victim)
        if victim_rank >= rank and at_ns - changed_ns < IDLE_BEFORE_EVICTION_NS:
            return False
        self._release(victim)
        return True

    def _release(self, name: str) -> None:
        row = self._rows.pop(name)
        self._taken.discard(row.label)
        self._about_bytes = None
        if row.sample is not None:
            _remember(self._folded, name, row.sample)

    def _fold(self, name: str, sample: S) -> None:
        """Add what the entity did since it was last seen to the row `other`."""
        if self._other is None:
            self._other = [0] * len(self._columns)
        before = self._folded.get(name)
        if before is None:
            self.dropped += 1
        else:
            for index, column in enumerate(self._columns):
                old, new = column.value(before), column.value(sample)
                if old is not None and new is not None and new > old:
                    self._other[index] += new - old
        _remember(self._folded, name, sample)


def _remember(kept: dict[str, T], name: str, value: T) -> None:
    """Keep a bounded number of values, the newest."""
    if name not in kept and len(kept) >= REMEMBERED:
        del kept[next(iter(kept))]
    kept[name] = value
