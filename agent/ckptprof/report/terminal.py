"""The report for a terminal: the answer, the recorded time, one line per checkpoint, and their cost."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import timezone, tzinfo

from ckptprof import units
from ckptprof.model import LEFT_OUT, Checkpoint, Kind, Level, Report
from ckptprof.report import answer, checkpoint_facts, rows
from ckptprof.report import summary as summaries
from ckptprof.report.clean import clean, named, shorten_end
from ckptprof.report.pictures import overview
from ckptprof.report.table import facts, paint, wrap

_KIND_TITLE = {Kind.SAVE: "Saves", Kind.RESTORE: "Restores", Kind.COPY: "Copies"}
KEY_CELLS = len("Restores  ")  # of the opening
_JOBS, _JOB_CELLS = 3, 60  # named in the opening, and how much of each
COPIES = "`ckptprof report --kind copy` lists them"
_DOCTOR = "`ckptprof doctor` shows what ckptprof can monitor on this host"


def explain_empty(report: Report, matching: str = "matching ") -> tuple[str, str]:
    """Return (finding, hint) for a report without checkpoints; `matching`: empty without a query."""
    spent = summaries.summarise(report).watched_ns
    if report.watched.set_aside:
        return f"no {matching}checkpoint; {_damaged(report.watched.set_aside)}", "query it with --db"
    if spent is None:
        return ("nothing was recorded in the requested time", f"go further back with --since; {_DOCTOR}")
    if report.copies_left_out:
        copies = _copies(report.copies_left_out)
        return (
            f"watched for {units.duration(spent)} and found no {matching}save or restore, only {copies}",
            "--kind copy lists them",
        )
    return (
        f"watched for {units.duration(spent)} and found no {matching}checkpoint",
        f"a checkpoint is reported some seconds after its end; relax --since, --job and --kind if given; {_DOCTOR}",
    )


def explain_empty_run(report: Report) -> tuple[str, str]:
    """Return (finding, hint) for a `run` without checkpoints, which has no query."""
    if summaries.summarise(report).watched_ns is None:
        return "nothing was recorded: the command was not monitored", _DOCTOR
    return explain_empty(report, matching="")[0], COPIES if report.copies_left_out else _DOCTOR


def render(  # noqa: PLR0913 # each argument is one choice of the caller
    report: Report,
    *,
    width: int,
    colour: bool,
    zone: tzinfo,
    copies: str = COPIES,
    whole: bool = False,
    remarks: Sequence[str] = (),
    urgent: Sequence[tuple[str, str]] = (),
    empty: Callable[[Report], tuple[str, str]] = explain_empty,
) -> str:
    """Return the whole report as text that ends in a newline.

    `zone`: the offset of printed times; `copies`: how to list copies that are not shown; `empty`: the text for a report
    without checkpoints; `remarks`: additional notes; `urgent`: titles and texts of what comes first. A long report
    lists the worst and the last checkpoints, unless `whole`.
    """
    checkpoints = summaries.ordered(report.checkpoints)
    offset = _offset(report, checkpoints, zone)
    found = summaries.summarise(report)
    conclusion = answer.conclude(report)
    lines = facts([*urgent, *_left_out(report), *conclusion.opening], width, colour=colour, keys=KEY_CELLS)
    drawn = overview.lines(
        report, answer.costs_answer_first(conclusion), texts_of_saves(found), width, KEY_CELLS, colour=colour
    )
    lines += [*[""] * bool(lines and drawn), *drawn, *[""] * bool(drawn)]
    lines += facts(_opening(report, found, offset), width, colour=colour, keys=KEY_CELLS)
    if not checkpoints:
        message, hint = empty(report)
        message = re.sub("^watched for .*? and found ", "found ", message)  # the line above has the time
        sentences = f"{message[0].upper()}{message[1:]}. {hint[0].upper()}{hint[1:]}."
        return "\n".join([*lines, "", *wrap(sentences, width), ""])
    shown = rows.select_rows(report, whole=whole)
    lines += ["", *rows.draw(report, shown, offset, width, colour=colour), ""]
    cost = answer.cost_lines(report, answer.costs_answer_first(conclusion), width, colour=colour)
    lines += [*cost, ""] if cost else []
    notes = [*_notes(report, shown, copies), *remarks]
    lines += [paint(line, "dim", colour=colour) for note in notes for line in wrap(note, width)]
    return "\n".join([*lines, ""])


def table(report: Report, *, width: int, colour: bool, zone: tzinfo) -> str:
    """Return only the line of each checkpoint, as text that ends in a newline; empty without checkpoints."""
    checkpoints = summaries.ordered(report.checkpoints)
    lines = rows.draw(
        report, rows.select_rows(report, whole=True), _offset(report, checkpoints, zone), width, colour=colour
    )
    return "".join(f"{line}\n" for line in lines)


def _offset(report: Report, checkpoints: Sequence[Checkpoint], zone: tzinfo) -> timezone:
    at_ns = report.watched.end_ns
    if at_ns is None:
        at_ns = checkpoints[-1].end_ns if checkpoints else 0
    return units.fixed_zone(at_ns, zone)


def _opening(report: Report, found: summaries.Summary, zone: timezone) -> list[tuple[str, str]]:
    host = clean(report.host) if report.host is not None else "unknown host"
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
    if watched.set_aside:
        pairs.append(("Damaged", _damaged(watched.set_aside)))
    _, stall_text = texts_of_saves(found)
    is_drawn = overview.has_enough_saves(report.checkpoints)
    for kind in found.kinds:
        spread = "" if kind.kind is Kind.SAVE and is_drawn else _spread(kind)
        pairs.append((_KIND_TITLE[kind.kind], _kind_line(kind) + (f"; duration {spread}" if spread else "")))
        if kind.kind is Kind.SAVE and stall_text and not is_drawn:
            pairs.append(("Blocked" if kind.stalled else "Modes", stall_text))
    if report.checkpoints:
        names = list(dict.fromkeys(named(one.job) for one in report.checkpoints))
        rest = f" and {units.count(len(names) - _JOBS)} more" if len(names) > _JOBS else ""
        pairs.append(("Jobs", ", ".join(shorten_end(name, _JOB_CELLS) for name in names[:_JOBS]) + rest))
    if risks := answer.risks(report.checkpoints):
        pairs.append(("Risks", risks))
    return pairs


def texts_of_saves(found: summaries.Summary) -> tuple[str, str]:
    """Return the durations and the stalls of all saves in words; empty without saves."""
    saves = next((kind for kind in found.kinds if kind.kind is Kind.SAVE), None)
    if saves is None:
        return "", ""
    return _spread(saves), _stall_line(saves, with_restores=any(kind.kind is Kind.RESTORE for kind in found.kinds))


def _kind_line(kind: summaries.KindSummary) -> str:
    speed = units.speed(kind.bytes, kind.busy_ns)
    text = units.count(kind.number)
    text += f" ({units.count(kind.incomplete)} incomplete)" if kind.incomplete else ""
    text += f", {units.size(kind.bytes)} in {units.duration(kind.busy_ns)}"
    text += f" (throughput {units.rate(speed)})" if speed is not None else ""
    if kind.caches:
        text += "; " + ", ".join(f"{units.count(number)} {clean(cache)}" for cache, number in kind.caches)
    return text


def _spread(kind: summaries.KindSummary) -> str:
    if kind.number < 2 or not kind.complete:
        return ""
    of = "" if kind.complete == kind.number else f" ({units.count(kind.complete)} complete)"
    if kind.complete == 1:
        return units.seconds(kind.median_seconds) + of
    return f"median {units.seconds(kind.median_seconds)}, p95 {units.seconds(kind.p95_seconds)}{of}"


def _stall_line(kind: summaries.KindSummary, *, with_restores: bool) -> str:
    parts = []
    if kind.stalled:
        text = f"{units.duration(kind.stall_ns)}{' by saves' * with_restores}"
        measured = f"{units.count(kind.stalled)} of {units.plural(kind.number, 'save')}"
        parts.append(text if kind.stalled == kind.number else f"{text} ({measured} measured)")
    if kind.modes:
        parts.append(", ".join(f"{units.count(number)} {mode.value}" for mode, number in kind.modes))
    return "; ".join(parts)


def _copies(number: int) -> str:
    return "1 copy" if number == 1 else f"{units.count(number)} copies"


def _left_out(report: Report) -> list[tuple[str, str]]:
    number = sum(any(one.endswith(LEFT_OUT) for one in checkpoint.limitations) for checkpoint in report.checkpoints)
    of = f"{units.count(number)} of {units.plural(len(report.checkpoints), 'checkpoint')}"
    return [("Left out", f"samples of {of}, to keep the CPU budget of ckptprof (`cpu_budget`)")] if number else []


def _damaged(set_aside: Sequence[str]) -> str:
    subject = "their database was unusable and is kept"
    if len(set_aside) > 1:
        subject = f"{len(set_aside)} databases were unusable and are kept, the newest"
    return f"earlier records are not in this report: {subject} as {clean(set_aside[-1])}"


def _gaps(report: Report, gap_ns: int, zone: timezone) -> str:
    gaps = report.watched.gaps
    longest = max(gaps, key=lambda gap: gap.end_ns - gap.start_ns)
    length = units.duration(longest.end_ns - longest.start_ns)
    start = units.stamp(longest.start_ns, zone)
    if len(gaps) == 1:
        return f"1, {length} from {start}: {clean(longest.reason)}"
    total = units.duration(gap_ns)
    return f"{units.count(len(gaps))}, {total} in total; the longest {length} from {start}: {clean(longest.reason)}"


def _notes(report: Report, shown: rows.Choice, copies: str) -> list[str]:
    checkpoints = shown.checkpoints
    notes = [f"`ckptprof report --all` shows all {len(report.checkpoints):,}."] if shown.titles else []
    notes += rows.marks(shown)
    ids = [checkpoint.id for checkpoint in summaries.ordered(checkpoints)]
    if ids != sorted(ids):
        notes.append("IDs are in order of detection, lines in order of start time.")
    if any(map(checkpoint_facts.stall_outside, checkpoints)):
        notes.append(checkpoint_facts.OUTSIDE)
    if any(checkpoint.level is Level.POLL for checkpoint in checkpoints):
        notes.append("Recorded by polling: `ckptprof show ID` shows the evidence and the limitations.")
    if report.copies_left_out:
        notes.append(f"{rows.copies_left_out(report)}: {copies}.")
    return notes
