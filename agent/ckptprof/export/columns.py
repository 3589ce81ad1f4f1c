"""Metric families whose values are read from samples at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, Literal, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.samples import Sample

S = TypeVar("S")
Number = int | float
Labels = dict[str, str]
Row = tuple[Labels, S]  # the labels of a series, and its sample


class MetricColumn(Generic[S]):
    """One metric family, read from a sample.

    `value` returns None for not observed: then there is no series, never a zero.
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
        """Create the family once: that costs as much as five of its series."""
        self.series = f"ckptprof_{name}"
        self.value = value
        self.is_counter = kind == "counter"
        family = CounterMetricFamily if self.is_counter else GaugeMetricFamily
        self._family: Metric = family(self.series, text)

    def read(self, labels: Labels, sample: S) -> Sample | None:
        """Return the series of a row; None if not observed."""
        number = self.value(sample)
        return None if number is None else Sample(self.series, labels, number)

    def family(self, series: Iterable[Sample | None]) -> Metric:
        """Return the family with these series; the object is reused by each call."""
        self._family.samples = [one for one in series if one is not None]
        return self._family


def collect(columns: Iterable[MetricColumn[S]], rows: Sequence[Row[S]]) -> Iterator[Metric]:
    """Yield the families that have a series."""
    for column in columns:
        family = column.family(column.read(labels, sample) for labels, sample in rows)
        if family.samples:
            yield family


def unlabelled(sample: S | None) -> tuple[Row[S], ...]:
    """Return the single row of families without labels; empty without a sample."""
    return () if sample is None else (({}, sample),)
