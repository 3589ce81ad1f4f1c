"""The report for a terminal: the answer, what was watched, one line for each checkpoint, and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timezone, tzinfo
from itertools import takewhile

from ckptprof import figures, units
from ckptprof.model import Checkpoint, Kind, Level, PatternClass, Report, Status
from ckptprof.report import answer, certainty, course
from ckptprof.report import summary as summaries
from ckptprof.report.clean import clean, shorten_end
from ckptprof.report.table import MISSING, NOTHING, Cell, Column, facts, is_cut, paint, wrap
from ckptprof.report.table import render as render_table
from ckptprof.verdicts import Limit

_KIND_TITLE = {Kind.SAVE: "Saves", Kind.RESTORE: "Restores", Kind.COPY: "Copies"}
LOW_CONFIDENCE = 0.6  # below it a row is marked
WIDE = 120  # from here on pattern classes and dates are written in full
_SECONDS_FROM = 50  # cells
_JOBS, _JOB_CELLS = 3, 60  # named in the opening, and how much of each
_SHORT_CLASS = {PatternClass.SEQUENTIAL_LARGE: "seq-large", PatternClass.SEQUENTIAL_SMALL: "seq-small"}
KIND_STYLE = {Kind.SAVE: "cyan", Kind.RESTORE: "magenta", Kind.COPY: "dim"}
CLASS_STYLE = {
    PatternClass.SEQUENTIAL_LARGE: "green",
    PatternClass.SEQUENTIAL_SMALL: "yellow",
    PatternClass.STRIDED: "yellow",
    PatternClass.RANDOM: "red",
    PatternClass.MIXED: "yellow",
}
_COLUMNS = (
    Column("ID", right=True),
    Column("TIME", drop=1),
    Column("KIND"),
    Column("STEP", right=True, drop=7),
    Column("DURATION", right=True),
    Column("LIMIT"),
    Column("MODE", drop=4),
    Column("STALL", right=True, drop=5),
    Column("SIZE", right=True, drop=2),
    Column("RATE", right=True, drop=8),
    Column("PATTERN", drop=9),
    Column("FILES", right=True, drop=10),
    Column("WHO", drop=6, minimum=14, cut=shorten_end),
    Column("PATH", drop=3, minimum=11),
)
_AGAIN = "*"
_WHERE_SEEN = ("STEP", "LIMIT", "MODE", "STALL")  # columns that are shown where there is anything to show
COPIES = "`ckptprof report --kind copy` lists them"
_DOCTOR = "`ckptprof doctor` tells what ckptprof can see on this host"


def explain_empty(report: Report) -> tuple[str, str]:
    """Return what to say of a report without checkpoints: the finding, and what to do."""
    spent = summaries.summarise(report).watched_ns
    if report.watched.moved_aside:
        return f"no checkpoint here fits the question; {_damaged(report.watched.moved_aside)}", "ask that one with --db"
    if spent is None:
        return (
            "nothing was recorded in the time asked for",
            "look further back with --since; `ckptprof doctor` tells what is seen on this host",
        )
    if report.copies_left_out:
        copies = _copies(report.copies_left_out)
        return (
            f"watched for {units.duration(spent)} and saw no save or restore that fits the question, only {copies}",
            "--kind copy lists them",
        )
    return (
        f"watched for {units.duration(spent)} and saw no checkpoint that fits the question",
        f"what has just ended is told some seconds later; loosen --since, --job and --kind if given; {_DOCTOR}",
    )


def explain_empty_run(report: Report) -> tuple[str, str]:
    """Return the same of `run`, which was asked nothing."""
    spent = summaries.summarise(report).watched_ns
    if spent is None:
        return "nothing was recorded: the command ran unwatched", _DOCTOR
    if report.copies_left_out:
        copies = _copies(report.copies_left_out)
        return f"watched for {units.duration(spent)} and saw no save or restore, only {copies}", COPIES
    return f"watched for {units.duration(spent)} and saw no checkpoint", _DOCTOR


def render(  # noqa: PLR0913 # each argument is one choice of the caller
    report: Report,
    *,
    width: int,
    colour: bool,
    zone: tzinfo,
    copies: str = COPIES,
    gpus: int | None = None,
    empty: Callable[[Report], tuple[str, str]] = explain_empty,
) -> str:
    """Return the whole report as text that ends in a newline.

    `zone` gives the offset in which times are printed; `copies` says how copies that were left out can be seen, and
    `empty` what there is to say where there are no checkpoints.
    """
    checkpoints = summaries.ordered(report.checkpoints)
    offset = _offset(report, checkpoints, zone)
    lines = facts([*answer.opening(report), *_opening(report, offset)], width, colour=colour)
    if not checkpoints:
        message, hint = empty(report)
        sentences = f"{message[0].upper()}{message[1:]}. {hint[0].upper()}{hint[1:]}."
        return "\n".join([*lines, "", *wrap(sentences, width), ""])
    lines += ["", *_table(report, checkpoints, offset, width, colour=colour), ""]
    cost = answer.cost_lines(report, width, gpus, colour=colour)
    lines += [*cost, ""] if cost else []
    lines += [paint(line, "dim", colour=colour) for note in _notes(report, copies) for line in wrap(note, width)]
    return "\n".join([*lines, ""])


def table(report: Report, *, width: int, colour: bool, zone: tzinfo) -> str:
    """Return the line of each checkpoint alone, as text that ends in a newline; empty without checkpoints."""
    checkpoints = summaries.ordered(report.checkpoints)
    lines = _table(report, checkpoints, _offset(report, checkpoints, zone), width, colour=colour)
    return "".join(f"{line}\n" for line in lines)


def who(checkpoint: Checkpoint) -> str:
    """Return who moved the bytes: the job, and its processes where the job's name does not tell all of them."""
    job = clean(checkpoint.job)
    if len(checkpoint.writers) > 1:
        return f"{job} ({len(checkpoint.writers)} processes)"
    if not checkpoint.writers or job.endswith(f"-{checkpoint.writers[0].pid}"):
        return job
    return f"{job} ({clean(checkpoint.writers[0].comm)} {checkpoint.writers[0].pid})"


