"""The lanes of the timeline: saves and restores, blocked training, and data that is not yet durable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from ckptprof import units
from ckptprof.model import Checkpoint, Kind
from ckptprof.report import colours
from ckptprof.report.clean import clean, shorten_end
from ckptprof.report.html.axis import WIDTH, Axis

MAX_CHECKPOINTS = 200  # checkpoints that are listed individually; of more, the slowest
CELLS = 250  # of lanes that show shares because there are too many bars
AREA_HEIGHT = 28  # of such a lane
MAX_BARS = 1500  # of all ranks of a job
SLOWEST, FASTEST = 16, 4  # ranks that are drawn
MAX_JOBS = 6
MAX_ROWS = 4  # of a lane in which bars lie above each other
_NAME_CELLS = 24
_OUTLINED = 4.0  # of a width: of less an outline would leave nothing
_SECOND = 1_000_000_000


@dataclass(frozen=True)
class Bar:
    """A time range of one checkpoint. Lengths are those of a drawing that is axis.WIDTH wide."""

    x: float
    width: float
    row: int
    style: str  # class
    title: str
    id: int


@dataclass(frozen=True)
class Lane:
    """A row of the timeline: a name and its bars."""

    name: str
    bars: tuple[Bar, ...]
    areas: tuple[tuple[str, str], ...] = ()  # class and path of shares, for lanes without single bars
    number: int = 0  # total number of bars
    rows: int = 1
    note: str = ""
    scale: str = ""  # the share at the top


class _LaneSpan(NamedTuple):
    """A time range of a checkpoint, the title of its bar, and the row in its lane."""

    of: Checkpoint
    start_ns: int
    end_ns: int
    style: str
    title: str
    row: int = 0


@dataclass(frozen=True)
class Lateness:
    """The delays of one rank, over all checkpoints of a job that it took part in."""

    rank: int
    checkpoints: int
    late_seconds: float  # after the middle rank, in all
    max_seconds: float
    last: int  # how often no other ended later


def lanes(checkpoints: Sequence[Checkpoint], axis: Axis, late: Mapping[str, Sequence[Lateness]]) -> list[Lane]:
    """Return the lanes from top to bottom; `late`: the ranks of each job."""
    jobs: dict[str, list[Checkpoint]] = {}
    for one in checkpoints:
        jobs.setdefault(one.job, []).append(one)
    dearest = sorted(jobs, key=lambda job: -sum(one.stall_ns or 0 for one in jobs[job]))
    made = [_blocked(checkpoints, axis)]
    for job in sorted(dearest[:MAX_JOBS], key=lambda job: jobs[job][0].start_ns):
        name = shorten_end(clean(job), _NAME_CELLS) if len(jobs) > 1 else ""
        made += _rank_lanes(jobs[job], axis, name, late.get(job, ()))
    if others := [one for job in dearest[MAX_JOBS:] for one in jobs[job]]:
        made.append(_job_lane(others, axis, f"{units.plural(len(jobs) - MAX_JOBS, 'job')} more"))
    return [*made, *_at_risk(checkpoints, axis)]


def slowest(checkpoints: Sequence[Checkpoint], most: int) -> list[Checkpoint]:
    """Return the checkpoints that blocked training or took longest, `most` of them, in their order."""
    if len(checkpoints) <= most:
        return list(checkpoints)
    worst = sorted(checkpoints, key=_lost_ns, reverse=True)[:most]
    chosen = {id(one) for one in worst}
    return [one for one in checkpoints if id(one) in chosen]


def _lost_ns(one: Checkpoint) -> int:
    return max(one.stall_ns or 0, one.end_ns - one.start_ns)


def lateness_by_job(checkpoints: Iterable[Checkpoint]) -> dict[str, list[Lateness]]:
    """Return the delays of ranks for each job with ranks."""
    jobs: dict[str, list[Checkpoint]] = {}
    for one in checkpoints:
        jobs.setdefault(one.job, []).append(one)
    return {job: late for job, mine in jobs.items() if (late := rank_lateness(mine))}


def rank_lateness(checkpoints: Iterable[Checkpoint]) -> list[Lateness]:
    """Return the delays of a job's ranks, the largest first; empty for fewer than two ranks."""
    late: dict[int, list[float]] = {}  # by rank: checkpoints, total delay, maximum delay, times last
    for one in checkpoints:
        ends: dict[int, int] = {}
        for writer in one.writers:
            if writer.rank is not None and writer.end_ns is not None:
                ends[writer.rank] = max(writer.end_ns, ends.get(writer.rank, 0))
        if len(ends) < 2:
            continue
        middle, last = median(ends.values()), max(ends.values())
        for rank, end_ns in ends.items():
            known = late.get(rank)
            if known is None:
                known = late[rank] = [0, 0, 0, 0]
            known[0] += 1
            behind = end_ns - middle
            if behind > 0:
                known[1] += behind
                known[2] = max(known[2], behind)
            if end_ns == last:
                known[3] += 1
    found = [
        Lateness(rank, int(count), spent / _SECOND, worst / _SECOND, int(last))
        for rank, (count, spent, worst, last) in late.items()
    ]
    return sorted(found, key=lambda one: (-one.late_seconds, one.rank))


