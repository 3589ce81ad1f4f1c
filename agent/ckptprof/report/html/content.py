"""All that the page says, as plain data: the template only lays it out, and escapes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import tzinfo

from ckptprof import units
from ckptprof.diagnose.costs import SNIA_SHARE
from ckptprof.model import Checkpoint, Kind, Report
from ckptprof.report import account, answer, rows, summary
from ckptprof.report.clean import clean, recorded
from ckptprof.report.html import colours
from ckptprof.report.html.axis import Axis, Tick, axis_of, path, shown
from ckptprof.report.html.lanes import WHOLE, Lane, label, lanes, lateness_by_job, slowest
from ckptprof.report.html.offsets import Offsets, offsets
from ckptprof.report.html.rates import Counted, Throughput, throughputs
from ckptprof.report.html.tables import (
    COLUMNS,
    FileRow,
    MountRow,
    OrderRow,
    RankRow,
    Row,
    SizeRow,
    at_mount,
    files,
    orders,
    patterns,
    ranks,
    row,
    sizes,
)
from ckptprof.verdicts import JobCost, Limit

BARS = 30  # of the accounts: they fill a screen
MAX_JOBS = 6


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
class Page:
    """A whole page."""

    title: str
    subtitle: str
    answer: tuple[tuple[str, str], ...]
    answer_style: str
    tiles: tuple[Tile, ...]
    axis: Axis | None
    ticks: tuple[Tick, ...]
    offset_seconds: int  # of the times, to UTC
    gaps: str  # a path
    lanes: tuple[Lane, ...]
    throughputs: tuple[Throughput, ...]
    legend: tuple[tuple[str, str], ...]
    accounts: tuple[AccountBar, ...]
    sizes: tuple[SizeRow, ...]
    patterns: str
    orders: tuple[OrderRow, ...]
    ranks: tuple[RankRow, ...]
    jobs: int  # of those ranks
    offsets: Offsets | None
    files: tuple[FileRow, ...]
    files_style: str
    mount: tuple[MountRow, ...]  # of a single checkpoint, as the files are
    costs: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    columns: tuple[tuple[str, bool], ...]  # name, and whether it is a number
    rows: tuple[Row, ...]
    folder: str  # that the paths of the table are in
    unseen: tuple[str, ...]
    left_out: str  # of the table
    copies: str  # that were left out
    bars_left_out: str


def page_of(report: Report, counted: Iterable[Counted], zone: tzinfo) -> Page:
    """Return what the page of a report says, with all times in the offset that `zone` had at its end."""
    every = summary.ordered(report.checkpoints)
    kept = slowest(every, WHOLE)
    axis = axis_of(every, report.watched)
    zone = units.fixed_zone(0 if axis is None else axis.end_ns, zone)
    gaps = report.watched.gaps
    folder = _folder([one.path for one in kept if one.path is not None])
    clock = "%m-%d %H:%M:%S" if axis is None or axis.is_of_a_year else "%Y-%m-%d %H:%M:%S"
    late = lateness_by_job(every)
    drawn = () if axis is None or not every else tuple(lanes(every, axis, late))
    moved = () if axis is None else tuple(throughputs(counted, axis, [(gap.start_ns, gap.end_ns) for gap in gaps]))
    told = answer.of(report)
    found = told.headline
    return Page(
        title=_title(report, every),
        subtitle=_subtitle(report, every, zone),
        answer=(
            *(told.opening or _nothing(report, every)),
            *([("Risks", risks)] if (risks := answer.risks(every)) else []),
        ),
        answer_style=colours.css_class(Limit.NONE if found is None else found.limit),
        tiles=tuple(_tiles(report, every, told.costs)),
        axis=axis,
        ticks=() if axis is None else tuple(axis.ticks(zone)),
        offset_seconds=int(zone.utcoffset(None).total_seconds()),
        gaps="" if axis is None else path(shown(gaps, axis), 0, 100),
        lanes=drawn,
        throughputs=moved,
        legend=tuple(_legend(every, drawn, moved, gaps=bool(gaps))),
        accounts=tuple(_account_bars(slowest(every, BARS))),
        sizes=tuple(sizes(every)),
        patterns=patterns(every),
        orders=tuple(orders(every)),
        ranks=tuple(ranks(late)),
        jobs=len(late),
        offsets=offsets(every),
        files=tuple(files(every[0])) if len(every) == 1 else (),
        mount=tuple(at_mount(every[0])) if len(every) == 1 else (),
        files_style="read" if every and every[0].kind is Kind.RESTORE else "written",
        costs=tuple((clean(one.job), tuple(answer.of_job(one))) for one in told.costs[:MAX_JOBS]),
        columns=COLUMNS,
        rows=tuple(row(one, zone, clock, folder) for one in kept),
        folder=clean(folder or ""),
        unseen=tuple(_unseen(report, every, zone)),
        left_out=_left_out(every, WHOLE),
        copies=_copies(report),
        bars_left_out=_left_out(every, BARS),
    )


def _folder(paths: Sequence[str]) -> str | None:
    """Return what all paths begin with; of a single one the folder that it is in."""
    if len(paths) == 1 and paths[0].startswith("/"):
        return paths[0][: paths[0].rstrip("/").rfind("/") + 1]
    return rows.common_folder(paths)


def _nothing(report: Report, every: Sequence[Checkpoint]) -> tuple[tuple[str, str], ...]:
    """Return what there is to say where nothing was concluded."""
    if every:
        return (("Answer", "Nothing was concluded."),)
    watched_ns = summary.summarise(report).watched_ns
    span = "" if watched_ns is None else f" in the {units.duration(watched_ns)} that were watched"
    return (
        ("Answer", f"No checkpoint was seen{span}."),
        ("If there was one", "`ckptprof doctor` tells what ckptprof can see on this host"),
    )


def _copies(report: Report) -> str:
    number = report.copies_left_out
    told = "1 copy of checkpoint files was" if number == 1 else f"{units.count(number)} copies of checkpoint files were"
    return f"{told} left out: `--kind copy` has them." if number else ""


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


def _tiles(report: Report, every: list[Checkpoint], costs: Sequence[JobCost]) -> list[Tile]:
    kinds = {one.kind: one for one in summary.summarise(report).kinds}
    tiles = []
    for kind, name in ((Kind.SAVE, "Saves"), (Kind.RESTORE, "Restores")):
        one = kinds.get(kind)
        note = (
            "none was seen" if one is None else f"{units.size(one.bytes)}, median {units.seconds(one.median_seconds)}"
        )
        tiles.append(Tile(name, "0" if one is None else units.count(one.number), note))
    if not every:
        return tiles
    tiles.append(_blocked_tile(costs))
    tiles.append(_gpu_tile(costs))
    risks = [one.at_risk_ns for one in every if one.at_risk_ns is not None]
    note = (
        "complete, and not durable yet"
        if any(risks)
        else "each was durable when complete"
        if risks
        else "when it was durable was not seen"
    )
    tiles.append(Tile("At risk, longest", units.duration(max(risks)) if risks else units.NOT_SEEN, note))
    return tiles


def _blocked_tile(costs: Sequence[JobCost]) -> Tile:
    stalls = [one.stall_seconds for one in costs if one.stall_seconds is not None]
    if not stalls:
        return Tile("Training blocked", units.NOT_SEEN, "for how long was not seen")
    dearest = costs[0]
    notes = []
    if dearest.share is not None and dearest.stall_seconds is not None:
        of = f" of {clean(dearest.job)} ({units.seconds(dearest.stall_seconds)})" if len(costs) > 1 else ""
        notes.append(f"{units.percent(dearest.share)} of the run{of}")
    if unseen := sum(one.stalls_unknown for one in costs):
        notes.append(f"not seen of {units.count(unseen)} of {units.count(sum(one.count for one in costs))}")
    over = dearest.share is not None and dearest.share > SNIA_SHARE
    return Tile("Training blocked", units.seconds(sum(stalls)), "; ".join(notes), "over" if over else "")


def _gpu_tile(costs: Sequence[JobCost]) -> Tile:
    known = [one for one in costs if one.gpu_seconds is not None and not account.is_guessed(one.gpus, one.gpus_from)]
    if not known:
        return Tile("GPU time blocked", units.NOT_SEEN, "how many GPUs was not seen: --gpus N")
    spent = sum(one.gpu_seconds or 0.0 for one in known)
    gpus = units.plural(max(one.gpus or 0 for one in known), "GPU")
    return Tile("GPU time blocked", units.seconds(spent), gpus + account.GPUS_FROM.get(known[0].gpus_from or "", ""))


_MEANT = {"blocked": "training blocked", "risk": "complete, not durable yet", "read": "read or received",
          "written": "written or sent", "gap": "nobody watched"}  # fmt: skip


def _legend(
    every: Iterable[Checkpoint], drawn: Iterable[Lane], moved: Iterable[Throughput], *, gaps: bool
) -> list[tuple[str, str]]:
    """Return the colours that are drawn, and what each stands for."""
    styles = {bar.style for lane in drawn for bar in lane.bars} | {style for lane in drawn for style, _ in lane.areas}
    words = {curve.word for one in moved for curve in one.curves if curve.moved_bytes}
    styles |= {"gap"} if gaps else set()
    styles |= {"read"} if words & {"read", "received"} else set()
    styles |= {"written"} if words & {"written", "sent"} else set()
    styles |= {style.split()[0] for style in styles}  # without the outline
    used = {part.limit for one in every if one.verdict is not None for part in one.verdict.accounts}
    limits = [
        (colours.css_class(limit), colours.name(limit))
        for limit in colours.OF_LIMIT
        if limit in used or colours.css_class(limit) in styles
    ]
    return [(style, text) for style, text in _MEANT.items() if style in styles] + limits


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
        bars.append(AccountBar(one.id, label(one), tuple(parts), f"{spent}, {colours.short(told)}"))
    return bars


def _unseen(report: Report, every: Iterable[Checkpoint], zone: tzinfo) -> list[str]:
    """Return what was out of sight, each once, with how often; then when nobody watched."""
    blind = Counter(sentence for one in every for sentence in one.blind)
    told = [f"{recorded(text)} ({units.plural(count, 'checkpoint')})" for text, count in blind.most_common(20)]
    for gap in report.watched.gaps[:20]:
        spent = units.duration(gap.end_ns - gap.start_ns)
        told.append(f"{spent} from {units.stamp(gap.start_ns, zone)}: {recorded(gap.reason)}")
    return told


def _left_out(every: Sequence[Checkpoint], most: int) -> str:
    return "" if len(every) <= most else f"Of {len(every):,} checkpoints the {most} slowest."