def _offset(report: Report, checkpoints: Sequence[Checkpoint], zone: tzinfo) -> timezone:
    at_ns = report.watched.end_ns
    if at_ns is None:
        at_ns = checkpoints[-1].end_ns if checkpoints else 0
    return units.fixed_zone(at_ns, zone)


def _opening(report: Report, zone: timezone) -> list[tuple[str, str]]:
    found = summaries.summarise(report)
    host = clean(report.host) if report.host is not None else "a host that was not seen"
    watched = report.watched
    if found.watched_ns is None:
        pairs = [("Watched", f"nothing on {host}" if report.host is not None else "nothing")]
    else:
        end = units.stamp(watched.end_ns, zone)
        start = units.stamp(watched.start_ns, zone)
        if start[:10] == end[:10]:
            end = end[11:]
        span = f"{start} to {end} {units.offset_name(zone)}"
        pairs = [("Watched", f"{units.duration(found.watched_ns)} on {host}, {span}")]
    if watched.gaps:
        pairs.append(("Gaps", _gaps(report, found.gap_ns, zone)))
    if watched.moved_aside:
        pairs.append(("Damaged", _damaged(watched.moved_aside)))
    beside_restores = any(kind.kind is Kind.RESTORE for kind in found.kinds)
    for kind in found.kinds:
        pairs.append((_KIND_TITLE[kind.kind], _kind_line(kind)))
        if kind.kind is Kind.SAVE and (kind.modes or kind.stalled):
            pairs.append(("Stall" if kind.stalled else "Modes", _stall_line(kind, beside_restores=beside_restores)))
    if report.checkpoints:
        pairs.append(("By", _jobs(report.checkpoints)))
    return pairs


def _kind_line(kind: summaries.KindSummary) -> str:
    speed = units.speed(kind.bytes, kind.busy_ns)
    text = units.count(kind.number)
    text += f" ({units.count(kind.incomplete)} incomplete)" if kind.incomplete else ""
    text += f", {units.size(kind.bytes)} in {units.duration(kind.busy_ns)}"
    text += f" (throughput {units.rate(speed)})" if speed is not None else ""
    if kind.number > 1 and kind.complete:
        of = "" if kind.complete == kind.number else f" of the {units.count(kind.complete)} complete"
        p95 = f"median {units.seconds(kind.median_seconds)}, p95 {units.seconds(kind.p95_seconds)}"
        text += f"; duration {p95 if kind.complete > 1 else units.seconds(kind.median_seconds)}{of}"
    if kind.caches:
        text += "; " + ", ".join(f"{units.count(number)} {clean(cache)}" for cache, number in kind.caches)
    return text


