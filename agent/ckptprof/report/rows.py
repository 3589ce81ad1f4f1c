"""The line of each checkpoint in a report: its columns and their style."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timezone, tzinfo
from itertools import takewhile

from ckptprof import figures, units
from ckptprof.model import Checkpoint, Kind, PatternClass, Report, Status
from ckptprof.report import certainty, checkpoint_facts, summary
from ckptprof.report.clean import clean, named, shorten_end
from ckptprof.report.clean import width as cells
from ckptprof.report.outliers import LEAST_SECONDS, LONGER, find_outliers
from ckptprof.report.pictures import colours
from ckptprof.report.table import NOTHING, Cell, facts, lay_out, number, paint, without_empty_columns, wrap
from ckptprof.report.table import render as render_table

LOW_CONFIDENCE = 0.6  # below it a row is marked
WIDE = 120  # from here on pattern classes and dates are written in full
MOST = 30  # rows; of more the worst and the last are shown
ENDS = 10  # so many of each
AGAIN, LONG = "*", "!"
_SECONDS_FROM = 50  # cells
_SHORT_CLASS = {PatternClass.SEQUENTIAL_LARGE: "seq-large", PatternClass.SEQUENTIAL_SMALL: "seq-small"}
KIND_STYLE = {Kind.SAVE: "", Kind.RESTORE: "bold", Kind.COPY: "dim"}


@dataclass(frozen=True, slots=True)
class Choice:
    """The checkpoints to list, the titles above lines by index, and the uids of outliers, the slowest first."""

    checkpoints: tuple[Checkpoint, ...]
    titles: Mapping[int, str]
    slow: tuple[str, ...]


def select_rows(report: Report, *, whole: bool) -> Choice:
    """Return all checkpoints by start time; of many only the worst, by what they cost, and the last, unless `whole`."""
    every, slow = summary.ordered(report.checkpoints), tuple(one.uid for one in find_outliers(report.checkpoints))
    if whole or len(every) <= MOST:
        return Choice(tuple(every), {}, slow)
    is_blocking = any(one.stall_ns for one in every)
    cost = figures.stall_seconds if is_blocking else figures.duration_seconds
    worst = sorted(every, key=lambda one: -(cost(one) or 0.0))[:ENDS]
    criterion = "blocked training" if is_blocking else "took"
    titles = {0: f"The {ENDS} that {criterion} longest", ENDS: f"The last {ENDS} of {len(every):,}"}
    return Choice((*worst, *every[-ENDS:]), titles, slow)


def draw(report: Report, chosen: Choice, zone: timezone, width: int, *, colour: bool) -> list[str]:
    """Return the table of the chosen checkpoints, with its header under each title."""
    jobs = {one.job for one in report.checkpoints}
    marks_ns = [report.watched.start_ns, report.watched.end_ns, *(c.start_ns for c in chosen.checkpoints)]
    clock = clock_for(marks_ns, zone, width)
    if clock == "%H:%M:%S" and width < _SECONDS_FROM:
        clock = "%H:%M"
    several, full = len(jobs) > 1, width >= WIDE  # the head names the only job
    rows = [_row(one, zone, clock, slow=chosen.slow, several=several, full=full) for one in chosen.checkpoints]
    shown = without_empty_columns(rows)
    below = _paths(chosen.checkpoints, shown, width)
    header, *drawn = render_table(shown, width, colour=colour) or [""]
    lines = [] if chosen.titles or not drawn else [header]
    for i, line in enumerate(drawn):
        if i in chosen.titles:
            title = wrap(chosen.titles[i], width)
            lines += [*[""] * bool(lines), *(paint(line, "bold", colour=colour) for line in title), header]
        lines.append(line)
    return [*lines, *([""] if below else []), *facts(below, width, colour=colour)]


def clock_for(marks_ns: Iterable[int | None], zone: timezone, width: int) -> str:
    """Return the time format: without the date if all are on one day, without the year on a narrow terminal."""
    days = {units.stamp(mark, zone)[:10] for mark in marks_ns if mark is not None}
    return "%H:%M:%S" if len(days) == 1 else "%Y-%m-%d %H:%M:%S" if width >= WIDE else "%m-%d %H:%M"


def marks(chosen: Choice) -> list[str]:
    """Explain the marks in the chosen lines."""
    checkpoints, notes = chosen.checkpoints, []
    if any(one.uid in chosen.slow for one in checkpoints):
        least = f"{LONGER:g} times the median of its job, and {LEAST_SECONDS:g} s more"
        notes.append(f"{LONG} after a duration: at least {least}.")
    if any(one.status is Status.INCOMPLETE for one in checkpoints):
        notes.append(
            "Incomplete saves were interrupted, never committed, or only partly observed: do not restore from them; "
            "`ckptprof show ID` shows which."
        )
    if any(one.confidence < LOW_CONFIDENCE for one in checkpoints):
        notes.append(f"? after a kind: confidence below {LOW_CONFIDENCE} that it is a checkpoint.")
    if any(one.verdict is not None and not certainty.is_probable(one.verdict) for one in checkpoints):
        notes.append("unclear, or ? after a limit: `ckptprof show ID` shows the evidence and what is missing.")
    if any(map(checkpoint_facts.is_transferred_again, checkpoints)):
        notes.append(
            f"{AGAIN} after a size: some bytes were transferred more than once, as for a copy such as last.ckpt; "
            "`ckptprof show ID` shows how many."
        )
    return notes


def copies_left_out(report: Report) -> str:
    """State the number of copies that are not shown."""
    number = report.copies_left_out
    copies = "1 copy of checkpoint files is" if number == 1 else f"{units.count(number)} copies of checkpoint files are"
    return f"{copies} not shown"


def job_text(checkpoint: Checkpoint) -> str:
    """Return the job, with its processes unless the name of the job already identifies them."""
    job = named(checkpoint.job)
    if len(checkpoint.writers) > 1:
        return f"{job} ({len(checkpoint.writers)} processes)"
    if not checkpoint.writers or job.endswith(f"-{checkpoint.writers[0].pid}"):
        return job
    return f"{job} ({clean(checkpoint.writers[0].comm)} {checkpoint.writers[0].pid})"


def location(checkpoint: Checkpoint) -> str | None:
    """Return its path, or the object store that it was sent to; None: not known."""
    if checkpoint.sent is None or not checkpoint.sent.destinations:
        return None if checkpoint.path is None else clean(checkpoint.path)
    first, *others = checkpoint.sent.destinations
    return f"object store {clean(first.place)}" + (f" and {len(others)} more" if others else "")


def common_folder(paths: Sequence[str]) -> str | None:
    """Return the folder, with its slash, that contains all of two or more paths; None for / or none."""
    if len(paths) < 2 or not all(path.startswith("/") for path in paths):
        return None
    first, last = min(paths), max(paths)  # what these two share, all share
    shared = "".join(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False)))
    folder = shared[: shared.rfind("/") + 1]
    return folder if len(folder) > 1 else None


def _paths(checkpoints: Sequence[Checkpoint], rows: Sequence[list[Cell]], width: int) -> list[tuple[str, str]]:
    paths = [one.path for one in checkpoints if one.path is not None]
    folder = common_folder(paths)
    if not _is_cut(rows, width):
        return []
    if folder is None:
        return [("Path", clean(paths[0]))] if len(paths) == 1 else []
    text = clean(folder)
    for suffix in ("", _common_suffix(paths)):
        if not _is_cut(rows, width):
            break
        text += f", and end in {clean(suffix)}" if suffix else ""
        for one, row in zip(checkpoints, rows, strict=True):
            if one.path is not None:
                row[-1] = row[-1]._replace(text=clean(one.path[len(folder) :].removesuffix(suffix)))
    return [("Paths are in", text)]


def _is_cut(rows: Sequence[list[Cell]], width: int) -> bool:
    path_cells = lay_out(rows, width).get(len(rows[0]) - 1, 0) if rows else 0
    return any(cells(row[-1].text or NOTHING) > path_cells for row in rows)


def _common_suffix(paths: Iterable[str]) -> str:
    found = {path[dot:] if (dot := path.rfind(".")) > path.rfind("/") + 1 else "" for path in paths}
    return found.pop() if len(found) == 1 else ""


def _row(  # noqa: PLR0913 # what a cell depends on
    checkpoint: Checkpoint, zone: timezone, clock: str, *, slow: Sequence[str], several: bool, full: bool
) -> list[Cell]:
    speed, is_outlier = figures.rate_bytes_per_second(checkpoint), checkpoint.uid in slow
    style = "bold red" if checkpoint.uid in slow[:1] else "bold yellow" * is_outlier
    class_, stall_ns = checkpoint.pattern.class_, checkpoint.stall_ns
    is_most = stall_ns is not None and 2 * stall_ns >= figures.duration_ns(checkpoint)
    again = AGAIN * checkpoint_facts.is_transferred_again(checkpoint)
    pattern = class_ and (class_.value if full else _SHORT_CLASS.get(class_, class_.value))
    kind, mark = checkpoint.kind.value, "?" * (checkpoint.confidence < LOW_CONFIDENCE)
    is_broken_off = checkpoint.status is Status.INCOMPLETE
    if is_broken_off:  # it is a save; the kind is added if there is space
        kind = f"incomplete {kind}" if full else "incomplete"
    verdict = checkpoint.verdict
    return [
        Cell("ID", str(checkpoint.id) if checkpoint.id else NOTHING, "bold", right=True),
        Cell("TIME", units.stamp(checkpoint.start_ns, zone, clock), drop=1),
        Cell("KIND", kind + mark, "bold red" if is_broken_off else "yellow" if mark else KIND_STYLE[checkpoint.kind]),
        number("STEP", checkpoint.step, str, drop=7, returns=True, optional=True),
        Cell("DURATION", units.seconds(figures.duration_seconds(checkpoint)) + LONG * is_outlier, style, right=True),
        Cell("LIMIT", certainty.short_limit(verdict), colours.verdict_style(verdict), optional=True),
        Cell("MODE", checkpoint.mode and checkpoint.mode.value, drop=6, optional=True),
        number("BLOCKED", stall_ns, units.duration, style if is_most else "green", drop=4, optional=True),
        Cell("SIZE", units.size(checkpoint.bytes) + again, right=True, drop=5),
        number("RATE", speed, units.rate, drop=8),
        Cell("PATTERN", pattern, drop=9),
        number("FILES", checkpoint.files if checkpoint.sent is None else None, units.count, drop=10),
        *([Cell("JOB", job_text(checkpoint), drop=3, minimum=12, cut=shorten_end)] if several else []),
        Cell("PATH", location(checkpoint), drop=2, minimum=11),
    ]


def tabbed(report: Report, *, zone: tzinfo) -> str:
    """Return a tab-separated line for each checkpoint, for `cut`, `awk` and `grep`.

    Its fields: id, start (RFC 3339), kind, seconds, bytes, pattern, step, job, path, status, mode, stall, limit,
    confidence of that limit.
    """
    return "".join("\t".join(fields(one, zone)) + "\n" for one in summary.ordered(report.checkpoints))


def fields(checkpoint: Checkpoint, zone: tzinfo) -> list[str]:
    """Return the fields of such a line."""
    class_, verdict = checkpoint.pattern.class_, checkpoint.verdict
    when = units.moment(checkpoint.start_ns, zone)
    return [
        str(checkpoint.id),
        NOTHING if when is None else when.isoformat(timespec="milliseconds"),
        checkpoint.kind.value,
        f"{figures.duration_seconds(checkpoint):.3f}",
        str(checkpoint.bytes),
        NOTHING if class_ is None else class_.value,
        NOTHING if checkpoint.step is None else str(checkpoint.step),
        clean(checkpoint.job),
        location(checkpoint) or NOTHING,
        checkpoint.status.value,
        NOTHING if checkpoint.mode is None else checkpoint.mode.value,
        NOTHING if checkpoint.stall_ns is None else f"{checkpoint.stall_ns / 1e9:.3f}",
        NOTHING if verdict is None else verdict.limit.value,
        NOTHING if verdict is None else f"{verdict.confidence:.2f}",
    ]
