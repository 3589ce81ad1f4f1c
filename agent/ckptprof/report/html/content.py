"""All that the page says, as plain data: the template only lays it out, and escapes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import tzinfo

from ckptprof import units
from ckptprof.diagnose.costs import SNIA_SHARE, JobCost
from ckptprof.model import Checkpoint, Kind, Report, Stream
from ckptprof.report import account, answer, certainty, course, rows, summary
from ckptprof.report.clean import clean, recorded
from ckptprof.report.html import colours
from ckptprof.report.html.axis import Axis, Tick, axis_of, shown
from ckptprof.report.html.lanes import Lane, label, lanes, latenesses
from ckptprof.report.html.rates import Counted, Throughput, throughputs
from ckptprof.verdicts import Limit

WHOLE = 200  # checkpoints that are told one by one; of more, the slowest
BARS = 60  # of the accounts
MAX_JOBS = 6
MAX_STREAMS = 64


@dataclass(frozen=True)
class Tile:
    """One figure."""

    name: str
    value: str
    note: str
    style: str = ""


@dataclass(frozen=True)
class Part:
    """A part of an account's bar; its width is in percent of the longest."""

    x: float
    width: float
    style: str
    title: str


@dataclass(frozen=True)
class AccountBar:
    """Where the time of one checkpoint went, the largest part first."""

    id: int
    name: str
    parts: tuple[Part, ...]
    told: str


@dataclass(frozen=True)
class SizeRow:
    """The operations of one size."""

    name: str
    bytes_percent: float
    bytes_told: str
    operations_percent: float
    operations_told: str


@dataclass(frozen=True)
class RankRow:
    """One rank of a job."""

    job: str
    rank: int
    checkpoints: str
    late: str
    worst: str
    last: str
    percent: float  # of the latest one's time


@dataclass(frozen=True)
class FileRow:
    """One file of a checkpoint, and when a process was at it."""

    name: str
    who: str
    size: str
    took: str
    pattern: str
    x: float
    width: float


@dataclass(frozen=True)
class Cell:
    """What a table shows, and by what it is sorted."""

    text: str
    key: float | str
    style: str = ""


@dataclass(frozen=True)
class Row:
    """One checkpoint, and what is told when it is opened."""

    id: int
    cells: tuple[Cell, ...]
    sentence: str
    lists: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Page:
    """A whole page."""

    title: str
    subtitle: str
    answer: tuple[tuple[str, str], ...]
    answer_style: str
    tiles: tuple[Tile, ...]
    axis: Axis | None
    ticks: tuple[Tick, ...]
    gaps: tuple[tuple[float, float], ...]
    lanes: tuple[Lane, ...]
    throughputs: tuple[Throughput, ...]
    legend: tuple[tuple[str, str], ...]
    accounts: tuple[AccountBar, ...]
    sizes: tuple[SizeRow, ...]
    patterns: str
    ranks: tuple[RankRow, ...]
    files: tuple[FileRow, ...]
    costs: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    columns: tuple[tuple[str, bool], ...]  # name, and whether it is a number
    rows: tuple[Row, ...]
    unseen: tuple[str, ...]
    left_out: tuple[str, ...]


def page_of(report: Report, counted: Iterable[Counted], zone: tzinfo) -> Page:
    """Return what the page of a report says; `zone` is one of a fixed offset."""
    every = summary.ordered(report.checkpoints)
    kept = _worst(every, WHOLE)
    axis = axis_of(every, report.watched)
    gaps = report.watched.gaps
    opening = answer.opening(report)
    found = answer.headline(report)
    return Page(
        title=_title(report, every),
        subtitle=_subtitle(report, every, zone),
        answer=tuple(opening),
        answer_style=colours.css_class(Limit.NONE if found is None else found.limit),
        tiles=tuple(_tiles(report, every)),
        axis=axis,
        ticks=() if axis is None else tuple(axis.ticks(zone)),
        gaps=() if axis is None else tuple(shown(gaps, axis)),
        lanes=() if axis is None else tuple(lanes(every, axis)),
        throughputs=()
        if axis is None
        else tuple(throughputs(counted, axis, [(gap.start_ns, gap.end_ns) for gap in gaps])),
        legend=tuple(_legend(every)),
        accounts=tuple(_account_bars(_worst(every, BARS))),
        sizes=tuple(_sizes(every)),
        patterns=_patterns(every),
        ranks=tuple(_ranks(every)),
        files=tuple(_files(every[0])) if len(every) == 1 else (),
        costs=tuple((clean(one.job), tuple(answer.of_job(one))) for one in answer.costs(report)[:MAX_JOBS]),
        columns=COLUMNS,
        rows=tuple(_row(one, zone) for one in kept),
        unseen=tuple(_unseen(report, every, zone)),
        left_out=tuple(_left_out(every, kept)),
    )