def _stall_line(kind: summaries.KindSummary, *, beside_restores: bool) -> str:
    parts = []
    if kind.stalled:
        text = f"training blocked for {units.duration(kind.stall_ns)}{' by saves' * beside_restores}"
        seen = f"{units.count(kind.stalled)} of {units.plural(kind.number, 'save')}"
        parts.append(text if kind.stalled == kind.number else f"{text}, seen of {seen}")
    if kind.modes:
        parts.append(", ".join(f"{units.count(number)} {mode.value}" for mode, number in kind.modes))
    return "; ".join(parts)


def _copies(number: int) -> str:
    return "1 copy" if number == 1 else f"{units.count(number)} copies"


def _jobs(checkpoints: Sequence[Checkpoint]) -> str:
    names = list(dict.fromkeys(clean(checkpoint.job) for checkpoint in checkpoints))
    rest = f" and {units.count(len(names) - _JOBS)} more" if len(names) > _JOBS else ""
    return ", ".join(shorten_end(name, _JOB_CELLS) for name in names[:_JOBS]) + rest


def _damaged(moved_aside: Sequence[str]) -> str:
    """Return what is not told here because its database was damaged; the newest is the last."""
    kept = "its database was damaged, and is kept"
    if len(moved_aside) > 1:
        kept = f"{len(moved_aside)} databases were damaged and are kept, the newest"
    return f"what was recorded before is not in this report: {kept} as {clean(moved_aside[-1])}"


def _gaps(report: Report, gap_ns: int, zone: timezone) -> str:
    gaps = report.watched.gaps
    longest = summaries.longest_gap(gaps)
    length = units.duration(longest.end_ns - longest.start_ns)
    begin = units.stamp(longest.start_ns, zone)
    if len(gaps) == 1:
        return f"1, {length} from {begin}: {clean(longest.reason)}"
    total = units.duration(gap_ns)
    return f"{units.count(len(gaps))}, {total} in all; the longest {length} from {begin}: {clean(longest.reason)}"


def _table(report: Report, checkpoints: Sequence[Checkpoint], zone: timezone, width: int, *, colour: bool) -> list[str]:
    wide, jobs = width >= WIDE, {checkpoint.job for checkpoint in checkpoints}
    clock = _clock(report, checkpoints, zone, width)
    rows = [_row(checkpoint, zone, clock, full=wide) for checkpoint in checkpoints]
    keep = [
        i
        for i, column in enumerate(_COLUMNS)
        if (column.title not in _WHERE_SEEN or any(row[i] is not MISSING for row in rows))
        and (column.title != "WHO" or len(jobs) > 1)  # the head names the only one
    ]
    columns = [_COLUMNS[i] for i in keep]
    whole = [[row[i] for i in keep] for row in rows]
    paths = [c.path for c in checkpoints if c.path is not None]
    folder = common_folder(paths)
    below: list[tuple[str, str]] = []
    if is_cut(columns, whole, width):  # too narrow for whole paths: name what they share once
        if folder is not None:
            below = [("Paths are in", clean(folder))]
            for checkpoint, row in zip(checkpoints, whole, strict=True):
                row[-1] = row[-1] if checkpoint.path is None else Cell(clean(checkpoint.path[len(folder) :]))
        elif len(paths) == 1:
            below = [("Path", clean(paths[0]))]
    lines = render_table(columns, whole, width, colour=colour)
    return [*lines, *([""] if below else []), *facts(below, width, colour=colour)]


def common_folder(paths: Sequence[str]) -> str | None:
    """Return the folder, with its slash, that holds all of two or more paths; None if it is / or there is none."""
    if len(paths) < 2 or not all(path.startswith("/") for path in paths):
        return None
    first, last = min(paths), max(paths)  # what these two share, all share
    shared = "".join(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False)))
    folder = shared[: shared.rfind("/") + 1]
    return folder if len(folder) > 1 else None


def _clock(report: Report, checkpoints: Sequence[Checkpoint], zone: timezone, width: int) -> str:
    marks = [report.watched.start_ns, report.watched.end_ns, *(c.start_ns for c in checkpoints)]
    dates = {units.stamp(mark, zone)[:10] for mark in marks if mark is not None}
    if len(dates) == 1:
        return "%H:%M:%S" if width >= _SECONDS_FROM else "%H:%M"
    return "%Y-%m-%d %H:%M:%S" if width >= WIDE else "%m-%d %H:%M"


