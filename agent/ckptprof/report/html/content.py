"""The content of the page as plain data: the template only lays it out and escapes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import tzinfo
from typing import Any, NamedTuple

from ckptprof import figures, units
from ckptprof.model import Checkpoint, Kind, Report
from ckptprof.report import account, answer, certainty, checkpoint_facts, mount, rows, show, summary
from ckptprof.report.clean import clean, clean_sentence
from ckptprof.report.html.axis import Axis, axis_of, svg_path, visible_gaps
from ckptprof.report.html.lanes import MAX_CHECKPOINTS, Lane, Lateness, label, lanes, lateness_by_job, slowest
from ckptprof.report.html.offsets import offsets
from ckptprof.report.html.rates import CounterSeries, Rates, Throughput, throughputs
from ckptprof.report.outliers import LEAST_SECONDS, LONGER
from ckptprof.report.pictures import colours
from ckptprof.report.table import Cell, number
from ckptprof.verdicts import Limit

MAX_JOBS = 6
MAX_RANKS = 16  # of a job
REPEATED = ("Kind", "Job", "Mode", "Size", "Pattern")  # columns that may be the same in all rows
Parts = list[tuple[str, float, float, str, str]]  # of a bar: class, start and width in percent, text, letter
_LETTER_WIDTH = 5  # percent of a bar: a narrower part has no letter


class Bars(NamedTuple):
    """A cell with the parts of a bar, by whose sum the table is sorted."""

    title: str
    parts: Parts
    text: str
    key: float
    right: bool = True


class Meter(NamedTuple):
    """A drawn part of a row; start and width in percent."""

    title: str
    style: str
    x: float
    width: float


def page_of(
    report: Report, counted: Iterable[CounterSeries], zone: tzinfo, others: Sequence[Checkpoint] = ()
) -> dict[str, Any]:
    """Return the content of a report's page; all times have the offset of `zone` at its end."""
    every = summary.ordered(report.checkpoints)
    single = every[0] if len(every) == 1 else None
    listed = slowest(every, MAX_CHECKPOINTS)
    axis = axis_of(every, report.watched)
    zone = units.fixed_zone(0 if axis is None else axis.end_ns, zone)
    gaps = report.watched.gaps
    paths = [one.path for one in listed if one.path is not None]
    folder = rows.common_folder(paths)
    if len(paths) == 1 and paths[0].startswith("/"):
        folder = paths[0][: paths[0].rstrip("/").rfind("/") + 1]
    clock = rows.clock_for((edge for one in listed for edge in (one.start_ns, one.end_ns)), zone, rows.WIDE)
    late = lateness_by_job(every)
    conclusion = answer.conclude(report, others)
    costs = {one.job: one for one in conclusion.costs}
    drawn = [] if axis is None or not every else lanes(every, axis, late, conclusion.outliers, costs)
    under = {device.device for one in every for device in one.devices if device.under is not None}
    unrecorded = [(gap.start_ns, gap.end_ns) for gap in gaps]
    curves = [] if axis is None else throughputs(counted, axis, unrecorded, under, _bounds(every, axis))
    longest = max((sum(part.seconds for part in one.verdict.accounts) for one in every if one.verdict), default=0.0)
    listed.sort(key=lambda one: (figures.lost_seconds(one), figures.duration_seconds(one)), reverse=True)
    table = [(one, _row(one, zone, clock, folder, longest)) for one in listed]
    same = _same([cells for _, cells in table])
    subject = "Checkpoints" if single is None else label(single).capitalize()
    return {
        "title": f"{subject} on {clean(report.host or 'this host')}",
        "subtitle": _subtitle(report, every, zone),
        "answer": [
            *(conclusion.opening or _empty_answer(report, every)),
            *([("Risks", risks)] if (risks := answer.risks(every)) else []),
        ],
        "answer_style": colours.css_class(conclusion.headline.limit if conclusion.headline else Limit.NONE),
        "axis": axis,
        "ticks": [] if axis is None else axis.ticks(zone),
        "offset_seconds": int(zone.utcoffset(None).total_seconds()),
        "gaps": "" if axis is None else svg_path(visible_gaps(gaps, axis), 0, 100),
        "spans": "" if axis is None else svg_path((axis.span(one.start_ns, one.end_ns) for one in listed), 0, 100),
        "lanes": drawn,
        "throughputs": [one for one in curves if one.is_under],
        "others": [one for one in curves if not one.is_under],
        "legend": _legend(every, drawn, curves, gaps=bool(gaps)),
        "pattern": [] if single is None else show.pattern_facts(single.pattern),
        "sizes": [] if single is None else show.size_rows(single.pattern),
        "ranks": [(clean(job) if len(late) > 1 else "", _ranks(mine)) for job, mine in late.items()],
        "offsets": None if single is None else offsets(single),
        "files": [] if single is None else _files(single),
        "mount": [] if single is None else mount.tables(single),
        "costs": [(clean(one.job), answer.job_facts(one)) for one in conclusion.costs[:MAX_JOBS]],
        "rows": [(one.id, [cell for cell in cells if cell.title not in same], *_details(one)) for one, cells in table],
        "same": ", ".join(same.values()),
        "slow": {one.id for one in conclusion.outliers},
        "outside": checkpoint_facts.OUTSIDE if any(map(checkpoint_facts.stall_outside, listed)) else "",
        "longer": f"{LONGER:g} times the median of its job, and {LEAST_SECONDS:g} s more",
        "folder": clean(folder or ""),
        "unseen": _limitations(report, every, zone),
        "left_out": f"The {len(listed)} slowest of {len(every):,} checkpoints." if len(listed) < len(every) else "",
        "copies": f"{rows.copies_left_out(report)}: `--kind copy` shows them." if report.copies_left_out else "",
    }