def _worst(checkpoints: list[Checkpoint], most: int) -> list[Checkpoint]:
    if len(checkpoints) <= most:
        return checkpoints
    worst = sorted(checkpoints, key=lambda one: -max(one.stall_ns or 0, one.end_ns - one.start_ns))[:most]
    return summary.ordered(worst)


def _title(report: Report, every: list[Checkpoint]) -> str:
    where = clean(report.host or "this host")
    if len(every) == 1:
        name = label(every[0])
        return f"{name[0].upper()}{name[1:]} on {where}"
    return f"Checkpoints on {where}"


def _subtitle(report: Report, every: list[Checkpoint], zone: tzinfo) -> str:
    watched = report.watched
    if every and len(every) == 1:
        begin, end = every[0].start_ns, every[0].end_ns
    elif watched.start_ns is None or watched.end_ns is None:
        return "nothing was watched"
    else:
        begin, end = watched.start_ns, watched.end_ns
    levels = " and ".join(sorted({one.level.value for one in every}))
    level = f", level {levels}" if levels else ""
    return f"{units.stamp(begin, zone)} to {units.stamp(end, zone)} {units.offset_name(zone)}{level}"


def _tiles(report: Report, every: list[Checkpoint]) -> list[Tile]:
    told = {one.kind: one for one in summary.summarise(report).kinds}
    tiles = []
    for kind, name in ((Kind.SAVE, "Saves"), (Kind.RESTORE, "Restores")):
        one = told.get(kind)
        note = (
            "none was seen" if one is None else f"{units.size(one.bytes)}, median {units.seconds(one.median_seconds)}"
        )
        tiles.append(Tile(name, "0" if one is None else units.count(one.number), note))
    costs = answer.costs(report)
    tiles.append(_blocked_tile(costs))
    tiles.append(_gpu_tile(costs))
    risks = [one.at_risk_ns for one in every if one.at_risk_ns is not None]
    note = "complete, and not durable yet" if risks else "when a save was durable was not seen"
    tiles.append(Tile("At risk, longest", units.duration(max(risks)) if risks else units.NOT_SEEN, note))
    return tiles


def _blocked_tile(costs: Sequence[JobCost]) -> Tile:
    stalls = [one.stall_seconds for one in costs if one.stall_seconds is not None]
    if not stalls:
        return Tile("Training blocked", units.NOT_SEEN, "for how long was not seen")
    dearest = costs[0]
    note = "" if dearest.share is None else f"{units.percent(dearest.share)} of the run"
    if len(costs) > 1 and note:
        note += f" of {clean(dearest.job)}"
    over = dearest.share is not None and dearest.share > SNIA_SHARE
    return Tile("Training blocked", units.seconds(sum(stalls)), note, "over" if over else "")


def _gpu_tile(costs: Sequence[JobCost]) -> Tile:
    known = [one for one in costs if one.gpu_seconds is not None and not account.is_guessed(one.gpus, one.gpus_from)]
    if not known:
        return Tile("GPU time blocked", units.NOT_SEEN, "how many GPUs was not seen: --gpus N")
    spent = sum(one.gpu_seconds or 0.0 for one in known)
    gpus = units.plural(max(one.gpus or 0 for one in known), "GPU")
    return Tile("GPU time blocked", units.seconds(spent), gpus + account.GPUS_FROM.get(known[0].gpus_from or "", ""))