def label(checkpoint: Checkpoint) -> str:
    """Return the name of a checkpoint: save 3, step 400."""
    step = "" if checkpoint.step is None else f", step {checkpoint.step}"
    return f"{checkpoint.kind.value} {checkpoint.id}{step}"


def _rank_lanes(mine: list[Checkpoint], axis: Axis, job: str, late: Sequence[Lateness]) -> list[Lane]:
    if not late:
        return [_job_lane(mine, axis, job or "checkpoints")]
    chosen = late if len(late) <= SLOWEST + FASTEST else [*late[:SLOWEST], *late[-FASTEST:]]
    left_out = len(late) - len(chosen)
    most = min(MAX_CHECKPOINTS, MAX_BARS // len(chosen))
    drawn = mine if len(mine) <= most else _slowest_per_slice(mine, axis, most)
    made = [] if len(drawn) == len(mine) else [_job_lane(mine, axis, job or "checkpoints")]
    bars: dict[int, list[Bar]] = {one.rank: [] for one in chosen}
    for one in drawn:
        for writer in one.writers:
            if writer.rank in bars and writer.start_ns is not None and writer.end_ns is not None:
                duration = units.duration(writer.end_ns - writer.start_ns)
                title = f"{label(one)}, rank {writer.rank}: {units.size(writer.bytes)} in {duration}"
                at = _LaneSpan(one, writer.start_ns, writer.end_ns, _style(one), title)
                bars[writer.rank].append(_bar(at, axis))
    made += [Lane(f"{job} rank {rank}".strip(), tuple(own), number=len(own)) for rank, own in sorted(bars.items())]
    if left_out:
        text = f"not shown: {units.plural(left_out, 'rank')} between the {SLOWEST} slowest and the {FASTEST} fastest"
        made.append(Lane("", (), note=text))
    if len(drawn) < len(mine):
        each = units.duration((axis.end_ns - axis.start_ns) // most)
        text = f"ranks: only the slowest checkpoint of each {each}, {len(drawn)} of {units.count(len(mine))}"
        made.append(Lane("", (), note=text))
    return made


def _slowest_per_slice(mine: Iterable[Checkpoint], axis: Axis, most: int) -> list[Checkpoint]:
    """Return the slowest checkpoint of each slice of the axis: the slowest of all may be close together."""
    by_slice: dict[int, Checkpoint] = {}
    for one in mine:
        place = (one.start_ns - axis.start_ns) * most // max(1, axis.end_ns - axis.start_ns)
        if place not in by_slice or _lost_ns(one) > _lost_ns(by_slice[place]):
            by_slice[place] = one
    return [one for _, one in sorted(by_slice.items())]


def _job_lane(mine: Iterable[Checkpoint], axis: Axis, name: str) -> Lane:
    spans = []
    for one in mine:
        limit = colours.short_limit(one.verdict)
        title = f"{label(one)}: {units.size(one.bytes)} in {units.duration(one.end_ns - one.start_ns)}"
        title += "" if limit is None else f", {limit}"
        spans.append(_LaneSpan(one, one.start_ns, one.end_ns, _style(one), title))
    return _lane(name, spans, axis)


def _blocked(checkpoints: Iterable[Checkpoint], axis: Axis) -> Lane:
    spans: list[_LaneSpan] = []
    lengths_only, unknown = 0, 0
    for one in checkpoints:
        unknown += one.stall_ns is None
        lengths_only += bool(one.stall_ns) and not one.blocked
        for span in one.blocked:
            title = f"{label(one)} blocked training for {units.duration(span.end_ns - span.start_ns)}"
            spans.append(_LaneSpan(one, span.start_ns, span.end_ns, "blocked", title))
    notes = []
    if lengths_only:
        notes.append(f"{units.plural(lengths_only, 'checkpoint')} not drawn: start of the stall not known")
    if unknown:
        notes.append(f"not observed for {units.plural(unknown, 'checkpoint')}")
    return _lane("blocked", spans, axis, "; ".join(notes))


def _at_risk(checkpoints: Iterable[Checkpoint], axis: Axis) -> list[Lane]:
    risks: list[_LaneSpan] = []
    ends: list[int] = []
    for one in sorted(checkpoints, key=lambda one: one.start_ns):
        at_risk_ns = one.at_risk_ns
        if one.durable_ns is None or not at_risk_ns:
            continue
        start_ns = one.durable_ns - at_risk_ns
        row = next((row for row, end_ns in enumerate(ends) if end_ns <= start_ns), len(ends))
        row = min(row, MAX_ROWS - 1)
        ends[row : row + 1] = [one.durable_ns]
        title = f"{label(one)} was complete but not durable for {units.duration(at_risk_ns)}"
        risks.append(_LaneSpan(one, start_ns, one.durable_ns, "risk", title, row))
    return [_lane("at risk", risks, axis)] if risks else []


def _lane(name: str, drawn: Sequence[_LaneSpan], axis: Axis, note: str = "") -> Lane:
    """Return a lane; with too many bars, the share of time that each style covers.

    Even thin lines would fill a lane that is empty most of the time.
    """
    if len(drawn) <= MAX_CHECKPOINTS:
        rows = 1 + max((at.row for at in drawn), default=0)
        return Lane(name, tuple(_bar(at, axis) for at in drawn), (), len(drawn), rows, note)
    spans: dict[str, list[tuple[int, int]]] = {}
    for at in drawn:
        spans.setdefault(at.style, []).append((at.start_ns, at.end_ns))
    return _shares(name, {style: spans[style] for style in sorted(spans)}, axis, len(drawn), note)


def _shares(name: str, spans: Mapping[str, Sequence[tuple[int, int]]], axis: Axis, number: int, note: str = "") -> Lane:
    reached = [0.0] * CELLS
    heights = []
    for style, own in spans.items():
        reached = [low + share for low, share in zip(reached, _filled(own, axis), strict=True)]
        heights.append((style, reached))
    top = max(reached)
    areas = tuple((style, _area(edge, top)) for style, edge in reversed(heights))  # the next covers what is below it
    each = f"share of each {units.duration((axis.end_ns - axis.start_ns) // CELLS)}"
    return Lane(name, (), areas, number, 2, "; ".join(filter(None, (each, note))), units.percent(top))


def _area(heights: Sequence[float], top: float) -> str:
    step, parts, is_open = WIDTH / CELLS, [], False
    for place, height in enumerate([*heights, 0.0]):
        if height > 0 and not is_open:
            parts.append(f"M{step * place:g} {AREA_HEIGHT}")
        if height > 0:
            parts.append(f"V{round(AREA_HEIGHT * (1 - height / top), 2):g}H{step * (place + 1):g}")
        elif is_open:
            parts.append(f"V{AREA_HEIGHT}z")
        is_open = height > 0
    return "".join(parts)


def _filled(spans: Iterable[tuple[int, int]], axis: Axis) -> list[float]:
    filled, reached_ns = [0.0] * CELLS, axis.start_ns
    cells_per_ns = CELLS / max(1, axis.end_ns - axis.start_ns)
    for start_ns, end_ns in sorted(spans):
        from_ns, reached_ns = max(start_ns, reached_ns), max(end_ns, reached_ns)
        first, end = ((at_ns - axis.start_ns) * cells_per_ns for at_ns in (from_ns, end_ns))
        for place in range(int(first), min(CELLS, int(end) + 1)):
            filled[place] += max(0.0, min(end, place + 1) - max(first, place))
    return filled


def _bar(at: _LaneSpan, axis: Axis) -> Bar:
    x, width = axis.span(at.start_ns, at.end_ns)
    is_outlined = at.of.kind is Kind.RESTORE and at.style.startswith("limit-") and width >= _OUTLINED
    return Bar(x, width, at.row, at.style + " restore" * is_outlined, at.title, at.of.id)


def _style(one: Checkpoint) -> str:
    return colours.verdict_class(one.verdict) + (" copy" if one.kind is Kind.COPY else "")
