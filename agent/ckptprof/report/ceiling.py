"""What `ckptprof ceiling` says: a row for each kind of work, and what the path takes at best."""

from __future__ import annotations

from typing import Any

import msgspec

from ckptprof import units
from ckptprof.diagnose.ceilings import Ceilings, Ended, Measure, Work, fastest, nearest
from ckptprof.report import document as documents
from ckptprof.report.clean import clean
from ckptprof.report.table import NOTHING, Cell, Column, facts, paint, wrap
from ckptprof.report.table import render as render_table

BUSY = 0.1  # share of the time in which others kept the device busy, from which on it is said
_SHORT_NS = 200_000_000  # a bandwidth measured for less is easily a cache's
_COLUMNS = (
    Column("WORK"),
    Column("OPERATION", right=True, drop=1),
    Column("WORKERS", right=True),
    Column("RATE", right=True),
    Column("PER SECOND", right=True),
    Column("MEDIAN", right=True, drop=2),
    Column("P99", right=True, drop=3),
    Column("MOVED", right=True, drop=4),
)


class Kept(Ceilings, frozen=True, kw_only=True):
    """What one probe found, and where that is kept."""

    kept: str | None  # the file that later verdicts read


UNREPORTED = ("format",)


def document(ceilings: Ceilings, *, kept: str | None) -> dict[str, Any]:
    """Return the document of `ceiling --json`."""
    told = documents.of(Kept(**msgspec.structs.asdict(ceilings), kept=kept))
    for name in UNREPORTED:
        del told[name]
    return told


def label(row: Measure) -> str:
    """Return the name of a row in words."""
    if row.work is Work.SYNC:
        return "write and fsync"
    if row.operation_bytes is None:
        return str(row.work.value)
    way = "by mmap, cold" if row.mapped else "direct" if row.direct else "buffered"
    cold = ", cold" if row.work is Work.READ and not row.direct and not row.mapped else ""
    return f"{row.work.value}{' random' * row.random} {way}{cold}"


def render(ceilings: Ceilings, *, width: int, colour: bool) -> str:
    """Return the table as text that ends in a newline, the conclusions last."""
    where = f"{ceilings.fs_type} from {ceilings.server or ceilings.device or ceilings.source}"
    pairs = [
        ("Path", clean(ceilings.path)),
        ("Mount", clean(f"{ceilings.mount_point} ({where})")),
        ("Host", clean(ceilings.host)),
        ("Took", units.duration(ceilings.spent_ns)),
    ]
    rows = [_row(one) for one in ceilings.measures]
    lines = [*facts(pairs, width, colour=colour), "", *render_table(_COLUMNS, rows, width, colour=colour), ""]
    for sentence in conclusions(ceilings):
        lines += wrap(sentence, width)
    for note in notes(ceilings):
        lines += [paint(line, "dim", colour=colour) for line in wrap(note, width)]
    return "\n".join([*lines, ""])


def _row(one: Measure) -> tuple[Cell, ...]:
    missing = one.operations_per_second is None
    return tuple(
        Cell(clean(text), style)
        for text, style in (
            (label(one), "dim" if missing else ""),
            (NOTHING if one.operation_bytes is None else units.size(one.operation_bytes), ""),
            (str(one.workers), ""),
            (_or_nothing(one.bytes_per_second, units.rate(one.bytes_per_second)), "cyan"),
            (NOTHING if one.operations_per_second is None else _per_second(one.operations_per_second), ""),
            (_or_nothing(one.latency_p50_seconds, units.latency(one.latency_p50_seconds)), ""),
            (_or_nothing(one.latency_p99_seconds, units.latency(one.latency_p99_seconds)), ""),
            (units.size(one.moved_bytes) if one.moved_bytes else NOTHING, ""),
        )
    )


def _or_nothing(value: float | None, text: str) -> str:
    return NOTHING if value is None else text


def _per_second(value: float) -> str:
    return f"{value:,.0f}" if value >= 9.5 else f"{value:.1f}"


def conclusions(ceilings: Ceilings) -> list[str]:
    """Return what the rows come to, a sentence each."""
    said = []
    for work, takes in ((Work.WRITE, "takes"), (Work.READ, "gives")):
        best = fastest(ceilings, work)
        if best is None:
            continue
        said.append(f"The path {takes} {units.rate(best.bytes_per_second)} at best: {_shape(best)}.")
        one = nearest(ceilings, work, operation_bytes=1 << 20, direct=False)
        if one is not None and one.id != best.id and one.bytes_per_second and best.bytes_per_second:
            share = units.percent(round(one.bytes_per_second / best.bytes_per_second, 2))
            said.append(f"One buffered {'writer' if work is Work.WRITE else 'reader'} gets {share} of that.")
    return said


def _shape(one: Measure) -> str:
    return f"{label(one)}, {units.plural(one.workers, 'worker')}, {units.size(one.operation_bytes)} each"


def notes(ceilings: Ceilings) -> list[str]:
    """Return what to know before the figures are believed."""
    said = _missing(ceilings)
    if ceilings.busy_before is not None and ceilings.busy_before >= BUSY:
        busy = units.percent(round(ceilings.busy_before, 2))
        said.append(f"The device was {busy} busy before the probe began: without that the figures may be higher.")
    if not ceilings.complete:
        said.append("Not everything could be measured: a later probe takes the place of this one.")
    short = [one for one in ceilings.measures if one.bytes_per_second is not None and one.spent_ns < _SHORT_NS]
    if any(one.work is Work.WRITE for one in short):
        said.append("Some writes took less than 0.2 s, in which a device may use its own cache: more with --size.")
    return said


def _missing(ceilings: Ceilings) -> list[str]:
    """Return why rows are empty or short, each reason once."""
    reasons: dict[str, list[str]] = {}
    for one in ceilings.measures:
        why = one.missing or ("the file system was full, or a quota" if one.ended == Ended.FULL else None)
        if why is not None:
            size = "" if one.operation_bytes is None else f" {units.size(one.operation_bytes)}"
            reasons.setdefault(clean(why), []).append(f"{label(one)}{size}{f' x{one.workers}' * (one.workers > 1)}")
    return [f"Not measured to the end, {why}: {'; '.join(rows)}." for why, rows in reasons.items()]
