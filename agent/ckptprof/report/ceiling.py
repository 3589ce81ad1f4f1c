"""What `ckptprof ceiling` says: a row for each kind of work, and what the path takes at best."""

from __future__ import annotations

from typing import Any

import msgspec

from ckptprof import units
from ckptprof.diagnose.ceilings import FULL, READ, WRITE, Ceilings, Measure, fastest
from ckptprof.report import document as documents
from ckptprof.report.clean import clean
from ckptprof.report.table import Cell, facts, number, paint, wrap
from ckptprof.report.table import render as render_table

BUSY = 0.1  # share of the time in which others kept the device busy, from which on it is said
_SHORT_NS = 200_000_000  # a bandwidth measured for less is easily a cache's


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
    return f"{row.work} {'direct' if row.direct else 'buffered'}{', cold' * (row.work == READ and not row.direct)}"


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
    lines = [*facts(pairs, width, colour=colour), "", *render_table(rows, width, colour=colour), ""]
    for sentence in conclusions(ceilings):
        lines += wrap(sentence, width)
    for note in notes(ceilings):
        lines += [paint(line, "dim", colour=colour) for line in wrap(note, width)]
    return "\n".join([*lines, ""])


def _row(one: Measure) -> list[Cell]:
    rate = one.bytes_per_second
    return [
        Cell("WORK", clean(label(one)), "dim" if rate is None else ""),
        number("WORKERS", one.workers, str),
        number("RATE", rate, units.rate, "cyan"),
        number("BYTES", one.moved_bytes or None, units.size, drop=1),
    ]


def conclusions(ceilings: Ceilings) -> list[str]:
    """Return what the rows come to, a sentence each."""
    said = []
    for work, who in ((WRITE, "writer"), (READ, "reader")):
        best = fastest(ceilings, work)
        if best is None or not best.bytes_per_second:
            continue
        workers = units.plural(best.workers, "worker")
        said.append(f"Fastest {work}: {units.rate(best.bytes_per_second)} ({label(best)}, {workers}).")
        for one in ceilings.measures:
            is_common = one.work == work and one.workers == 1 and not one.direct and one.id != best.id
            if is_common and one.bytes_per_second:
                share = units.percent(round(one.bytes_per_second / best.bytes_per_second, 2))
                said.append(f"One buffered {who} reaches {share} of that.")
    return said


def notes(ceilings: Ceilings) -> list[str]:
    """Return what to know before the figures are believed."""
    reasons: dict[str, list[str]] = {}  # why rows are empty or short, each once
    for one in ceilings.measures:
        why = one.missing or ("the file system or a quota was full" if one.ended == FULL else None)
        if why is not None:
            reasons.setdefault(clean(why), []).append(f"{label(one)}{f' x{one.workers}' * (one.workers > 1)}")
    said = [f"Not fully measured ({why}): {'; '.join(rows)}." for why, rows in reasons.items()]
    if ceilings.busy_before is not None and ceilings.busy_before >= BUSY:
        busy = units.percent(round(ceilings.busy_before, 2))
        said.append(f"The device was already {busy} busy before the probe: the figures may be too low.")
    if not ceilings.complete:
        said.append("Some measurements are missing: a later probe replaces this one.")
    writes = [one for one in ceilings.measures if one.work == WRITE and one.bytes_per_second is not None]
    if any(one.spent_ns < _SHORT_NS for one in writes):
        said.append(
            "Some writes took less than 0.2 s and may only have filled the device's cache: use a larger --size."
        )
    return said