def _legend(every: Iterable[Checkpoint]) -> list[tuple[str, str]]:
    used = {part.limit for one in every if one.verdict is not None for part in one.verdict.accounts}
    used |= {one.verdict.limit for one in every if one.verdict is not None}
    return [(colours.css_class(limit), colours.name(limit)) for limit in colours.OF_LIMIT if limit in used]


def _account_bars(chosen: Sequence[Checkpoint]) -> list[AccountBar]:
    drawn = [(one, one.verdict) for one in chosen if one.verdict is not None and one.verdict.accounts]
    longest = max((sum(part.seconds for part in told.accounts) for _, told in drawn), default=0.0)
    bars = []
    for one, told in drawn:
        sums: dict[Limit | None, float] = {}
        for part in told.accounts:
            sums[part.limit] = sums.get(part.limit, 0.0) + part.seconds
        parts, x = [], 0.0
        for limit, seconds in sorted(sums.items(), key=lambda pair: -pair[1]):
            width = seconds / longest * 100 if longest > 0 else 0.0
            title = f"{colours.name(limit)}: {units.seconds(seconds)}"
            parts.append(Part(round(x, 3), round(width, 3), colours.css_class(limit), title))
            x += width
        spent = units.seconds(sum(sums.values()))
        bars.append(AccountBar(one.id, label(one), tuple(parts), f"{spent}, {certainty.short(told)}"))
    return bars


def _sizes(every: Iterable[Checkpoint]) -> list[SizeRow]:
    sums: dict[int, list[int]] = {}
    for one in every:
        for low, (operations, moved) in (one.pattern.size_histogram or {}).items():
            known = sums.setdefault(int(low), [0, 0])
            known[0] += operations
            known[1] += moved
    operations, moved = (sum(one[i] for one in sums.values()) for i in (0, 1))
    return [
        SizeRow(
            f"from {units.size(low)}",
            round(100 * sizes / max(1, moved), 2), units.percent(sizes / max(1, moved)),
            round(100 * count / max(1, operations), 2), units.count(count),
        )
        for low, (count, sizes) in sorted(sums.items())
    ]  # fmt: skip


def _patterns(every: Iterable[Checkpoint]) -> str:
    classes = Counter(None if one.pattern.class_ is None else one.pattern.class_.value for one in every)
    told = [f"{name or 'order not seen'}: {count:,}" for name, count in classes.most_common()]
    return ", ".join(told)


def _ranks(every: Iterable[Checkpoint]) -> list[RankRow]:
    jobs: dict[str, list[Checkpoint]] = {}
    for checkpoint in every:
        jobs.setdefault(checkpoint.job, []).append(checkpoint)
    made = []
    for job, mine in jobs.items():
        late = latenesses(mine)
        most = max((one.late_seconds for one in late), default=0.0)
        for one in late[:16]:
            share = 0.0 if not most else round(100 * one.late_seconds / most, 2)
            of = units.count(one.checkpoints)
            told = (units.seconds(one.late_seconds), units.seconds(one.worst_seconds), f"{one.last} of {of}")
            made.append(RankRow(clean(job), one.rank, of, *told, share))
    return made


def _files(one: Checkpoint) -> list[FileRow]:
    streams = sorted(one.streams, key=lambda stream: (-stream.bytes, stream.path))[:MAX_STREAMS]
    whole = max(1, one.end_ns - one.start_ns)
    common = rows.common_folder([stream.path for stream in streams])
    return [_file(stream, one.start_ns, whole, common) for stream in streams]


def _file(stream: Stream, start_ns: int, whole_ns: int, common: str | None) -> FileRow:
    begin = min(100.0, max(0.0, 100 * (stream.start_ns - start_ns) / whole_ns))
    width = min(100.0 - begin, max(0.2, 100 * (stream.end_ns - stream.start_ns) / whole_ns))
    name = stream.path.removeprefix(common or "").lstrip("/") if common else stream.path
    return FileRow(
        clean(name),
        f"{clean(stream.comm)} {stream.pid}",
        units.size(stream.bytes),
        units.duration(stream.end_ns - stream.start_ns),
        units.NOT_SEEN if stream.class_ is None else stream.class_.value,
        round(begin, 3),
        round(width, 3),
    )


