"""Series of the machine's entities (disks, NICs, ports), bounded in number.

A container host continuously creates interfaces with random names. A table has `cap` rows; entities without a row are
summed in a row `other`, which never decreases. Removed entities free their row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from prometheus_client.core import Metric
from prometheus_client.samples import Sample

from ckptprof.export.columns import Labels, MetricColumn, Number, collect
from ckptprof.export.labels import OTHER, clean

REMEMBERED = 4096  # names outside the table whose last sample or description is retained

S = TypeVar("S")
T = TypeVar("T")


class About(NamedTuple):
    """Description of an entity by a collector: rank, labels and speed.

    Rank 0 is never exported, rank 2 may evict rank 1.
    """

    rank: int
    info: Labels
    speed: Number | None = None


_UNDESCRIBED = About(1, {})


class _EntityRow(Generic[S]):
    __slots__ = ("labels", "sample", "series")

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self.sample: S | None = None
        self.series: list[Sample | None] = []  # of the sample, once they were collected


class EntityTable(Generic[S]):
    """The entities of one kind: rows are entities, columns are families."""

    def __init__(
        self,
        columns: Sequence[MetricColumn[S]],
        *,
        cap: int,
        labels: Callable[[str], Labels],
        info: tuple[str, str] | None = None,
        speed: tuple[str, str] | None = None,
    ) -> None:
        """`labels` maps an entity's name to labels; `info` and `speed` are name and help of these families."""
        self._columns = tuple(columns)
        self.subsystem = columns[0].series.split("_")[1]  # ckptprof_disk_...: disk
        self._cap = cap
        self._labels = labels
        self._other_labels = dict.fromkeys(labels(""), OTHER)
        self._infos = [MetricColumn[About](*info, lambda _: 1, kind="gauge")] if info else []
        self._speeds = [MetricColumn[About](*speed, lambda about: about.speed, kind="gauge")] if speed else []
        self._rows: dict[str, _EntityRow[S]] = {}
        self._used_labels: set[tuple[str, ...]] = set()
        self._about: dict[str, About] = {}
        self._folded: dict[str, S] = {}  # last sample of entities without a row
        self._other: list[Number] | None = None
        self._unconfirmed: set[str] = set()  # rows not yet confirmed by the current sampler
        self.dropped = 0  # entities summed in `other`

    def describe(self, name: str, about: About) -> None:
        """Update the description of an entity."""
        _remember(self._about, name, about._replace(info={key: clean(value) for key, value in about.info.items()}))
        if about.rank == 0 and name in self._rows:
            self._release(name)

    def remove(self, name: str) -> None:
        """Remove an entity; a new one with the same name starts from zero."""
        row = self._rows.pop(name, None)
        if row is not None:
            self._used_labels.discard(tuple(row.labels.values()))
        self._about.pop(name, None)
        self._folded.pop(name, None)

    def start(self) -> None:
        """Record a sampler start: removals before it were not reported."""
        self._unconfirmed = set(self._rows)

    def complete(self) -> None:
        """Remove entities that the new sampler did not report in its first full read."""
        while self._unconfirmed:
            self.remove(self._unconfirmed.pop())

    def update(self, name: str, sample: S) -> None:
        """Update an entity with its newest sample."""
        self._unconfirmed.discard(name)
        row = self._rows.get(name)
        if row is None:
            rank = self._about.get(name, _UNDESCRIBED).rank
            if rank == 0:
                return
            row = self._admit(name, rank)
            if row is None:
                self._fold(name, sample)
                return
        if row.sample != sample:
            row.sample, row.series = sample, []

    def collect(self) -> Iterator[Metric]:
        """Yield the families that have a series, rows in order of first observation."""
        for row in self._rows.values():
            if row.sample is not None and not row.series:
                row.series = [column.read(row.labels, row.sample) for column in self._columns]
        for index, column in enumerate(self._columns):
            family = column.family(row.series[index] for row in self._rows.values() if row.series)
            if self._other is not None and column.is_counter:
                family.samples.append(Sample(column.series, self._other_labels, self._other[index]))
            if family.samples:
                yield family
        known = [(row.labels, self._about[name]) for name, row in self._rows.items() if name in self._about]
        yield from collect(self._infos, [({**labels, **about.info}, about) for labels, about in known])
        yield from collect(self._speeds, known)

    def _admit(self, name: str, rank: int) -> _EntityRow[S] | None:
        labels = {key: clean(value) for key, value in self._labels(name).items()}
        # Two names that `clean` maps to the same labels would duplicate a series, which Prometheus refuses.
        if OTHER in labels.values() or tuple(labels.values()) in self._used_labels:
            return None
        if len(self._rows) >= self._cap and not self._evict_for(rank):
            return None
        row: _EntityRow[S] = _EntityRow(labels)
        self._rows[name] = row
        self._used_labels.add(tuple(labels.values()))
        self._folded.pop(name, None)
        return row

    def _evict_for(self, rank: int) -> bool:
        ranks = {name: self._about.get(name, _UNDESCRIBED).rank for name in self._rows}
        victim = min(ranks, key=ranks.__getitem__)
        if ranks[victim] >= rank:
            return False
        self._release(victim)
        return True

    def _release(self, name: str) -> None:
        row = self._rows.pop(name)
        self._used_labels.discard(tuple(row.labels.values()))
        if row.sample is not None:
            _remember(self._folded, name, row.sample)

    def _fold(self, name: str, sample: S) -> None:
        self._other = self._other or [0] * len(self._columns)
        before = self._folded.get(name)
        if before is None:
            self.dropped += 1
        else:
            for index, column in enumerate(self._columns):
                old, new = column.value(before), column.value(sample)
                if old is not None and new is not None and new > old:
                    self._other[index] += new - old
        _remember(self._folded, name, sample)


def _remember(entries: dict[str, T], name: str, value: T) -> None:
    if name not in entries and len(entries) >= REMEMBERED:
        del entries[next(iter(entries))]
    entries[name] = value
