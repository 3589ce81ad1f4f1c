"""The throughput of devices and links during the checkpoints: a drawing for each, on the axis of the lanes."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ckptprof import figures, units
from ckptprof.report.clean import clean
from ckptprof.report.html.axis import Axis
from ckptprof_collectors.counters import TRANSFER_FIELDS

HEIGHT = 40.0
MAX_DRAWN = 6
MAX_POINTS = 2000  # of a series
_LEAST_BYTES = 1_000_000  # total: entities with less traffic are not drawn
_TOP, _SPIKE = 0.99, 1.5  # quantile of the rates above zero: what is so many times higher is clipped

Rates = Sequence[tuple[int, int, float]]  # start, end, bytes per second


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


@dataclass(frozen=True)
class Throughput:
    """A device or a link."""

    name: str
    scale: str  # the rate at the top
    curves: tuple[Curve, ...]
    is_under: bool  # the checkpoints lie on it
    clipped: str  # path of marks where a rate exceeds the top
    peak: str  # the fastest rate, if it is clipped
    line: tuple[str, str]  # path and text of the rates that bound it; empty without any


def throughputs(
    counted: Iterable[CounterSeries],
    axis: Axis,
    gaps: Sequence[tuple[int, int]],
    under: Container[str] = (),
    bounds: tuple[Rates, str] = ((), ""),
) -> list[Throughput]:
    """Return the devices and links with most traffic, those under the checkpoints first, then the busiest.

    Without such devices the busiest counts as one. None has less than a megabyte of traffic. `bounds`: rates that bound
    the checkpoints, and a text for them, with {} for their range.
    """
    found = []
    for one in counted:
        spans_of = directions(one, gaps)
        transferred = sum(rate * (end - start) / 1e9 for _, spans in spans_of for start, end, rate in spans)
        if transferred >= _LEAST_BYTES:
            found.append((transferred, one.entity.partition(":")[2], spans_of))
    found.sort(key=lambda one: (one[1] not in under, -one[0], one[1]))
    return [
        _drawn(name, spans_of, axis, bounds if name in under else ((), ""), is_under=name in under or not place)
        for place, (_, name, spans_of) in enumerate(found[:MAX_DRAWN])
    ]


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
    found = []
    points = [(at_ns, value) for at_ns, value in zip(one.times_ns, values, strict=True) if value is not None]
    for (start, before), (end, after) in pairwise(points):
        unwatched = any(low < end and start < high for low, high in gaps)
        left_out = one.step_ns is not None and end - start > one.step_ns
        if end <= start or after < before or unwatched or left_out:
            continue
        found.append((start, end, (after - before) * size / ((end - start) / 1e9)))
    return found


def _drawn(
    name: str, rates: list[tuple[str, Rates]], axis: Axis, bounds: tuple[Rates, str], *, is_under: bool
) -> Throughput:
    every = [rate for _, spans in rates for _, _, rate in spans if rate > 0]
    limits = [rate for _, _, rate in bounds[0]]
    peak, top = max(every), max([figures.quantile(every, _TOP), *limits])
    top = peak if peak < _SPIKE * top else top
    curves, clipped = [], ""
    for word, spans in rates:
        inside = [(max(s, axis.start_ns), min(e, axis.end_ns), r) for s, e, r in spans]
        inside = [one for one in inside if one[0] < one[1]]
        transferred = sum(rate * (end - start) / 1e9 for start, end, rate in inside)
        pieces = _pieces(inside)
        clipped += "".join(
            f"M{axis.x((start + end) // 2):g} 0v4" for piece in pieces for start, end, rate in piece if rate > top
        )
        paths = tuple(_path(piece, axis, top) for piece in pieces)
        if transferred >= _LEAST_BYTES:
            curves.append(Curve(word, paths, int(transferred)))
    line = "".join(f"M{axis.x(at):g} {HEIGHT * (1 - rate / top):.4g}H{axis.x(end):g}" for at, end, rate in bounds[0])
    low, high = (units.rate(pick(limits, default=None)) for pick in (min, max))
    text = bounds[1].format(high if low == high else f"{low} to {high}") if limits else ""
    peak_text = units.rate(peak) if peak > top else ""
    return Throughput(clean(name), units.rate(top), tuple(curves), is_under, clipped, peak_text, (line, text))


def _pieces(spans: Rates) -> list[list[tuple[int, int, float]]]:
    every = -(-len(spans) // MAX_POINTS)
    if every > 1:
        groups = [spans[i : i + every] for i in range(0, len(spans), every)]
        spans = [(group[0][0], group[-1][1], max(rate for _, _, rate in group)) for group in groups]
    pieces: list[list[tuple[int, int, float]]] = []
    for span in spans:
        if pieces and pieces[-1][-1][1] == span[0]:
            pieces[-1].append(span)
        else:
            pieces.append([span])
    return pieces


def _path(piece: Rates, axis: Axis, top: float) -> str:
    points = [f"M{axis.x(piece[0][0]):g} {HEIGHT:g}"]
    for _, end, rate in piece:
        y = round(HEIGHT * max(0.0, 1 - rate / top), 2)
        points.append(f"V{y:g}H{axis.x(end):g}")
    return "".join(points) + f"V{HEIGHT:g}Z"
