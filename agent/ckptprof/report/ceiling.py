"""The output of `ckptprof ceiling`: a row for each kind of work, and the fastest rates."""

from __future__ import annotations

from typing import Any

import msgspec

from ckptprof import units
from ckptprof.diagnose.ceilings import FULL, READ, WRITE, Ceilings, Measure, fastest
from ckptprof.report import document as documents
from ckptprof.report.clean import clean
from ckptprof.report.table import Cell, facts, number, paint, wrap
from ckptprof.report.table import render as render_table

BUSY = 0.1  # share of the time in which others used the device, above which a note warns
_SHORT_NS = 200_000_000  # a bandwidth measured for less is easily a cache's


class CeilingDocument(Ceilings, frozen=True, kw_only=True):
    """The result of one probe, and the file that it was saved to."""

    saved_to: str | None  # the file that later verdicts read


UNREPORTED = ("format",)


def document(ceilings: Ceilings, *, saved_to: str | None) -> dict[str, Any]:
    """Return the document of `ceiling --json`."""
    body = documents.to_document(CeilingDocument(**msgspec.structs.asdict(ceilings), saved_to=saved_to))
    for name in UNREPORTED:
        del body[name]
    return body


def label(row: Measure) -> str:
    """Return the name of a row."""
    return f"{row.work} {'direct' if row.direct else 'buffered'}{', cold' * (row.work == READ and not row.direct)}"


def render(ceilings: Ceilings, *, width: int, colour: bool) -> str:
    """Return the table and conclusions as text that ends in a newline."""
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
        number("BYTES", one.transferred_bytes or None, units.size, drop=1),
    ]


def conclusions(ceilings: Ceilings) -> list[str]:
    """Summarise the rows in sentences."""
    sentences = []
    for work, worker in ((WRITE, "writer"), (READ, "reader")):
        best = fastest(ceilings, work)
        if best is None or not best.bytes_per_second:
            continue
        workers = units.plural(best.workers, "worker")
        sentences.append(f"Fastest {work}: {units.rate(best.bytes_per_second)} ({label(best)}, {workers}).")
        for one in ceilings.measures:
            is_common = one.work == work and one.workers == 1 and not one.direct and one.id != best.id
            if is_common and one.bytes_per_second:
                share = units.percent(round(one.bytes_per_second / best.bytes_per_second, 2))
                sentences.append(f"One buffered {worker} reaches {share} of that.")
    return sentences


def notes(ceilings: Ceilings) -> list[str]:
    """Return what affects the reliability of the figures."""
    reasons: dict[str, list[str]] = {}  # why rows are empty or short, each once
    for one in ceilings.measures:
        why = one.missing or ("the file system or a quota was full" if one.ended == FULL else None)
        if why is not None:
            reasons.setdefault(clean(why), []).append(f"{label(one)}{f' x{one.workers}' * (one.workers > 1)}")
    sentences = [f"Not fully measured ({why}): {'; '.join(rows)}." for why, rows in reasons.items()]
    if ceilings.busy_before is not None and ceilings.busy_before >= BUSY:
        busy = units.percent(round(ceilings.busy_before, 2))
        sentences.append(f"The disk was already {busy} busy before the probe: the figures may be too low.")
    if not ceilings.complete:
        sentences.append("Some measurements are missing: a later probe replaces this one.")
    writes = [one for one in ceilings.measures if one.work == WRITE and one.bytes_per_second is not None]
    if any(one.spent_ns < _SHORT_NS for one in writes):
        sentences.append(
            "Some writes took less than 0.2 s and may only have filled the disk's cache: use a larger --size."
        )
    return sentences