COLUMNS = (
    ("ID", True), ("Time", True), ("Kind", False), ("Step", True), ("Job", False), ("Duration", True),
    ("Limit", False), ("Mode", False), ("Blocked", True), ("Size", True), ("Rate", True), ("Pattern", False),
    ("Path", False),
)  # fmt: skip


def _row(one: Checkpoint, zone: tzinfo) -> Row:
    spent = one.end_ns - one.start_ns
    rate = units.speed(one.bytes, spent)
    verdict = one.verdict
    limit = None if verdict is None else verdict.limit if certainty.is_told(verdict) else Limit.UNCLEAR
    pattern = "" if one.pattern.class_ is None else one.pattern.class_.value
    stall = -1.0 if one.stall_ns is None else one.stall_ns
    cells = (
        Cell(str(one.id), one.id),
        Cell(units.stamp(one.start_ns, zone, "%m-%d %H:%M:%S"), one.start_ns),
        Cell(one.kind.value + ("" if one.status.value == "complete" else ", incomplete"), one.kind.value),
        Cell(units.NOT_SEEN if one.step is None else str(one.step), -1 if one.step is None else one.step),
        Cell(clean(one.job), clean(one.job)),
        Cell(units.duration(spent), spent),
        Cell(certainty.short(verdict) or units.NOT_SEEN, certainty.short(verdict) or "", colours.css_class(limit)),
        Cell(units.NOT_SEEN if one.mode is None else one.mode.value, "" if one.mode is None else one.mode.value),
        Cell(units.NOT_SEEN if one.stall_ns is None else units.duration(one.stall_ns), stall),
        Cell(units.size(one.bytes), one.bytes),
        Cell(units.rate(rate) if rate is not None else units.NOT_SEEN, rate or 0.0),
        Cell(pattern or units.NOT_SEEN, pattern),
        Cell(clean(one.path or ""), clean(one.path or "")),
    )
    return Row(one.id, cells, "" if verdict is None else recorded(verdict.sentence), tuple(_told(one)))


def _told(one: Checkpoint) -> list[tuple[str, tuple[str, ...]]]:
    verdict = one.verdict
    lists: list[tuple[str, Iterable[str]]] = []
    if verdict is not None:
        gain = account.gain_text(verdict)
        lists += [
            ("To do", () if verdict.remedy is None else (verdict.remedy,)),
            ("Without it", () if gain is None else (gain,)),
            ("Speaks for it", verdict.evidence),
            ("Speaks against others", verdict.excluded),
            ("Could not be seen", verdict.lacking),
        ]
    pairs = course.of_restore(one) if one.kind is Kind.RESTORE else []
    lists.append(("Read from", [f"{name}: {text}" for name, text in pairs]))
    lists.append(("Out of sight", one.blind))
    return [(name, tuple(recorded(text) for text in texts)) for name, texts in lists if texts]


def _unseen(report: Report, every: Iterable[Checkpoint], zone: tzinfo) -> list[str]:
    """Return what was out of sight, each once, with how often; then when nobody watched."""
    blind = Counter(sentence for one in every for sentence in one.blind)
    told = [f"{recorded(text)} ({units.plural(count, 'checkpoint')})" for text, count in blind.most_common(20)]
    for gap in report.watched.gaps[:20]:
        spent = units.duration(gap.end_ns - gap.start_ns)
        told.append(f"{spent} from {units.stamp(gap.start_ns, zone)}: {recorded(gap.reason)}")
    return told


def _left_out(every: Sequence[Checkpoint], kept: Sequence[Checkpoint]) -> list[str]:
    told = []
    if len(kept) < len(every):
        told.append(f"The table has the {len(kept):,} slowest of {len(every):,} checkpoints.")
    if len(every) > BARS:
        told.append(f"The bars are of the {BARS} slowest of {len(every):,} checkpoints.")
    return told
