"""The lanes of the picture: saves and restores as blocks, ranks, blocked training, and data that is not yet durable."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from types import MappingProxyType

from ckptprof import figures, units
from ckptprof.model import Checkpoint, Kind
from ckptprof.report import account
from ckptprof.report.clean import clean, shorten_end
from ckptprof.report.html.axis import WIDTH, Axis
from ckptprof.report.outliers import Outlier
from ckptprof.report.pictures import colours
from ckptprof.verdicts import JobCost

MAX_CHECKPOINTS = 200  # checkpoints that are listed individually; of more, the slowest
HEIGHT = 60  # of a lane of blocks
MAX_BLOCKS = 400  # of a lane: a block is three pixels
MAX_LETTERS = 60  # of limits below a lane
_LETTER, _NARROW_LETTER = 1.2, 4.6  # percent of the width of a lane, on a desktop and on a phone
MAX_BARS = 1500  # of all ranks of a job
SLOWEST, FASTEST = 16, 4  # ranks that are drawn
MAX_JOBS = 6
MAX_ROWS = 4  # of a lane in which bars lie above each other
_NAME_CELLS = 24
_THIN = 14  # height of other lanes
_SECOND = 1_000_000_000
_PLURALS = {Kind.SAVE: "saves", Kind.RESTORE: "restores", Kind.COPY: "copies"}


@dataclass(frozen=True)
class Bar:
    """A time range of one checkpoint. Lengths are those of a drawing that is axis.WIDTH wide."""

    x: float
    width: float
    style: str  # class
    title: str
    id: int
    y: float = 2
    height: float = 10


@dataclass(frozen=True)
class Lane:
    """A row of the picture: a name and its bars."""

    name: str
    bars: tuple[Bar, ...]
    height: float = _THIN
    note: str = ""
    scale: str = ""  # the duration at the top of blocks
    median: tuple[float, str] | None = None  # height and meaning of the line across blocks
    facts: tuple[str, ...] = ()  # beside the blocks
    labels: tuple[tuple[float, str, str], ...] = ()  # percent of the width, text, and class, above the blocks
    letters: tuple[tuple[float, str, str], ...] = ()  # likewise, below
    blocked: float | None = None  # the share of its run for which a job was blocked


@dataclass(frozen=True)
class Lateness:
    """The delays of one rank, over all checkpoints of a job that it took part in."""

    rank: int
    checkpoints: int
    late_seconds: float  # after the middle rank, in all
    max_seconds: float
    last: int  # how often no other ended later


def lanes(
    checkpoints: Sequence[Checkpoint],
    axis: Axis,
    late: Mapping[str, Sequence[Lateness]],
    outliers: Sequence[Outlier] = (),
    costs: Mapping[str, JobCost] = MappingProxyType({}),
) -> list[Lane]:
    """Return the lanes from top to bottom; `late` and `costs`: the ranks, and the cost, of each job."""
    jobs: dict[str, list[Checkpoint]] = {}
    for one in checkpoints:
        jobs.setdefault(one.job, []).append(one)
    dearest = sorted(jobs, key=lambda job: -sum(one.stall_ns or 0 for one in jobs[job]))
    made = []
    for job in sorted(dearest[:MAX_JOBS], key=lambda job: jobs[job][0].start_ns):
        name = shorten_end(clean(job), _NAME_CELLS) if len(jobs) > 1 else ""
        cost = costs.get(job)
        for kind, title in _PLURALS.items():
            if mine := [one for one in jobs[job] if one.kind is kind]:
                made.append(_block_lane(mine, axis, f"{name} {title}".strip(), outliers, cost))
                cost = None  # once
        made += _rank_lanes(jobs[job], axis, name, late.get(job, ()))
    if others := [one for job in dearest[MAX_JOBS:] for one in jobs[job]]:
        made.append(_block_lane(others, axis, f"{units.plural(len(jobs) - MAX_JOBS, 'job')} more", outliers, None))
    return [*made, _blocked(checkpoints, axis), *_at_risk(checkpoints, axis)]


def blocks(mine: Sequence[Checkpoint], axis: Axis, top: float, outliers: Container[str] = ()) -> list[Bar]:
    """Return a block for each checkpoint, as high as its duration, for the slowest of each slice of a long axis."""
    bars = []
    for one in _thinned(mine, axis):
        limit, height = colours.short_limit(one.verdict), HEIGHT * figures.duration_seconds(one) / top if top else 0.0
        title = f"{label(one)}: {units.size(one.bytes)} in {units.duration(one.end_ns - one.start_ns)}"
        title += "" if limit is None else f", {limit}"
        style = colours.verdict_class(one.verdict) + " outlier" * (one.uid in outliers)
        x, width = axis.span(one.start_ns, one.end_ns)
        bars.append(Bar(x, width, style, title, one.id, round(HEIGHT - height, 2), round(height, 2)))
    return bars


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
        return []
    chosen = late if len(late) <= SLOWEST + FASTEST else [*late[:SLOWEST], *late[-FASTEST:]]
    left_out = len(late) - len(chosen)
    most = min(MAX_CHECKPOINTS, MAX_BARS // len(chosen))
    drawn = _thinned(mine, axis, most)
    bars: dict[int, list[Bar]] = {one.rank: [] for one in chosen}
    for one in drawn:
        for writer in one.writers:
            if writer.rank in bars and writer.start_ns is not None and writer.end_ns is not None:
                duration = units.duration(writer.end_ns - writer.start_ns)
                title = f"{label(one)}, rank {writer.rank}: {units.size(writer.bytes)} in {duration}"
                span = axis.span(writer.start_ns, writer.end_ns)
                bars[writer.rank].append(Bar(*span, colours.verdict_class(one.verdict), title, one.id))
    made = [Lane(f"{job} rank {rank}".strip(), tuple(own)) for rank, own in sorted(bars.items())]
    if left_out:
        text = f"not shown: {units.plural(left_out, 'rank')} between the {SLOWEST} slowest and the {FASTEST} fastest"
        made.append(Lane("", (), note=text))
    if len(drawn) < len(mine):
        each = units.duration((axis.end_ns - axis.start_ns) // most)
        text = f"ranks: only the slowest checkpoint of each {each}, {len(drawn)} of {units.count(len(mine))}"
        made.append(Lane("", (), note=text))
    return made


def _thinned(mine: Sequence[Checkpoint], axis: Axis, most: int = MAX_BLOCKS) -> Sequence[Checkpoint]:
    """Return all, or the slowest checkpoint of each slice of the axis: the slowest of all may be close together."""
    if len(mine) <= most:
        return mine
    by_slice: dict[int, Checkpoint] = {}
    for one in mine:
        place = (one.start_ns - axis.start_ns) * most // max(1, axis.end_ns - axis.start_ns)
        if place not in by_slice or _lost_ns(one) > _lost_ns(by_slice[place]):
            by_slice[place] = one
    return [one for _, one in sorted(by_slice.items())]


def _block_lane(
    mine: Sequence[Checkpoint], axis: Axis, name: str, outliers: Sequence[Outlier], cost: JobCost | None
) -> Lane:
    durations = figures.of_complete(mine, figures.duration_seconds)
    top = max(map(figures.duration_seconds, mine))
    by_uid = {one.uid: one for one in mine}
    own = [(one, by_uid[one.uid]) for one in outliers if one.uid in by_uid]
    bars = blocks(mine, axis, top, {one.uid for one, _ in own})
    usual = figures.median(durations) if len(durations) > 1 else None
    note = ""
    if len(bars) < len(mine):
        each = units.duration((axis.end_ns - axis.start_ns) // MAX_BLOCKS)
        note = f"the slowest checkpoint of each {each}, {len(bars):,} of {units.count(len(mine))}"
    return Lane(
        name,
        tuple(bars),
        HEIGHT,
        note,
        units.seconds(top),
        None if usual is None or not top else (round(HEIGHT * (1 - usual / top), 2), f"median {units.seconds(usual)}"),
        _lost(cost),
        tuple(
            (_middle(of, axis), f"{of.kind.value} {of.id}: {one.times:.1f} times the median", "") for one, of in own[:1]
        ),
        _letters(mine, axis) if len(mine) <= MAX_LETTERS else (),
        None if cost is None else cost.share,
    )


def _letters(mine: Iterable[Checkpoint], axis: Axis) -> tuple[tuple[float, str, str], ...]:
    """Return the letters of limits that do not overlap; those with the class `close` would on a phone."""
    found: list[tuple[float, str, str]] = []
    last = last_apart = -WIDTH
    for one in mine:
        x = _middle(one, axis)
        if one.verdict is not None and x - last >= _LETTER:
            is_close = x - last_apart < _NARROW_LETTER
            found.append((x, colours.OF_LIMIT[colours.shown_limit(one.verdict)].letter, "close" if is_close else ""))
            last, last_apart = x, last_apart if is_close else x
    return tuple(found)


def _lost(cost: JobCost | None) -> tuple[str, ...]:
    if cost is None or not cost.gpu_seconds or account.is_guessed(cost.gpus, cost.gpus_from):
        return ()
    return (f"{units.seconds(cost.gpu_seconds)} of GPU time",)


def _middle(one: Checkpoint, axis: Axis) -> float:
    return round(axis.x((one.start_ns + one.end_ns) // 2) / WIDTH * 100, 2)


def _blocked(checkpoints: Sequence[Checkpoint], axis: Axis) -> Lane:
    bars: list[Bar] = []
    lengths_only = sum(bool(one.stall_ns) and not one.blocked for one in checkpoints)
    unknown = sum(one.stall_ns is None for one in checkpoints)
    for one in _thinned(checkpoints, axis):
        for span in one.blocked:
            title = f"{label(one)} blocked training for {units.duration(span.end_ns - span.start_ns)}"
            bars.append(Bar(*axis.span(span.start_ns, span.end_ns), "blocked", title, one.id))
    notes = []
    if lengths_only:
        notes.append(f"{units.plural(lengths_only, 'checkpoint')} not drawn: start of the stall not known")
    if unknown:
        notes.append(f"not observed for {units.plural(unknown, 'checkpoint')}")
    return Lane("blocked", tuple(bars), note="; ".join(notes))


def _at_risk(checkpoints: Sequence[Checkpoint], axis: Axis) -> list[Lane]:
    bars: list[Bar] = []
    ends: list[int] = []
    for one in _thinned(checkpoints, axis):
        at_risk_ns = one.at_risk_ns
        if one.durable_ns is None or not at_risk_ns:
            continue
        start_ns = one.durable_ns - at_risk_ns
        row = next((row for row, end_ns in enumerate(ends) if end_ns <= start_ns), len(ends))
        row = min(row, MAX_ROWS - 1)
        ends[row : row + 1] = [one.durable_ns]
        title = f"{label(one)} was complete but not durable for {units.duration(at_risk_ns)}"
        bars.append(Bar(*axis.span(start_ns, one.durable_ns), "risk", title, one.id, row * _THIN + 2))
    return [Lane("at risk", tuple(bars), len(ends) * _THIN)] if bars else []
