"""One line for each checkpoint, fields separated by tabs: for `cut`, `awk` and `grep`."""

from __future__ import annotations

from datetime import tzinfo

from ckptprof import figures, units
from ckptprof.model import Checkpoint, Report
from ckptprof.report.clean import clean
from ckptprof.report.rows import place
from ckptprof.report.summary import ordered
from ckptprof.report.table import NOTHING


def render(report: Report, *, zone: tzinfo) -> str:
    """Return the lines.

    Their fields: id, start (RFC 3339), kind, seconds, bytes, pattern, step, job, path, status, mode, stall, limit,
    confidence of that limit.
    """
    return "".join("\t".join(fields(checkpoint, zone)) + "\n" for checkpoint in ordered(report.checkpoints))


def fields(checkpoint: Checkpoint, zone: tzinfo) -> list[str]:
    """Return the fields of a line."""
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
        place(checkpoint) or NOTHING,
        checkpoint.status.value,
        NOTHING if checkpoint.mode is None else checkpoint.mode.value,
        NOTHING if checkpoint.stall_ns is None else f"{checkpoint.stall_ns / 1e9:.3f}",
        NOTHING if verdict is None else verdict.limit.value,
        NOTHING if verdict is None else f"{verdict.confidence:.2f}",
    ]