def _row(checkpoint: Checkpoint, zone: timezone, clock: str, *, full: bool) -> list[Cell]:
    speed = figures.rate_bytes_per_second(checkpoint)
    return [
        Cell(str(checkpoint.id) if checkpoint.id else NOTHING, "bold"),
        Cell(units.stamp(checkpoint.start_ns, zone, clock)),
        _kind(checkpoint, full=full),
        MISSING if checkpoint.step is None else Cell(str(checkpoint.step)),
        Cell(units.seconds(figures.duration_seconds(checkpoint))),
        _limit(checkpoint),
        MISSING if checkpoint.mode is None else Cell(checkpoint.mode.value),
        MISSING if checkpoint.stall_ns is None else Cell(units.duration(checkpoint.stall_ns)),
        Cell(units.size(checkpoint.bytes) + _AGAIN * course.is_moved_again(checkpoint)),
        MISSING if speed is None else Cell(units.rate(speed)),
        _pattern(checkpoint, full=full),
        Cell(units.count(checkpoint.files)),
        Cell(who(checkpoint)),
        MISSING if checkpoint.path is None else Cell(clean(checkpoint.path)),
    ]


def _kind(checkpoint: Checkpoint, *, full: bool) -> Cell:
    """Return the kind; an incomplete one is a save, which is said where there is room."""
    mark = "?" * (checkpoint.confidence < LOW_CONFIDENCE)
    if checkpoint.status is Status.INCOMPLETE:
        return Cell((f"incomplete {checkpoint.kind.value}" if full else "incomplete") + mark, "bold red")
    return Cell(checkpoint.kind.value + mark, "yellow" if mark else KIND_STYLE[checkpoint.kind])


def _pattern(checkpoint: Checkpoint, *, full: bool) -> Cell:
    class_ = checkpoint.pattern.class_
    if class_ is None:
        return MISSING
    return Cell(class_.value if full else _SHORT_CLASS.get(class_, class_.value), CLASS_STYLE[class_])


def _limit(checkpoint: Checkpoint) -> Cell:
    verdict = checkpoint.verdict
    text = certainty.short(verdict)
    if verdict is None or text is None:
        return MISSING
    if verdict.limit is Limit.NONE:
        return Cell(text, "green")
    return Cell(text, "bold" if certainty.is_told(verdict) else "yellow")


def _notes(report: Report, copies: str) -> list[str]:
    checkpoints, left_out = report.checkpoints, report.copies_left_out
    notes = []
    if any(checkpoint.status is Status.INCOMPLETE for checkpoint in checkpoints):
        notes.append(
            "Incomplete saves were broken off, never committed, or only a part of them was seen: do not count on them; "
            "`ckptprof show ID` tells which it was."
        )
    if any(checkpoint.confidence < LOW_CONFIDENCE for checkpoint in checkpoints):
        notes.append(f"? after a kind is less sure to be a checkpoint (confidence under {LOW_CONFIDENCE}).")
    if any(c.verdict is not None and not certainty.is_told(c.verdict) for c in checkpoints):
        notes.append("? after a limit is unclear: `ckptprof show ID` tells what was seen and what was not.")
    if any(map(course.is_moved_again, checkpoints)):
        notes.append(
            f"{_AGAIN} after a size counts bytes that moved more than once, as those of a copy such as last.ckpt do: "
            "`ckptprof show ID` tells how many."
        )
    ids = [checkpoint.id for checkpoint in summaries.ordered(checkpoints)]
    if ids != sorted(ids):
        notes.append("Ids follow the order in which checkpoints were recognised, the lines that in which they began.")
    if any(map(course.waited_beside, checkpoints)):
        notes.append("A stall above its duration: training also stood still before the first byte or after the last.")
    if any(checkpoint.level is Level.POLL for checkpoint in checkpoints):
        notes.append("Seen by polling: `ckptprof show ID` tells the evidence and what was out of sight.")
    if left_out:
        was = "was" if left_out == 1 else "were"
        notes.append(f"{_copies(left_out)} of checkpoint files {was} left out: {copies}.")
    return notes