def _bounds(every: Sequence[Checkpoint], axis: Axis) -> tuple[Rates, str]:
    """Return the throttle of each checkpoint, else the median of what `ckptprof ceiling` measured, and its text."""
    known = [(one, one.verdict.throttle_bytes_per_second) for one in every if one.verdict is not None]
    if throttled := [(one.start_ns, one.end_ns, rate) for one, rate in known if rate is not None]:
        return throttled, "throttle {} (bursts exceed it)"
    costs = [one.cost for one in every if one.kind is Kind.SAVE and one.cost is not None]
    best = [one.bytes_per_second / one.ceiling_share for one in costs if one.bytes_per_second and one.ceiling_share]
    return [(axis.start_ns, axis.end_ns, figures.median(best))] if best else [], "ceiling {}"


def _same(table: Sequence[Sequence[Cell | Bars]]) -> dict[str, str]:
    """Return the columns with one text in all rows, or none in several: a sentence says it once."""
    of_columns = {cells[0].title: {cell.text for cell in cells} for cells in zip(*table, strict=True)}
    return {
        title: text or f"{title.lower()} {units.NOT_OBSERVED}"
        for title, (text, *more) in of_columns.items()
        if not more and (title in REPEATED if text else len(table) > 1)
    }


def _empty_answer(report: Report, every: Sequence[Checkpoint]) -> list[tuple[str, str]]:
    if every:
        return [("Answer", "No verdict.")]
    watched_ns = summary.summarise(report).watched_ns
    span = "" if watched_ns is None else f" in {units.duration(watched_ns)} of recording"
    return [
        ("Answer", f"No checkpoint was found{span}."),
        ("If you expected one", "`ckptprof doctor` shows what ckptprof can monitor on this host"),
    ]


def _subtitle(report: Report, every: list[Checkpoint], zone: tzinfo) -> str:
    watched = report.watched
    if len(every) == 1:
        start, end = every[0].start_ns, every[0].end_ns
    elif watched.start_ns is None or watched.end_ns is None:
        return "nothing was recorded"
    else:
        start, end = watched.start_ns, watched.end_ns
    levels = " and ".join(sorted({one.level.value for one in every}))
    level = f", level {levels}" if levels else ""
    return f"{units.stamp(start, zone)} to {units.stamp(end, zone)} {units.offset_name(zone)}{level}"


_LEGEND_TEXTS = {"blocked": "training blocked", "risk": "at risk: a crash of the machine would lose it",
    "outlier": "outlier", "curve-read": "read or received", "curve-written": "written or sent",
    "gap": "not recorded"}  # fmt: skip


def _legend(
    every: Iterable[Checkpoint], drawn: Iterable[Lane], curves: Iterable[Throughput], *, gaps: bool
) -> list[tuple[str, str]]:
    styles = {style for lane in drawn for bar in lane.bars for style in bar.style.split()}
    styles |= {"gap"} if gaps else set()
    styles |= {"curve-read", "curve-written"} if any(len(one.curves) > 1 for one in curves if one.is_under) else set()
    used = {
        colours.lettered(part.limit, one.verdict): part.limit
        for one in every
        if one.verdict is not None
        for part in one.verdict.accounts
    }
    families: dict[str, tuple[str, list[str]]] = {}
    for limit, swatch in colours.OF_LIMIT.items():
        style, names = colours.css_class(limit), sorted(name for name, of in used.items() if of is limit)
        if names or style in styles:
            families.setdefault(swatch.family, (style, []))[1].extend(names or [colours.lettered(limit, None)])
    limits = [(style, f"{family}: {', '.join(own)}") for family, (style, own) in families.items()]
    return [(style, text) for style, text in _LEGEND_TEXTS.items() if style in styles] + limits


def _account_bars(one: Checkpoint, longest: float) -> Bars:
    parts: list[tuple[str, float, str, str]] = []
    spent = 0.0
    for part in () if one.verdict is None else account.merge_by_limit(one.verdict).accounts:
        spent += part.seconds
        style, name = colours.css_class(part.limit), certainty.account_name(part.limit, one.verdict)
        letter = colours.OF_LIMIT[part.limit].letter
        works, waits = part.seconds - part.runnable_seconds, part.runnable_seconds
        parts += [(style, works, f"{name}: {units.seconds(works)}", letter)] if works > 0 else []
        text = f"{name}, without a CPU: {units.seconds(waits)}"
        parts += [(f"{style} hatched", waits, text, "")] if waits > 0 else []
    words = f"{label(one)}: {units.seconds(spent)}, {colours.short_limit(one.verdict)}"
    return Bars("Where the time went", _parts(parts, longest), words if parts else "", spent)


