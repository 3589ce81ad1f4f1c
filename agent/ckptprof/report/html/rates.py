"""The throughput of devices and links during the checkpoints: a small drawing for each, on the axis of the lanes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ckptprof import units
from ckptprof.report.clean import clean
from ckptprof.report.html.axis import Axis
from ckptprof_collectors.counters import TRANSFER_FIELDS

HEIGHT = 40.0
MAX_DRAWN = 6
MAX_POINTS = 2000  # of a series
_LEAST_BYTES = 1_000_000  # total: entities with less traffic are not drawn


@dataclass(frozen=True)
class CounterSeries:
    """The stored counters of one entity: cumulative values at some times, None where one was not read."""

    entity: str  # disk:vda
    times_ns: Sequence[int]
    columns: Mapping[str, Sequence[int | None]]
    step_ns: int | None = None


@dataclass(frozen=True)
class Curve:
    """One direction, as paths with breaks where nothing was recorded."""

    word: str
    paths: tuple[str, ...]
    transferred_bytes: int
    peak_bytes_per_second: float


@dataclass(frozen=True)
class Throughput:
    """A device or a link."""

    name: str
    scale: str  # the rate at the top
    curves: tuple[Curve, ...]


def throughputs(counted: Iterable[CounterSeries], axis: Axis, gaps: Sequence[tuple[int, int]]) -> list[Throughput]:
    """Return the devices and links with most traffic, the busiest first; none with less than a megabyte."""
    found = []
    for one in counted:
        spans_of = directions(one, gaps)
        transferred = sum(rate * (end - start) / 1e9 for _, spans in spans_of for start, end, rate in spans)
        if transferred >= _LEAST_BYTES:
            found.append((transferred, one.entity.partition(":")[2], spans_of))
    found.sort(key=lambda one: (-one[0], one[1]))
    return [_drawn(name, spans_of, axis) for _, name, spans_of in found[:MAX_DRAWN]]


Rates = list[tuple[int, int, float]]  # start, end, bytes per second


def directions(one: CounterSeries, gaps: Sequence[tuple[int, int]]) -> list[tuple[str, Rates]]:
    """Return the rates into and out of the host, each with a word; empty for entities without traffic."""
    kind = one.entity.partition(":")[0]
    counters = TRANSFER_FIELDS.get(kind)
    if counters is None:
        return []
    into, out_of = ("read", "written") if kind == "disk" else ("received", "sent")
    size = counters.unit_bytes
    return [(into, _rates(one, counters.inbound, size, gaps)), (out_of, _rates(one, counters.outbound, size, gaps))]


def _rates(one: CounterSeries, column: str, size: int, gaps: Sequence[tuple[int, int]]) -> Rates:
    """Return the rates of a counter in units of `size` bytes, without gaps in the recording."""
    values = one.columns.get(column)
    if values is None:
        return []
    found: Rates = []
    points = [(at_ns, value) for at_ns, value in zip(one.times_ns, values, strict=True) if value is not None]
    for (start, before), (end, after) in pairwise(points):
        unwatched = any(low < end and start < high for low, high in gaps)
        left_out = one.step_ns is not None and end - start > one.step_ns
        if end <= start or after < before or unwatched or left_out:
            continue
        found.append((start, end, (after - before) * size / ((end - start) / 1e9)))
    return found


def _drawn(name: str, rates: list[tuple[str, Rates]], axis: Axis) -> Throughput:
    top = max(rate for _, spans in rates for _, _, rate in spans)
    curves = []
    for word, spans in rates:
        inside = [(max(s, axis.start_ns), min(e, axis.end_ns), r) for s, e, r in spans]
        inside = [one for one in inside if one[0] < one[1]]
        transferred = sum(rate * (end - start) / 1e9 for start, end, rate in inside)
        peak = max((rate for _, _, rate in inside), default=0.0)
        paths = tuple(_path(piece, axis, top) for piece in _pieces(inside))
        curves.append(Curve(word, paths, int(transferred), peak))
    return Throughput(clean(name), units.rate(top), tuple(curves))


def _pieces(spans: Rates) -> list[Rates]:
    every = -(-len(spans) // MAX_POINTS)
    if every > 1:
        groups = [spans[i : i + every] for i in range(0, len(spans), every)]
        spans = [(group[0][0], group[-1][1], max(rate for _, _, rate in group)) for group in groups]
    pieces: list[Rates] = []
    for span in spans:
        if pieces and pieces[-1][-1][1] == span[0]:
            pieces[-1].append(span)
        else:
            pieces.append([span])
    return pieces


def _path(piece: Rates, axis: Axis, top: float) -> str:
    points = [f"M{axis.x(piece[0][0]):g} {HEIGHT:g}"]
    for _, end, rate in piece:
        y = round(HEIGHT * (1 - rate / top), 2) if top > 0 else HEIGHT
        points.append(f"V{y:g}H{axis.x(end):g}")
    return "".join(points) + f"V{HEIGHT:g}Z"
