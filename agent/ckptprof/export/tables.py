"""Series of the machine's entities (disks, NICs, ports), bounded in number whatever the machine does.

A container host makes interfaces with random names all day. So a table has `cap` rows; what finds no row is added up in
one row called `other`, which only ever grows. What has left gives its row back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from prometheus_client.core import Metric
from prometheus_client.samples import Sample

from ckptprof.export.columns import Column, Labels, Number, collect
from ckptprof.export.labels import OTHER, clean

REMEMBERED = 4096  # names outside the table of which the last sample or description is kept

S = TypeVar("S")
T = TypeVar("T")


class About(NamedTuple):
    """What a collector said of an entity, once: its rank, its labels and its speed.

    Rank 0 is never shown, 1 may make room for 2.
    """

    rank: int
    info: Labels
    speed: Number | None = None


_NOTHING_KNOWN = About(1, {})


class _Row(Generic[S]):
    __slots__ = ("labels", "sample")

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self.sample: S | None = None


class Table(Generic[S]):
    """One entity kind: its rows are entities, its columns are families."""

    def __init__(
        self,
        columns: Sequence[Column[S]],
        *,
        cap: int,
        labels: Callable[[str], Labels],
        info: tuple[str, str] | None = None,
        speed: tuple[str, str] | None = None,
    ) -> None:
        """Take the families, the labels of an entity's name, and name and help of the info and speed families."""
        self._columns = tuple(columns)
        self.subsystem = columns[0].series.split("_")[1]  # ckptprof_disk_...: disk
        self._cap = cap
        self._labels = labels
        self._other_labels = dict.fromkeys(labels(""), OTHER)
        self._infos = [Column[About](*info, lambda _: 1, kind="gauge")] if info else []
        self._speeds = [Column[About](*speed, lambda about: about.speed, kind="gauge")] if speed else []
        self._rows: dict[str, _Row[S]] = {}
        self._taken: set[tuple[str, ...]] = set()
        self._about: dict[str, About] = {}
        self._folded: dict[str, S] = {}  # last sample of what has no row of its own
        self._other: list[Number] | None = None
        self._unseen: set[str] = set()  # of those with a row, since the sampler began
        self.dropped = 0  # entities that were folded into `other`

    def describe(self, name: str, about: About) -> None:
        """Remember what a collector said of an entity."""
        _remember(self._about, name, about._replace(info={key: clean(value) for key, value in about.info.items()}))
        if about.rank == 0 and name in self._rows:
            self._release(name)

    def remove(self, name: str) -> None:
        """Forget an entity that has left: another one of its name begins anew."""
        row = self._rows.pop(name, None)
        if row is not None:
            self._taken.discard(tuple(row.labels.values()))
        self._about.pop(name, None)
        self._folded.pop(name, None)

    def begin(self) -> None:
        """Take note that a sampler has begun: nobody tells what left between the last one and it."""
        self._unseen = set(self._rows)

    def complete(self) -> None:
        """Take note that the sampler has told all that is there."""
        while self._unseen:
            self.remove(self._unseen.pop())

    def update(self, name: str, sample: S) -> None:
        """Take the newest sample of an entity."""
        self._unseen.discard(name)
        row = self._rows.get(name)
        if row is None:
            rank = self._about.get(name, _NOTHING_KNOWN).rank
            if rank == 0:
                return
            row = self._admit(name, rank)
            if row is None:
                self._fold(name, sample)
                return
        row.sample = sample

    def collect(self) -> Iterator[Metric]:
        """Yield every family that has a series, its rows in the order in which they were first seen."""
        rows = [(row.labels, row.sample) for row in self._rows.values() if row.sample is not None]
        for index, column in enumerate(self._columns):
            family = column.family(column.read(labels, sample) for labels, sample in rows)
            if self._other is not None and column.is_counter:
                family.samples.append(Sample(column.series, self._other_labels, self._other[index]))
            if family.samples:
                yield family
        known = [(row.labels, self._about[name]) for name, row in self._rows.items() if name in self._about]
        yield from collect(self._infos, [({**labels, **about.info}, about) for labels, about in known])
        yield from collect(self._speeds, known)

    def _admit(self, name: str, rank: int) -> _Row[S] | None:
        labels = {key: clean(value) for key, value in self._labels(name).items()}
        # Two names that differ only in what `clean` takes away would be one series twice: Prometheus refuses that.
        if OTHER in labels.values() or tuple(labels.values()) in self._taken:
            return None
        if len(self._rows) >= self._cap and not self._make_room(rank):
            return None
        row: _Row[S] = _Row(labels)
        self._rows[name] = row
        self._taken.add(tuple(labels.values()))
        self._folded.pop(name, None)
        return row

    def _make_room(self, rank: int) -> bool:
        def importance(name: str) -> int:
            return self._about.get(name, _NOTHING_KNOWN).rank

        victim = min(self._rows, key=importance)
        if importance(victim) >= rank:
            return False
        self._release(victim)
        return True

    def _release(self, name: str) -> None:
        row = self._rows.pop(name)
        self._taken.discard(tuple(row.labels.values()))
        if row.sample is not None:
            _remember(self._folded, name, row.sample)

    def _fold(self, name: str, sample: S) -> None:
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
    if name not in kept and len(kept) >= REMEMBERED:
        del kept[next(iter(kept))]
    kept[name] = value
