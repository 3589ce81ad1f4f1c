"""The lanes of the timeline: who saved or restored when, when training was blocked, what was not durable yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from ckptprof import units
from ckptprof.model import Checkpoint, Kind, Writer
from ckptprof.report.clean import clean, shorten_end
from ckptprof.report.html import colours
from ckptprof.report.html.axis import WIDTH, Axis, path

WHOLE = 200  # checkpoints that are told one by one; of more, the slowest
CELLS = 250  # of the lanes that show shares, where there are more bars than can be told apart
MAX_STRETCHES = 2000  # of a lane, beside those
MAX_BARS = 1500  # of all ranks of a job
SLOWEST, FASTEST = 16, 4  # ranks that are drawn
MAX_JOBS = 6
MAX_ROWS = 4  # of a lane in which bars lie above each other
_NAME_CELLS = 24
_OUTLINED = 4.0  # of a width: of less an outline would leave nothing
_SECOND = 1_000_000_000


@dataclass(frozen=True)
class Bar:
    """A stretch of time of one checkpoint. Lengths are of a drawing that is axis.WIDTH wide."""

    x: float
    width: float
    row: int
    style: str  # class
    title: str
    id: int


@dataclass(frozen=True)
class Lane:
    """Bars under one name."""

    name: str
    bars: tuple[Bar, ...]
    others: tuple[tuple[str, str], ...] = ()  # class and path of what is not told one by one
    number: int = 0  # of all of them
    rows: int = 1
    note: str = ""


class _Sort(NamedTuple):
    """What a lane shows of all checkpoints, and how a bar says it."""

    name: str
    style: str
    did: str


_BLOCKED = _Sort("blocked", "blocked", "blocked training for")
_AT_RISK = _Sort("at risk", "risk", "was complete, and not durable for")


class _Stretch(NamedTuple):
    """A time that is of a checkpoint, and the row of its lane that it lies in."""

    of: Checkpoint
    start_ns: int
    end_ns: int
    row: int = 0


@dataclass(frozen=True)
class Lateness:
    """How one rank did in all checkpoints of a job that it took part in."""

    rank: int
    checkpoints: int
    late_seconds: float  # after the middle rank, in all
    worst_seconds: float
    last: int  # how often no other ended later


def lanes(checkpoints: Sequence[Checkpoint], axis: Axis, late: Mapping[str, Sequence[Lateness]]) -> list[Lane]:
    """Return the lanes from top to bottom; `late` has the ranks of each job."""
    jobs: dict[str, list[Checkpoint]] = {}
    for one in checkpoints:
        jobs.setdefault(one.job, []).append(one)
    dearest = sorted(jobs, key=lambda job: -sum(one.stall_ns or 0 for one in jobs[job]))
    told = frozenset(one.id for one in slowest(checkpoints, WHOLE))
    made = [_blocked(checkpoints, axis)]
    for job in sorted(dearest[:MAX_JOBS], key=lambda job: jobs[job][0].start_ns):
        name = shorten_end(clean(job), _NAME_CELLS) if len(jobs) > 1 else ""
        made += _of_job(jobs[job], axis, name, late.get(job, ()), told)
    if others := [one for job in dearest[MAX_JOBS:] for one in jobs[job]]:
        made.append(_whole(others, axis, f"{units.plural(len(jobs) - MAX_JOBS, 'job')} more", told))
    return [*made, *_at_risk(checkpoints, axis)]


def slowest(checkpoints: Sequence[Checkpoint], most: int) -> list[Checkpoint]:
    """Return so many of them that held training up or went on for longest, in their order."""
    if len(checkpoints) <= most:
        return list(checkpoints)
    worst = sorted(checkpoints, key=lambda one: -max(one.stall_ns or 0, one.end_ns - one.start_ns))[:most]
    chosen = {id(one) for one in worst}
    return [one for one in checkpoints if id(one) in chosen]


def lateness_by_job(checkpoints: Iterable[Checkpoint]) -> dict[str, list[Lateness]]:
    """Return the ranks of each job that has some."""
    jobs: dict[str, list[Checkpoint]] = {}
    for one in checkpoints:
        jobs.setdefault(one.job, []).append(one)
    return {job: late for job, mine in jobs.items() if (late := latenesses(mine))}


def latenesses(checkpoints: Iterable[Checkpoint]) -> list[Lateness]:
    """Return the ranks of a job, the one first that was late for longest; none where fewer than two are known."""
    late: dict[int, list[float]] = {}  # by rank: how often, in all, at worst, how often last
    for one in checkpoints:
        ends = _ends(one)
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
        Lateness(rank, int(seen), spent / _SECOND, worst / _SECOND, int(last))
        for rank, (seen, spent, worst, last) in late.items()
    ]
    return sorted(found, key=lambda one: (-one.late_seconds, one.rank))


def label(checkpoint: Checkpoint) -> str:
    """Return what a checkpoint is called: save 3, step 400."""
    step = "" if checkpoint.step is None else f", step {checkpoint.step}"
    return f"{checkpoint.kind.value} {checkpoint.id}{step}"


def _ends(checkpoint: Checkpoint) -> dict[int, int]:
    ends: dict[int, int] = {}
    for writer in checkpoint.writers:
        rank, end_ns = writer.rank, writer.end_ns
        if rank is not None and end_ns is not None and end_ns > ends.get(rank, 0):
            ends[rank] = end_ns
    return ends


def _of_job(mine: list[Checkpoint], axis: Axis, job: str, late: Sequence[Lateness], told: frozenset[int]) -> list[Lane]:
    if not late:
        return [_whole(mine, axis, job or "checkpoints", told)]
    chosen = late if len(late) <= SLOWEST + FASTEST else [*late[:SLOWEST], *late[-FASTEST:]]
    left_out = len(late) - len(chosen)
    drawn = slowest(mine, min(WHOLE, MAX_BARS // len(chosen)))
    made = [] if len(drawn) == len(mine) else [_whole(mine, axis, job or "checkpoints", told)]
    bars: dict[int, list[Bar]] = {one.rank: [] for one in chosen}
    for one in drawn:
        for writer in one.writers:
            if writer.rank in bars and (bar := _part(one, writer, axis)) is not None:
                bars[writer.rank].append(bar)
    made += [Lane(f"{job} rank {rank}".strip(), tuple(own), number=len(own)) for rank, own in sorted(bars.items())]
    if left_out:
        text = f"{units.plural(left_out, 'rank')} between the {SLOWEST} latest and the {FASTEST} earliest left out"
        made.append(Lane("", (), note=text))
    if len(drawn) < len(mine):
        made.append(Lane("", (), note=f"by rank only the {len(drawn)} slowest of {units.count(len(mine))} checkpoints"))
    return made


def _whole(mine: Iterable[Checkpoint], axis: Axis, name: str, told: frozenset[int]) -> Lane:
    """Return a lane of bars that are told one by one, or only some, and of others the longest that fall together.

    Those are paths of a colour each: the picture of a year is no larger than that of a week.
    """
    bars: list[Bar] = []
    others: dict[int, tuple[float, float, str]] = {}
    number = 0
    for number, one in enumerate(mine, 1):  # noqa: B007 # it counts
        x, width = axis.span(one.start_ns, one.end_ns)
        if one.id in told:
            bars.append(_bar(one, (x, width), _style(one), _title(one)))
            continue
        place = int(x / WIDTH * MAX_STRETCHES)
        if place not in others or width > others[place][1]:
            others[place] = (x, width, _outlined(one, width, _style(one)))
    styles: dict[str, str] = {}
    for x, width, style in others.values():
        styles[style] = styles.get(style, "") + path([(x, width)], 2, 10)
    return Lane(name, tuple(bars), tuple(styles.items()), number)


def _part(one: Checkpoint, writer: Writer, axis: Axis) -> Bar | None:
    if writer.start_ns is None or writer.end_ns is None:
        return None
    took = units.duration(writer.end_ns - writer.start_ns)
    title = f"{label(one)}, rank {writer.rank}: {units.size(writer.bytes)} in {took}"
    return _bar(one, axis.span(writer.start_ns, writer.end_ns), _style(one), title)


def _blocked(checkpoints: Iterable[Checkpoint], axis: Axis) -> Lane:
    held: list[_Stretch] = []
    lengths_only, unseen = 0, 0
    for one in checkpoints:
        unseen += one.stall_ns is None
        lengths_only += bool(one.stall_ns) and not one.blocked
        held += [_Stretch(one, span.start_ns, span.end_ns) for span in one.blocked]
    notes = []
    if lengths_only:
        notes.append(f"of {units.plural(lengths_only, 'checkpoint')} only how long, not when: not drawn")
    if unseen:
        notes.append(f"of {units.plural(unseen, 'checkpoint')} not seen")
    return _dense(_BLOCKED, held, axis, "; ".join(notes))


def _at_risk(checkpoints: Iterable[Checkpoint], axis: Axis) -> list[Lane]:
    """Return the lane of saves that counted as complete and were not durable yet; none where that is not known."""
    risks: list[_Stretch] = []
    ends: list[int] = []
    for one in sorted(checkpoints, key=lambda one: one.start_ns):
        at_risk_ns = one.at_risk_ns
        if one.durable_ns is None or not at_risk_ns:
            continue
        begin_ns = one.durable_ns - at_risk_ns
        row = next((row for row, end_ns in enumerate(ends) if end_ns <= begin_ns), len(ends))
        row = min(row, MAX_ROWS - 1)
        ends[row : row + 1] = [one.durable_ns]
        risks.append(_Stretch(one, begin_ns, one.durable_ns, row))
    return [_dense(_AT_RISK, risks, axis)] if risks else []


def _dense(sort: _Sort, drawn: Sequence[_Stretch], axis: Axis, note: str = "") -> Lane:
    """Return the lane; of more bars than can be told apart, the share of the time that they fill.

    A line of one point each would fill a lane that is empty for most of the time.
    """
    places = [axis.span(one.start_ns, one.end_ns) for one in drawn]
    if len(drawn) <= WHOLE:
        bars = [
            _bar(
                at.of, place, sort.style, f"{label(at.of)} {sort.did} {units.duration(at.end_ns - at.start_ns)}", at.row
            )
            for at, place in zip(drawn, places, strict=True)
        ]
        return Lane(sort.name, tuple(bars), (), len(bars), 1 + max((at.row for at in drawn), default=0), note)
    filled = _filled(places)
    top = max(filled)
    step = WIDTH / CELLS
    points = "".join(
        f"V{round(28 * (1 - share / top), 2):g}H{step * (place + 1):g}" for place, share in enumerate(filled)
    )
    each = units.duration((axis.end_ns - axis.start_ns) // CELLS)
    most = f"share of each {each}, up to {units.percent(top)}"
    return Lane(
        sort.name, (), ((sort.style, f"M0 28{points}V28z"),), len(drawn), 2, "; ".join(filter(None, (most, note)))
    )


def _filled(places: Iterable[tuple[float, float]]) -> list[float]:
    """Return which share of each cell of the axis is filled; what overlaps counts once."""
    filled, reached = [0.0] * CELLS, 0.0
    for x, width in sorted(places):
        begin, end = max(x, reached) / WIDTH * CELLS, (x + width) / WIDTH * CELLS
        reached = max(reached, x + width)
        for place in range(int(begin), min(CELLS, int(end) + 1)):
            filled[place] += max(0.0, min(end, place + 1) - max(begin, place))
    return filled


def _bar(one: Checkpoint, place: tuple[float, float], style: str, title: str, row: int = 0) -> Bar:
    return Bar(*place, row, _outlined(one, place[1], style), title, one.id)


def _outlined(one: Checkpoint, width: float, style: str) -> str:
    is_outlined = one.kind is Kind.RESTORE and style.startswith("limit-") and width >= _OUTLINED
    return style + " restore" if is_outlined else style


def _style(one: Checkpoint) -> str:
    return colours.of_verdict(one.verdict) + (" copy" if one.kind is Kind.COPY else "")


def _title(one: Checkpoint) -> str:
    took = units.duration(one.end_ns - one.start_ns)
    limit = colours.short(one.verdict)
    return f"{label(one)}: {units.size(one.bytes)} in {took}" + ("" if limit is None else f", {limit}")
