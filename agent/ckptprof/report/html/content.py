"""The content of the page as plain data: the template only lays it out and escapes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import tzinfo
from typing import Any, NamedTuple

from ckptprof import units
from ckptprof.diagnose.job_costs import SNIA_SHARE
from ckptprof.model import Checkpoint, Kind, Report
from ckptprof.report import account, answer, certainty, checkpoint_facts, colours, mount, rows, show, summary
from ckptprof.report.clean import clean, clean_sentence
from ckptprof.report.html.axis import axis_of, svg_path, visible_gaps
from ckptprof.report.html.lanes import MAX_CHECKPOINTS, Lane, Lateness, label, lanes, lateness_by_job, slowest
from ckptprof.report.html.offsets import offsets
from ckptprof.report.html.rates import CounterSeries, Throughput, throughputs
from ckptprof.report.table import Cell, number
from ckptprof.verdicts import JobCost, Limit

BARS = 30  # of the accounts: they fill a screen
MAX_JOBS = 6
MAX_RANKS = 16  # of a job
KIB, MIB = 1 << 10, 1 << 20
SIZES = (
    (0, "under 4 KiB"), (4 * KIB, "4 to 64 KiB"), (64 * KIB, "64 KiB to 1 MiB"), (MIB, "1 to 16 MiB"),
    (16 * MIB, "16 MiB and more"),
)  # fmt: skip
ORDERS = (("order-next", "consecutive"), ("order-on", "forward"), ("order-back", "backward"), ("gap", "not observed"))
Parts = list[tuple[str, float, float, str]]  # of a bar: class, start and width in percent of the longest, text


class Meter(NamedTuple):
    """A drawn part of a row; start and width in percent."""

    title: str
    style: str
    x: float
    width: float


def page_of(report: Report, counted: Iterable[CounterSeries], zone: tzinfo) -> dict[str, Any]:
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
    clock = "%m-%d %H:%M:%S" if axis is None or axis.is_within_a_year else "%Y-%m-%d %H:%M:%S"
    late = lateness_by_job(every)
    classes = Counter(one.pattern.class_.value if one.pattern.class_ else "of unknown order" for one in every)
    drawn = [] if axis is None or not every else lanes(every, axis, late)
    curves = [] if axis is None else throughputs(counted, axis, [(gap.start_ns, gap.end_ns) for gap in gaps])
    conclusion = answer.conclude(report)
    found = conclusion.headline
    subject = "Checkpoints" if single is None else label(single).capitalize()
    return {
        "title": f"{subject} on {clean(report.host or 'this host')}",
        "subtitle": _subtitle(report, every, zone),
        "answer": [
            *(conclusion.opening or _empty_answer(report, every)),
            *([("Risks", risks)] if (risks := answer.risks(every)) else []),
        ],
        "answer_style": colours.css_class(Limit.NONE if found is None else found.limit),
        "tiles": _tiles(report, every, conclusion.costs),
        "axis": axis,
        "ticks": [] if axis is None else axis.ticks(zone),
        "offset_seconds": int(zone.utcoffset(None).total_seconds()),
        "gaps": "" if axis is None else svg_path(visible_gaps(gaps, axis), 0, 100),
        "lanes": drawn,
        "throughputs": curves,
        "legend": _legend(every, drawn, curves, gaps=bool(gaps)),
        "accounts": _accounts(slowest(every, BARS)),
        "sizes": _sizes(every),
        "patterns": ", ".join(f"{units.plural(count, 'checkpoint')} {name}" for name, count in classes.most_common()),
        "orders": _orders(every),
        "ranks": [(clean(job) if len(late) > 1 else "", _ranks(mine)) for job, mine in late.items()],
        "offsets": offsets(every),
        "files": [] if single is None else _files(single),
        "mount": [] if single is None else mount.tables(single),
        "costs": [(clean(one.job), answer.job_facts(one)) for one in conclusion.costs[:MAX_JOBS]],
        "rows": [(one.id, _row(one, zone, clock, folder), *_details(one)) for one in listed],
        "folder": clean(folder or ""),
        "unseen": _limitations(report, every, zone),
        "left_out": _left_out(every, MAX_CHECKPOINTS),
        "copies": f"{rows.copies_left_out(report)}: `--kind copy` shows them." if report.copies_left_out else "",
        "bars_left_out": _left_out(every, BARS),
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


def _tiles(report: Report, every: list[Checkpoint], costs: Sequence[JobCost]) -> list[tuple[str, str, str, str]]:
    """Return (name, value, note, class) of each figure."""
    kinds = {one.kind: one for one in summary.summarise(report).kinds}
    tiles = []
    for kind, name in ((Kind.SAVE, "Saves"), (Kind.RESTORE, "Restores")):
        one = kinds.get(kind)
        if one is None:
            tiles.append((name, "0", "none observed", ""))
        else:
            note = f"{units.size(one.bytes)}, median {units.seconds(one.median_seconds)}"
            tiles.append((name, units.count(one.number), note, ""))
    if not every:
        return tiles
    risks = [one.at_risk_ns for one in every if one.at_risk_ns is not None]
    note = "each was durable when complete" if risks else "time of durability not observed"
    note = "complete but not yet durable" if any(risks) else note
    at_risk = units.duration(max(risks)) if risks else units.NOT_OBSERVED
    return [*tiles, _blocked_tile(costs), _gpu_tile(costs), ("At risk, longest", at_risk, note, "")]


def _blocked_tile(costs: Sequence[JobCost]) -> tuple[str, str, str, str]:
    stalls = [one.stall_seconds for one in costs if one.stall_seconds is not None]
    if not stalls:
        return "Training blocked", units.NOT_OBSERVED, "stall not observed", ""
    dearest = costs[0]
    notes = []
    if dearest.share is not None and dearest.stall_seconds is not None:
        of = f" of {clean(dearest.job)} ({units.seconds(dearest.stall_seconds)})" if len(costs) > 1 else ""
        notes.append(f"{units.percent(dearest.share)} of the run{of}")
    if unknown := sum(one.stalls_unknown for one in costs):
        notes.append(f"not observed for {units.count(unknown)} of {units.count(sum(one.count for one in costs))}")
    is_above = dearest.share is not None and dearest.share > SNIA_SHARE
    return "Training blocked", units.seconds(sum(stalls)), "; ".join(notes), "over" if is_above else ""


def _gpu_tile(costs: Sequence[JobCost]) -> tuple[str, str, str, str]:
    known = [one for one in costs if one.gpu_seconds is not None and not account.is_guessed(one.gpus, one.gpus_from)]
    if not known:
        return "GPU time blocked", units.NOT_OBSERVED, "number of GPUs not known: use --gpus N", ""
    spent = sum(one.gpu_seconds or 0.0 for one in known)
    gpus = units.plural(max(one.gpus or 0 for one in known), "GPU")
    return "GPU time blocked", units.seconds(spent), gpus + account.GPUS_FROM.get(known[0].gpus_from or "", ""), ""


_LEGEND_TEXTS = {"blocked": "training blocked", "risk": "complete but not yet durable", "read": "read or received",
          "written": "written or sent", "gap": "not recorded"}  # fmt: skip


def _legend(
    every: Iterable[Checkpoint], drawn: Iterable[Lane], curves: Iterable[Throughput], *, gaps: bool
) -> list[tuple[str, str]]:
    styles = {bar.style for lane in drawn for bar in lane.bars} | {style for lane in drawn for style, _ in lane.areas}
    words = {curve.word for one in curves for curve in one.curves if curve.transferred_bytes}
    styles |= {"gap"} if gaps else set()
    styles |= {"read"} if words & {"read", "received"} else set()
    styles |= {"written"} if words & {"written", "sent"} else set()
    styles |= {style.split()[0] for style in styles}  # without the outline
    used = {part.limit for one in every if one.verdict is not None for part in one.verdict.accounts}
    limits = [
        (colours.css_class(limit), certainty.account_name(limit))
        for limit in colours.OF_LIMIT
        if limit in used or colours.css_class(limit) in styles
    ]
    return [(style, text) for style, text in _LEGEND_TEXTS.items() if style in styles] + limits


def _accounts(chosen: Sequence[Checkpoint]) -> list[tuple[int, str, Parts, str]]:
    drawn = [(one, one.verdict) for one in chosen if one.verdict is not None and one.verdict.accounts]
    longest = max((sum(part.seconds for part in verdict.accounts) for _, verdict in drawn), default=0.0)
    bars = []
    for one, verdict in drawn:
        accounts = account.merge_by_limit(verdict).accounts
        parts = []
        for part in accounts:
            style, name = colours.css_class(part.limit), certainty.account_name(part.limit)
            works, waits = part.seconds - part.runnable_seconds, part.runnable_seconds
            parts += [(style, works, f"{name}: {units.seconds(works)}")] if works > 0 else []
            text = f"{name}, waiting for a CPU: {units.seconds(waits)}"
            parts += [(f"{style} hatched", waits, text)] if waits > 0 else []
        spent = units.seconds(sum(part.seconds for part in accounts))
        bars.append((one.id, label(one), _parts(parts, longest), f"{spent}, {colours.short_limit(verdict)}"))
    return bars


def _parts(parts: Iterable[tuple[str, float, str]], whole: float) -> Parts:
    placed, x = [], 0.0
    for style, amount, text in parts:
        width = 100 * amount / whole if whole > 0 else 0.0
        placed.append((style, round(x, 3), round(width, 3), text))
        x += width
    return placed


def _sizes(every: Iterable[Checkpoint]) -> list[list[Cell | Meter]]:
    sums = [[0, 0] for _ in SIZES]
    for one in every:
        for low, pair in (one.pattern.size_histogram or {}).items():
            if low.isdecimal() and len(pair) == 2:
                place = max(place for place, (least, _) in enumerate(SIZES) if int(low) >= least)
                sums[place] = [known + more for known, more in zip(sums[place], pair, strict=True)]
    operations, transferred = (sum(one[i] for one in sums) for i in (0, 1))
    if not operations:
        return []
    table: list[list[Cell | Meter]] = []
    for (_, name), (count, size) in zip(SIZES, sums, strict=True):
        share = size / max(1, transferred)
        table.append(
            [
                Cell("Operations", name),
                Meter("Share of bytes", "written", 0, round(100 * share, 2)),
                number("", share, units.percent),
                Meter("Number", "other", 0, round(100 * count / operations, 2)),
                number("", count, units.count),
            ]
        )
    return table


def _orders(every: Sequence[Checkpoint]) -> list[tuple[None, str, Parts, str]]:
    by_bytes, by_operations = [0.0] * len(ORDERS), [0.0] * len(ORDERS)
    for one in every:
        pattern = one.pattern
        observed = 1.0 if pattern.order_known_share_bytes is None else pattern.order_known_share_bytes
        _add(by_bytes, one.bytes, pattern.consecutive_share_bytes, pattern.sequential_share_bytes, observed)
        operations = (pattern.consecutive_share_operations, pattern.sequential_share_operations)
        _add(by_operations, pattern.operations or 0, *operations, 1.0)
    return [
        _order(name, sums) for name, sums in (("bytes", by_bytes), ("operations", by_operations)) if sum(sums[:-1]) > 0
    ]


def _add(sums: list[float], number: float, at_once: float | None, in_order: float | None, observed: float) -> None:
    if at_once is None or in_order is None:
        sums[-1] += number
        return
    shares = (
        at_once * observed,
        max(0.0, in_order - at_once) * observed,
        max(0.0, 1 - in_order) * observed,
        1 - observed,
    )
    for place, share in enumerate(shares):
        sums[place] += number * share


def _order(name: str, sums: Sequence[float]) -> tuple[None, str, Parts, str]:
    whole = sum(sums)
    parts = [
        (style, number, f"{units.percent(number / whole)} {text}")
        for (style, text), number in zip(ORDERS, sums, strict=True)
        if number > 0
    ]
    return None, name, _parts(parts, whole), ", ".join(text for _, _, text in parts)


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


def _row(one: Checkpoint, zone: tzinfo, clock: str, folder: str | None) -> list[Cell]:
    spent, pattern, limit = one.end_ns - one.start_ns, one.pattern.class_, colours.short_limit(one.verdict)
    own = (rows.location(one) or "") if one.path is None else clean(one.path.removeprefix(folder or ""))
    return [
        number("ID", one.id, str),
        Cell("Time", units.stamp(one.start_ns, zone, clock), right=True, key=one.start_ns),
        Cell("Kind", one.kind.value + ("" if one.status.value == "complete" else ", incomplete"), key=one.kind.value),
        number("Step", one.step, str),
        Cell("Job", clean(one.job)),
        number("Duration", spent, units.duration),
        Cell("Limit", limit, colours.verdict_class(one.verdict)),
        Cell("Mode", one.mode and one.mode.value),
        number("Blocked", one.stall_ns, units.duration),
        number("Size", one.bytes, units.size),
        number("Rate", units.speed(one.bytes, spent), units.rate),
        Cell("Pattern", pattern and pattern.value),
        Cell("Path", own),
    ]


def _details(one: Checkpoint) -> tuple[str, list[tuple[str, list[str]]]]:
    verdict = one.verdict
    lists: list[tuple[str, Iterable[str]]] = []
    if verdict is not None:
        gain = account.gain_text(verdict)
        lists += [
            ("To do", () if verdict.remedy is None else (verdict.remedy,)),
            ("Or", () if verdict.alternative is None else (account.alternative_text(verdict),)),
            ("Without it", () if gain is None else (gain,)),
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


def _left_out(every: Sequence[Checkpoint], most: int) -> str:
    return "" if len(every) <= most else f"The {most} slowest of {len(every):,} checkpoints."
