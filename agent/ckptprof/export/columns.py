"""Families of prometheus_client whose values are read off samples when a scrape comes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, Literal, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.samples import Sample

S = TypeVar("S")
Number = int | float
Labels = dict[str, str]
Row = tuple[Labels, S]  # what a series is of, and the sample to read it off


class Column(Generic[S]):
    """One family that is read off a sample: how it is called, and which number of the sample it is.

    `value` returns None for what could not be seen: then there is no series, never a zero.
    """

    __slots__ = ("_family", "is_counter", "series", "value")

    def __init__(
        self,
        name: str,
        text: str,
        value: Callable[[S], Number | None],
        *,
        kind: Literal["counter", "gauge"] = "counter",
    ) -> None:
        """Make the family once: to make it costs as much as five of its series."""
        self.series = f"ckptprof_{name}"
        self.value = value
        self.is_counter = kind == "counter"
        family = CounterMetricFamily if self.is_counter else GaugeMetricFamily
        self._family: Metric = family(self.series, text)

    def read(self, labels: Labels, sample: S) -> Sample | None:
        """Return the series of a row; None if its value was not seen."""
        number = self.value(sample)
        return None if number is None else Sample(self.series, labels, number)

    def family(self, series: Iterable[Sample | None]) -> Metric:
        """Return the family with the series that were seen; it is the same object each time."""
        self._family.samples = [one for one in series if one is not None]
        return self._family


def collect(columns: Iterable[Column[S]], rows: Sequence[Row[S]]) -> Iterator[Metric]:
    """Yield each family that has a series."""
    for column in columns:
        family = column.family(column.read(labels, sample) for labels, sample in rows)
        if family.samples:
            yield family


def unlabelled(sample: S | None) -> tuple[Row[S], ...]:
    """Return the one row of families without labels; none before there is a sample."""
    return () if sample is None else (({}, sample),)
