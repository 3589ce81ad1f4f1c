"""The lanes of the timeline: who saved or restored when, when training was blocked, what was not durable yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from ckptprof import units
from ckptprof.model import Checkpoint, Kind, Writer
from ckptprof.report import certainty
from ckptprof.report.clean import clean, shorten_end
from ckptprof.report.html import colours
from ckptprof.report.html.axis import Axis
from ckptprof.verdicts import Limit

SLOWEST, FASTEST = 16, 4  # ranks that are drawn
MAX_JOBS = 6
MAX_ROWS = 4  # of a lane in which bars lie above each other
_NAME_CELLS = 24


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
    rows: int = 1
    note: str = ""


@dataclass(frozen=True)
class Lateness:
    """How one rank did in all checkpoints of a job that it took part in."""

    rank: int
    checkpoints: int
    late_seconds: float  # after the middle rank, in all
    worst_seconds: float
    last: int  # how often no other ended later


def lanes(checkpoints: Sequence[Checkpoint], axis: Axis) -> list[Lane]:
    """Return the lanes from top to bottom."""
    jobs: dict[str, list[Checkpoint]] = {}
    for one in checkpoints:
        jobs.setdefault(one.job, []).append(one)
    dearest = sorted(jobs, key=lambda job: -sum(one.stall_ns or 0 for one in jobs[job]))
    made = [_blocked(checkpoints, axis)]
    for job in sorted(dearest[:MAX_JOBS], key=lambda job: jobs[job][0].start_ns):
        made += _of_job(jobs[job], axis, shorten_end(clean(job), _NAME_CELLS) if len(jobs) > 1 else "")
    if others := [one for job in dearest[MAX_JOBS:] for one in jobs[job]]:
        made.append(_whole(others, axis, f"{units.plural(len(jobs) - MAX_JOBS, 'job')} more"))
    return [*made, *_at_risk(checkpoints, axis)]


def latenesses(checkpoints: Iterable[Checkpoint]) -> list[Lateness]:
    """Return the ranks of a job, the one first that was late for longest; none where fewer than two are known."""
    late: dict[int, list[tuple[float, bool]]] = {}
    for one in checkpoints:
        ends = _ends(one)
        if len(ends) < 2:
            continue
        middle, last = median(ends.values()), max(ends.values())
        for rank, end_ns in ends.items():
            late.setdefault(rank, []).append((max(0.0, (end_ns - middle) / 1e9), end_ns == last))
    found = [
        Lateness(rank, len(seen), sum(s for s, _ in seen), max(s for s, _ in seen), sum(last for _, last in seen))
        for rank, seen in late.items()
    ]
    return sorted(found, key=lambda one: (-one.late_seconds, one.rank))


def label(checkpoint: Checkpoint) -> str:
    """Return what a checkpoint is called: save 3, step 400."""
    step = "" if checkpoint.step is None else f", step {checkpoint.step}"
    return f"{checkpoint.kind.value} {checkpoint.id}{step}"


def _ends(checkpoint: Checkpoint) -> dict[int, int]:
    ends: dict[int, int] = {}
    for writer in checkpoint.writers:
        if writer.rank is not None and writer.end_ns is not None:
            ends[writer.rank] = max(ends.get(writer.rank, 0), writer.end_ns)
    return ends


def _of_job(mine: list[Checkpoint], axis: Axis, job: str) -> list[Lane]:
    late = latenesses(mine)
    if not late:
        return [_whole(mine, axis, job or "checkpoints")]
    chosen = late if len(late) <= SLOWEST + FASTEST else [*late[:SLOWEST], *late[-FASTEST:]]
    left_out = len(late) - len(chosen)
    made = []
    for rank in sorted(one.rank for one in chosen):
        parts = [(one, writer) for one in mine for writer in one.writers if writer.rank == rank]
        bars = tuple(bar for one, writer in parts if (bar := _part(one, writer, axis)) is not None)
        made.append(Lane(f"{job} rank {rank}".strip(), bars))
    if left_out:
        text = f"{units.plural(left_out, 'rank')} between the {SLOWEST} latest and the {FASTEST} earliest left out"
        made.append(Lane("", (), note=text))
    return made


def _whole(mine: Iterable[Checkpoint], axis: Axis, name: str) -> Lane:
    bars = [_bar(one, axis.span(one.start_ns, one.end_ns), _style(one), _title(one)) for one in mine]
    return Lane(name, tuple(bars))


def _part(one: Checkpoint, writer: Writer, axis: Axis) -> Bar | None:
    if writer.start_ns is None or writer.end_ns is None:
        return None
    took = units.duration(writer.end_ns - writer.start_ns)
    title = f"{label(one)}, rank {writer.rank}: {units.size(writer.bytes)} in {took}"
    return _bar(one, axis.span(writer.start_ns, writer.end_ns), _style(one), title)


def _blocked(checkpoints: Iterable[Checkpoint], axis: Axis) -> Lane:
    bars, lengths_only, unseen = [], 0, 0
    for one in checkpoints:
        unseen += one.stall_ns is None
        lengths_only += bool(one.stall_ns) and not one.blocked
        for span in one.blocked:
            title = f"{label(one)} blocked training for {units.duration(span.end_ns - span.start_ns)}"
            bars.append(_bar(one, axis.span(span.start_ns, span.end_ns), "blocked", title))
    notes = []
    if lengths_only:
        notes.append(f"of {units.plural(lengths_only, 'checkpoint')} only how long, not when: not drawn")
    if unseen:
        notes.append(f"of {units.plural(unseen, 'checkpoint')} not seen")
    return Lane("blocked", tuple(bars), note="; ".join(notes))


def _at_risk(checkpoints: Iterable[Checkpoint], axis: Axis) -> list[Lane]:
    """Return the lane of saves that counted as complete and were not durable yet; none where that is not known."""
    bars: list[Bar] = []
    ends: list[int] = []
    for one in sorted(checkpoints, key=lambda one: one.start_ns):
        if one.durable_ns is None or not one.at_risk_ns or one.kind is not Kind.SAVE:
            continue
        begin_ns = one.durable_ns - one.at_risk_ns
        row = next((row for row, end_ns in enumerate(ends) if end_ns <= begin_ns), len(ends))
        row = min(row, MAX_ROWS - 1)
        ends[row : row + 1] = [one.durable_ns]
        title = f"{label(one)}: complete, and not durable for {units.duration(one.at_risk_ns)}"
        bars.append(_bar(one, axis.span(begin_ns, one.durable_ns), "risk", title, row))
    return [Lane("at risk", tuple(bars), rows=max(1, len(ends)))] if bars else []


def _bar(one: Checkpoint, place: tuple[float, float], style: str, title: str, row: int = 0) -> Bar:
    return Bar(*place, row, style, title, one.id)


def _style(one: Checkpoint) -> str:
    told = one.verdict
    limit = None if told is None else told.limit if certainty.is_told(told) else Limit.UNCLEAR
    outline = " restore" if one.kind is Kind.RESTORE else " copy" if one.kind is Kind.COPY else ""
    return colours.css_class(limit) + outline


def _title(one: Checkpoint) -> str:
    took = units.duration(one.end_ns - one.start_ns)
    limit = certainty.short(one.verdict)
    return f"{label(one)}: {units.size(one.bytes)} in {took}" + ("" if limit is None else f", {limit}")