def _parts(parts: Iterable[tuple[str, float, str, str]], whole: float) -> Parts:
    placed, x = [], 0.0
    for style, amount, text, letter in parts:
        width = 100 * amount / whole if whole > 0 else 0.0
        placed.append((style, round(x, 3), round(width, 3), text, letter if width >= _LETTER_WIDTH else ""))
        x += width
    return placed


def _ranks(late: Sequence[Lateness]) -> list[list[Cell | Meter]]:
    most = max((rank.late_seconds for rank in late), default=0.0)
    return [
        [
            Cell("Rank", str(rank.rank)),
            Meter("Total delay", "limit-straggler", 0, round(100 * rank.late_seconds / most, 2) if most else 0.0),
            number("", rank.late_seconds, units.seconds),
            number("Maximum", rank.max_seconds, units.seconds),
            Cell("Last", f"{units.count(rank.last)} of {units.count(rank.checkpoints)}", right=True),
        ]
        for rank in late[:MAX_RANKS]
    ]


def _files(one: Checkpoint) -> list[list[Cell | Meter]]:
    style, whole_ns = "read" if one.kind is Kind.RESTORE else "written", max(1, one.end_ns - one.start_ns)
    table: list[list[Cell | Meter]] = []
    largest = sorted(one.streams, key=lambda stream: (-stream.bytes, stream.path))[: show.MAX_ROWS]
    for stream, cells in zip(largest, show.streams(one, largest), strict=True):
        x = min(100.0, max(0.0, 100 * (stream.start_ns - one.start_ns) / whole_ns))
        width = min(100.0 - x, max(0.2, 100 * (stream.end_ns - stream.start_ns) / whole_ns))
        table.append([*cells, Meter("From start to end", style, round(x, 3), round(width, 3))])
    return table


def _row(one: Checkpoint, zone: tzinfo, clock: str, folder: str | None, longest: float) -> list[Cell | Bars]:
    spent, pattern, limit = one.end_ns - one.start_ns, one.pattern.class_, colours.short_limit(one.verdict)
    kind = one.kind.value + ("" if one.status.value == "complete" else ", incomplete")
    own = (rows.location(one) or "") if one.path is None else clean(one.path.removeprefix(folder or ""))
    return [
        number("ID", one.id, str),
        Cell("Time", units.stamp(one.start_ns, zone, clock), right=True, key=one.start_ns, drop=1),
        Cell("Kind", kind, key=one.kind.value, drop=1),
        number("Step", one.step, str, drop=1),
        Cell("Job", clean(one.job), drop=1),
        number("Duration", spent, units.duration),
        number("Blocked", one.stall_ns, units.duration),
        Cell("Limit", limit, colours.verdict_class(one.verdict)),
        _account_bars(one, longest),
        Cell("Mode", one.mode and one.mode.value, drop=1),
        number("Size", one.bytes, units.size, drop=1),
        number("Rate", units.speed(one.bytes, spent), units.rate, drop=1),
        Cell("Pattern", pattern and pattern.value, drop=1),
        Cell("Path", own, drop=1),
    ]


def _details(one: Checkpoint) -> tuple[str, list[tuple[str, list[str]]]]:
    verdict = one.verdict
    lists: list[tuple[str, Iterable[str]]] = []
    if verdict is not None:
        gain = account.gain_text(verdict)
        lists += [
            ("To do", () if verdict.remedy is None else (verdict.remedy,)),
            ("Or", () if verdict.alternative is None else (account.alternative_text(verdict),)),
            ("Gain", () if gain is None else (gain,)),
            *account.reasons(verdict),
        ]
    pairs = checkpoint_facts.restore_facts(one) if one.kind is Kind.RESTORE else []
    lists.append(("May not restore correctly", [risk.text for risk in one.risks]))
    lists.append(("After a crash", checkpoint_facts.frailties(one)))
    lists.append(("Read from", [f"{name}: {text}" for name, text in pairs]))
    lists.append(("Limitations", one.limitations))
    sections = [(name, list(map(clean_sentence, texts))) for name, texts in lists if texts]
    return "" if verdict is None else clean_sentence(verdict.sentence), sections


def _limitations(report: Report, every: Iterable[Checkpoint], zone: tzinfo) -> list[str]:
    counts = Counter(sentence for one in every for sentence in one.limitations)
    sentences = [
        f"{clean_sentence(text)} ({units.plural(count, 'checkpoint')})" for text, count in counts.most_common(20)
    ]
    for gap in report.watched.gaps[:20]:
        spent = units.duration(gap.end_ns - gap.start_ns)
        sentences.append(f"{spent} from {units.stamp(gap.start_ns, zone)}: {clean_sentence(gap.reason)}")
    return sentences
